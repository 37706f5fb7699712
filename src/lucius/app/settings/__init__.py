"""Every setting: one validated object from environment variables, each value with its source.

A section lists settings. Validation, `lucius settings` and the reference page are made from it.
"""

from lucius.app.settings.loading import Line, Settings, SettingsError, load_settings, settings_page

__all__ = ["Line", "Settings", "SettingsError", "load_settings", "settings_page"]
