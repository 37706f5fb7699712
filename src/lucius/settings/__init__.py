"""Every setting: one validated object from environment variables, each value with its source.

A section lists settings. Validation, `lucius settings` and the reference page are made from it.
"""

from lucius.settings.loading import SettingsError, load_settings
from lucius.settings.page import settings_page
from lucius.settings.table import Line, Settings

__all__ = ["Line", "Settings", "SettingsError", "load_settings", "settings_page"]
