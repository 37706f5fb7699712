"""What processes that share a ledger and a bus need."""

from datetime import UTC, datetime

import pytest

from lucius.adapters.ledgers.azure.ledger import AzureLedger
from lucius.adapters.ledgers.azure.single import SingleTable
from lucius.app.adapters import LANE_LEASE, open_lanes
from lucius.app.secrets import SecretMissingError, check_shared_secrets
from lucius.app.settings import load_settings
from lucius.engine.ownership import RENEWALS, LeasedLanes
from lucius.http.context import Role
from lucius.http.keys import new_key
from tests.memory_tables import MemoryTables

SHARED = {
    "LUCIUS_STORAGE_BACKEND": "ledger",
    "LUCIUS_TABLE_CONNECTION": "https://account.table.core.windows.net",
}
SECRETS = {
    "LUCIUS_CALLBACK_KEYS": "k1:0123456789abcdef0123456789abcdef",
    "LUCIUS_WEBHOOK_SECRET": "0123456789abcdef0123456789abcdef",
}


def test_the_settings_of_a_shared_ledger() -> None:
    settings = load_settings(SHARED)
    store = MemoryTables()
    ledger = AzureLedger(
        store, SingleTable(store, "jobs"), tenants="tenants", lanes="lanes", shared="shared"
    )
    lanes = open_lanes(settings, ledger, takes=True)
    assert isinstance(lanes, LeasedLanes)
    assert lanes.renewal == LANE_LEASE / RENEWALS
    assert open_lanes(settings, ledger, takes=False).renewal is None


async def test_leases_and_keys_are_in_the_table_that_the_setting_names() -> None:
    store = MemoryTables()
    layout = SingleTable(store, "jobs")
    ledger = AzureLedger(store, layout, tenants="tenants", lanes="lanes", shared="shared")
    await open_lanes(load_settings(SHARED), ledger, takes=True).renew({})
    leases = store.written["shared"]
    await ledger.keys().add(new_key("ci", (Role.READ,), None, datetime.now(UTC))[0])
    assert 0 < leases < store.written["shared"]
    assert set(store.written) == {"shared"}


def test_processes_that_share_a_ledger_need_the_same_secrets() -> None:
    check_shared_secrets(load_settings({}))
    check_shared_secrets(load_settings({**SHARED, **SECRETS}))
    for missing in SECRETS:
        given = {name: text for name, text in SECRETS.items() if name != missing}
        with pytest.raises(SecretMissingError, match=missing):
            check_shared_secrets(load_settings({**SHARED, **given}))


@pytest.mark.parametrize("bus", ["memory", "nats", "servicebus"])
def test_a_reply_needs_no_token_on_any_bus_unless_told(bus: str) -> None:
    given = {
        "LUCIUS_BUS_BACKEND": bus,
        "LUCIUS_SERVICEBUS_CONNECTION": "https://name.servicebus.windows.net",
    }
    assert load_settings(given).require_reply_token is False
    told = load_settings({**given, "LUCIUS_REQUIRE_REPLY_TOKEN": "true"})
    assert told.require_reply_token is True
