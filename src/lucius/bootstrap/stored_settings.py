"""Settings of a process whose environment names an App Configuration: what is stored there counts too."""

import os
from collections.abc import Mapping
from typing import Final

from lucius.bootstrap.adapters.configs import stored_settings
from lucius.settings import Settings, load_settings
from lucius.settings.stored import check_stored

WHERE: Final = ("LUCIUS_APPCONFIG_CONNECTION", "LUCIUS_SYSTEM")
"""What the settings that say where to look, and for which label, begin with: files may hold them too."""


async def settings_with_stored(
    options: Mapping[str, str], environ: Mapping[str, str] | None = None
) -> Settings:
    """Raises SettingsError, and ConfigUnavailableError where App Configuration does not answer."""
    environ = os.environ if environ is None else environ
    given = {**environ, **options}
    named = load_settings({name: given[name] for name in given if name.startswith(WHERE)})
    connection = named.appconfig_connection.get_secret_value()
    stored = await stored_settings(connection, named.system)
    check_stored(stored)
    return load_settings(environ, options=options, stored=stored)
