"""Tables, Blob, Service Bus and App Configuration: by connection string, or by the process's identity."""

from collections.abc import Callable
from typing import Any

import pytest

from lucius.adapters.buses.service_bus import connecting
from lucius.adapters.configs import app_configuration
from lucius.adapters.ledgers.azure import opening
from lucius.adapters.workspaces import azure_blob
from lucius.adapters.workspaces.azure_account import account_of
from lucius.app.adapters import UnsupportedError, check_workspace
from lucius.app.settings import SettingsError, load_settings
from lucius.core.errors import LuciusError

KEY = "a2V5a2V5a2V5a2V5"
NAMESPACE = "lucius.servicebus.windows.net"
PLAN = connecting.Plan()


class Identity:
    """Stands where the SDK would look for the identity of the process. It counts who asks for it."""

    made = 0

    def __init__(self) -> None:
        type(self).made += 1

    async def get_token(self, *scopes: str, **options: Any) -> Any:
        raise AssertionError("nothing is asked of the service here")

    async def close(self) -> None: ...


class Blobs:
    """The client of the library, which asks its provider for a token with every request."""

    provider: object = None

    def __init__(self, credential: object) -> None:
        type(self).provider = credential


def tables(connection: str) -> object:
    return opening.open_tables(connection)


def bus(connection: str) -> object:
    return connecting.open_service_bus(connection, PLAN, creates=False)


def administrator(connection: str) -> object:
    return connecting.open_administrator(connection, PLAN)


def configuration(connection: str) -> object:
    return app_configuration.open_store(connection)


def blobs(connection: str) -> object:
    return azure_blob.stores_of(account_of(connection))


PARTS: dict[str, tuple[Callable[[str], object], Any, str, str]] = {
    "tables": (
        tables,
        opening,
        "https://lucius.table.core.windows.net",
        f"DefaultEndpointsProtocol=https;AccountName=lucius;AccountKey={KEY};EndpointSuffix=core.windows.net",
    ),
    "blobs": (
        blobs,
        azure_blob,
        "https://lucius.blob.core.windows.net",
        f"DefaultEndpointsProtocol=https;AccountName=lucius;AccountKey={KEY};EndpointSuffix=core.windows.net",
    ),
    "bus": (
        bus,
        connecting,
        NAMESPACE,
        f"Endpoint=sb://{NAMESPACE}/;SharedAccessKeyName=all;SharedAccessKey={KEY}",
    ),
    "bus provision": (
        administrator,
        connecting,
        NAMESPACE,
        f"Endpoint=sb://{NAMESPACE}/;SharedAccessKeyName=all;SharedAccessKey={KEY}",
    ),
    "configuration": (
        configuration,
        app_configuration,
        "https://lucius.azconfig.io",
        f"Endpoint=https://lucius.azconfig.io;Id=id;Secret={KEY}",
    ),
}


@pytest.fixture
def identity(monkeypatch: pytest.MonkeyPatch) -> type[Identity]:
    for _, module, _, _ in PARTS.values():
        monkeypatch.setattr(module, "DefaultAzureCredential", Identity)
    monkeypatch.setattr(azure_blob, "AzureCredentialProvider", Blobs)
    monkeypatch.setattr(Identity, "made", 0)
    return Identity


@pytest.mark.parametrize("part", PARTS)
async def test_where_no_key_is_given_the_identity_of_the_process_is_used(
    part: str, identity: type[Identity]
) -> None:
    opens, _, named, _ = PARTS[part]
    opens(named)
    assert identity.made == 1


@pytest.mark.parametrize("part", PARTS)
async def test_a_connection_string_needs_no_identity(part: str, identity: type[Identity]) -> None:
    opens, _, _, connection = PARTS[part]
    opens(connection)
    assert identity.made == 0


@pytest.mark.parametrize(
    ("part", "setting"),
    [
        ("tables", "LUCIUS_TABLE_CONNECTION"),
        ("blobs", "LUCIUS_BLOB_CONNECTION"),
        ("bus", "LUCIUS_SERVICEBUS_CONNECTION"),
        ("bus provision", "LUCIUS_SERVICEBUS_CONNECTION"),
        ("configuration", "LUCIUS_APPCONFIG_CONNECTION"),
    ],
)
@pytest.mark.parametrize("given", ["", "lucius", "AccountName=;AccountKey=", "Endpoint=sb://x"])
async def test_what_is_neither_is_refused_with_the_setting_and_what_it_takes(
    part: str, setting: str, given: str, identity: type[Identity]
) -> None:
    opens = PARTS[part][0]
    with pytest.raises(LuciusError, match=setting) as refused:
        opens(given)
    assert given not in str(refused.value) or given in ("", "lucius"), "it may hold a key"
    assert identity.made == 0


@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        ({"STORAGE_BACKEND": "ledger"}, "LUCIUS_TABLE_CONNECTION"),
        ({"STORAGE_BACKEND": "table"}, "LUCIUS_TABLE_CONNECTION"),
        ({"BUS_BACKEND": "servicebus"}, "LUCIUS_SERVICEBUS_CONNECTION"),
        ({"CONFIG_SOURCE": "appconfig"}, "LUCIUS_APPCONFIG_CONNECTION"),
        ({"WORKSPACE_URL": "az://workspaces/jobs"}, "LUCIUS_BLOB_CONNECTION"),
    ],
    ids=str,
)
def test_a_start_without_the_connection_names_the_setting(
    settings: dict[str, str], missing: str
) -> None:
    with pytest.raises((SettingsError, UnsupportedError), match=missing):
        check_workspace(load_settings({f"LUCIUS_{name}": v for name, v in settings.items()}))
