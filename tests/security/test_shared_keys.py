"""API keys in the ledger: every replica accepts what another made, and forgets it in a stated time."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from lucius.adapters.ledgers.azure.side_tables import KEYS, AzureKeys
from lucius.adapters.ledgers.azure.store import Act, Change, row_of
from lucius.adapters.ledgers.memory import MemoryKeys
from lucius.app.access import key_store
from lucius.app.settings import load_settings
from lucius.cli.main import main
from lucius.core.errors import LedgerUnavailableError
from lucius.http.access import KeyAccess
from lucius.http.context import Role
from lucius.http.keys import OLDEST, PAUSE, REFRESH, KeysUnavailableError, SharedKeys, new_key
from lucius.ports.keys import ApiKey, KeyStore
from tests.api.world import World, client_of, context_of
from tests.azurite_server import shared_azurite
from tests.conformance.azure_ledgers import fresh_prefix
from tests.memory_tables import MemoryTables

NOW = datetime(2026, 1, 27, 10, 0, tzinfo=UTC)


class Watched(MemoryKeys):
    """Counts how often it is read, and may be away."""

    reads = 0
    away = False

    async def keys(self) -> Sequence[ApiKey]:
        self.reads += 1
        if self.away:
            raise LedgerUnavailableError("away")
        return await super().keys()


class Replica:
    """What one of several processes knows of the keys, on a clock of the test."""

    def __init__(self, store: Watched) -> None:
        self.seconds = 0.0
        self.keys = SharedKeys(store, now=lambda: NOW, clock=lambda: self.seconds)

    async def accepts(self, text: str) -> bool:
        await self.keys.prepare(text)
        return self.keys.caller_of(text) is not None

    async def passes(self, seconds: float) -> None:
        """In steps of a refresh, as `run` takes them."""
        end = self.seconds + seconds
        while self.seconds < end:
            self.seconds = min(end, self.seconds + REFRESH.total_seconds())
            await self.keys.refresh()


async def made_in(store: KeyStore) -> tuple[str, str]:
    record, text = new_key("ci", (Role.READ,), None, NOW)
    await store.add(record)
    return record.key_id, text


async def test_replicas_accept_each_others_keys_at_once() -> None:
    store = Watched()
    one, two = Replica(store), Replica(store)
    _, first = await made_in(store)
    assert await one.accepts(first)
    assert await two.accepts(first)
    two.seconds += PAUSE.total_seconds()
    _, second = await made_in(store)
    assert await two.accepts(second)


async def test_a_revoked_key_is_known_everywhere_after_a_refresh_and_its_waits_end() -> None:
    store = Watched()
    replica = Replica(store)
    key_id, text = await made_in(store)
    await replica.keys.prepare(text)
    caller = replica.keys.caller_of(text)
    assert caller is not None
    await store.revoke(key_id, NOW)
    assert caller.stands(), "the copy is from before"
    await replica.passes(REFRESH.total_seconds())
    assert not caller.stands()
    assert not await replica.accepts(text)


async def test_a_copy_that_cannot_be_read_again_opens_nothing_in_the_end() -> None:
    store = Watched()
    replica = Replica(store)
    _, text = await made_in(store)
    assert await replica.accepts(text)
    caller = replica.keys.caller_of(text)
    assert caller is not None
    store.away = True
    await replica.passes(OLDEST.total_seconds())
    assert await replica.accepts(text), "a short outage disturbs nobody"
    replica.seconds += 1
    assert not caller.stands()
    with pytest.raises(KeysUnavailableError):
        await replica.accepts(text)
    with pytest.raises(KeysUnavailableError):
        await replica.keys.check()
    store.away = False
    replica.seconds += PAUSE.total_seconds()
    assert await replica.accepts(text)
    await replica.keys.check()


async def test_guesses_cost_the_ledger_one_read_a_second() -> None:
    store = Watched()
    replica = Replica(store)
    for _ in range(3):
        for number in range(20):
            assert not await replica.accepts(f"lk_{number}_guess")
        replica.seconds += PAUSE.total_seconds()
    assert store.reads == 3


async def test_where_nobody_calls_nothing_is_read() -> None:
    store = Watched()
    replica = Replica(store)
    _, text = await made_in(store)
    assert await replica.accepts(text)
    await replica.passes(10 * REFRESH.total_seconds())
    assert store.reads == 2
    assert await replica.accepts(text), "the copy is old by now, and read again first"
    assert store.reads == 3


async def test_a_ledger_that_is_away_is_answered_with_503(world: World) -> None:
    store = Watched()
    store.away = True
    keys = SharedKeys(store)
    context = context_of(world, authenticate=KeyAccess(keys), checks={"keys": keys.check})
    async with client_of(context) as client:
        answer = await client.get("/v1/jobs", headers={"x-api-key": "lk_a_b"})
        assert (answer.status_code, answer.json()["code"]) == (503, "AUTHENTICATION_UNAVAILABLE")
        assert (await client.get("/readyz")).json()["checks"] == {"keys": "failed"}


@pytest.mark.parametrize(
    "change",
    [
        {"roles": '["emperor"]'},
        {"roles": "admin"},
        {"all_tenants": False, "tenants": "acme"},
        {"all_tenants": False},
        {"expires_at": "2030-01-01"},
        {"revoked_at": 7},
    ],
    ids=str,
)
async def test_a_row_that_is_not_understood_opens_nothing_and_disturbs_no_other(
    change: dict[str, Any],
) -> None:
    tables = MemoryTables()
    store = AzureKeys(tables, "shared")
    bad_id, bad = await made_in(store)
    _, good = await made_in(store)
    await tables.commit("shared", [Change(Act.MERGE, row_of(KEYS, bad_id, change))])
    keys = SharedKeys(store, now=lambda: NOW)
    await keys.prepare(bad)
    assert keys.caller_of(bad) is None
    assert keys.caller_of(good) is not None


async def test_columns_of_a_newer_version_survive_a_revocation() -> None:
    tables = MemoryTables()
    store = AzureKeys(tables, "shared")
    key_id, _ = await made_in(store)
    newer = Change(Act.MERGE, row_of(KEYS, key_id, {"colour": "blue"}))
    await tables.commit("shared", [newer])
    await store.revoke(key_id, NOW)
    row = await tables.get("shared", KEYS, key_id)
    assert row is not None
    assert (row["colour"], "revoked_at" in row) == ("blue", True)


# -- the command line on a real table service -------------------------------------------------


def shared_settings(data: Path, tables: str) -> dict[str, str]:
    return {
        "LUCIUS_DATA_DIR": str(data),
        "LUCIUS_STORAGE_BACKEND": "ledger",
        "LUCIUS_TABLE_CONNECTION": shared_azurite().table_connection,
        "LUCIUS_LEDGER_TABLE": f"{tables}ledger",
        "LUCIUS_IDEMPOTENCY_TABLE": f"{tables}claims",
        "LUCIUS_JOB_INDEX_TABLE": f"{tables}index",
        "LUCIUS_INFLIGHT_TABLE": f"{tables}shared",
        "COLUMNS": "200",
    }


def test_the_command_line_works_on_the_ledger_and_leaves_no_file(tmp_path: Path) -> None:
    env = shared_settings(tmp_path / "one", fresh_prefix())

    def lucius(*words: str) -> Result:
        return CliRunner().invoke(main, ["keys", *words], env=env)

    made = json.loads(lucius("create", "ci", "--role", "read", "--all-tenants", "--json").stdout)
    elsewhere = env | {"LUCIUS_DATA_DIR": str(tmp_path / "two")}
    listed = CliRunner().invoke(main, ["keys", "list", "--json"], env=elsewhere)
    assert [key["key_id"] for key in json.loads(listed.stdout)["keys"]] == [made["key_id"]]
    assert made["key"].split("_", 2)[2] not in listed.output
    assert json.loads(lucius("revoke", made["key_id"], "--json").stdout)["state"] == "revoked"
    assert lucius("revoke", "nobody").exit_code == 1
    assert not (tmp_path / "one" / "keys.json").exists()


async def test_a_key_of_the_store_opens_the_api_of_another_replica(
    tmp_path: Path, world: World
) -> None:
    env = shared_settings(tmp_path, fresh_prefix())
    settings = load_settings(env)
    async with key_store(settings) as one, key_store(settings) as two:
        record, text = new_key("ci", (Role.READ,), None, datetime.now(UTC))
        await one.add(record)
        keys = SharedKeys(two)
        async with client_of(context_of(world, authenticate=KeyAccess(keys))) as client:
            client.headers["x-api-key"] = text
            assert (await client.get("/v1/jobs")).status_code == 200
            await one.revoke(record.key_id, datetime.now(UTC))
            await keys.refresh()
            assert (await client.get("/v1/jobs")).status_code == 401
