"""Where protocols, tenants and stored settings come from."""

from collections.abc import Mapping
from types import ModuleType

from lucius.bootstrap.adapters.unsupported import optional
from lucius.configs.files import FileConfig
from lucius.ports.config import ConfigSource
from lucius.settings import Settings
from lucius.settings.stored import StoredSettings


async def open_config(settings: Settings, stored: StoredSettings | None = None) -> ConfigSource:
    """`stored` is told what App Configuration says of the settings, at each look."""
    if settings.config_source == "files":
        return FileConfig(settings.protocol_paths(), policy=settings.retry_policy())
    opened: ConfigSource = await app_configuration().open_app_configuration(
        settings.appconfig_connection.get_secret_value(),
        settings.system,
        (stored or StoredSettings(settings)).policy,
    )
    return opened


async def stored_settings(connection: str, label: str) -> Mapping[str, str]:
    """What App Configuration says of the settings, by variable."""
    found: Mapping[str, str] = await app_configuration().read_settings(connection, label)
    return found


def app_configuration() -> ModuleType:
    return optional("lucius.configs.app_configuration", "LUCIUS_APPCONFIG_CONNECTION", "azure")
