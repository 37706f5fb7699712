"""Azure Table Storage at its edge: throttling, refusals, connection settings and the service's date."""

import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic

import pytest
from aiohttp import web
from azure.data.tables.aio import TableServiceClient

from lucius.adapters.ledgers.azure.opening import TableConnectionError, open_tables
from lucius.adapters.ledgers.azure.store import Act, Change, row_of, service_time
from lucius.adapters.ledgers.azure.tables import (
    FIRST_WAIT,
    TRIES,
    UNSURE_TRIES,
    AzureTables,
    LedgerForbiddenError,
)
from lucius.app.adapters import UnsupportedError, open_ledger
from lucius.app.azure_stack import ACCOUNT
from lucius.app.lifecycle import free_port
from lucius.app.settings import load_settings
from lucius.core.errors import LedgerError, LedgerUnavailableError
from lucius.ports.ledger import Ledger
from tests.azurite_server import KEY, shared_azurite
from tests.conformance.azure_ledgers import fresh_prefix
from tests.memory_tables import MemoryTables

ROW = Change(Act.UPSERT, row_of("p", "r", {"a": 1}))


class Waits(list[float]):
    """Nobody sleeps; what would have been slept is kept."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


async def against(
    statuses: list[int], body: Callable[[AzureTables, Waits], Awaitable[None]]
) -> int:
    """A service that answers so, one status after another, and then 204. How often it was asked."""
    asked = 0

    async def answer(request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.Response(status=statuses[asked - 1] if asked <= len(statuses) else 204)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    waits = Waits()
    tables = open_tables(connection_of(port), pause=waits)
    try:
        await body(tables, waits)
    finally:
        await tables.close()
        await runner.cleanup()
    return asked


def connection_of(port: int, key: str = KEY) -> str:
    endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
    return (
        f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={key};"
        f"TableEndpoint={endpoint};"
    )


async def test_what_is_throttled_backs_off_with_jitter_and_is_counted() -> None:
    async def body(tables: AzureTables, waits: Waits) -> None:
        await tables.commit("jobs", [ROW])
        assert len(waits) == 3
        for tried, wait in enumerate(waits, 1):
            most = FIRST_WAIT * 2**tried
            assert most / 2 <= wait <= most
        assert tables.instruments.throttled.cells == {("503",): 2, ("429",): 1}
        assert tables.instruments.requests.cells == {("write",): 4}

    assert await against([503, 429, 503], body) == 4


async def test_waits_differ_between_those_who_were_turned_away_together() -> None:
    seen: set[float] = set()

    async def body(tables: AzureTables, waits: Waits) -> None:
        await tables.commit("jobs", [ROW])
        seen.update(waits)

    for _ in range(3):
        await against([503], body)
    assert len(seen) == 3


async def test_throttling_without_an_end_is_an_outage() -> None:
    async def body(tables: AzureTables, waits: Waits) -> None:
        with pytest.raises(LedgerUnavailableError):
            await tables.commit("jobs", [ROW])

    assert await against([503] * 100, body) == TRIES


async def test_a_write_without_an_answer_is_sent_again_unless_it_must_not_be() -> None:
    async def body(tables: AzureTables, waits: Waits) -> None:
        await tables.commit("jobs", [ROW])
        assert len(waits) == 1

    async def once(tables: AzureTables, waits: Waits) -> None:
        with pytest.raises(LedgerUnavailableError):
            await tables.commit("jobs", [ROW], once=True)

    async def for_ever(tables: AzureTables, waits: Waits) -> None:
        with pytest.raises(LedgerUnavailableError):
            await tables.commit("jobs", [ROW])

    assert await against([500], body) == 2
    assert await against([500], once) == 1
    assert await against([500] * 100, for_ever) == UNSURE_TRIES


async def test_the_date_of_the_service_is_kept_with_the_moment_of_its_answer() -> None:
    tables = open_tables(shared_azurite().table_connection)
    assert tables.dated() is None
    before = monotonic()
    with pytest.raises(LedgerUnavailableError, match="does not exist"):
        await tables.get("nosuchtable", "p", "r")
    dated = tables.dated()
    assert dated is not None
    assert before <= dated[1] <= monotonic()
    assert dated[0].tzinfo is not None
    assert abs((dated[0] - datetime.now(UTC)).total_seconds()) < 60
    await tables.close()


DATE = datetime(2026, 1, 1, tzinfo=UTC)


class Dated(MemoryTables):
    def dated(self) -> tuple[datetime, float]:  # type: ignore[override]
        return DATE, 100.0


@pytest.mark.parametrize(
    ("ours", "said"), [(0.0, 0.0), (0.9, 0.9), (1.4, 1.4), (60.0, 0.5), (-60.0, 0.5)]
)
def test_our_clock_counts_as_long_as_it_agrees_with_the_date_of_the_service(
    ours: float, said: float
) -> None:
    """The date is in whole seconds: by it alone, what comes first would depend on who looks."""
    wall = DATE + timedelta(seconds=7 + ours)
    now = service_time(Dated(), lambda: wall, lambda: 107.0)
    assert now == DATE + timedelta(seconds=7 + said)


# -- what is wrong at the start --------------------------------------------------------------


@pytest.mark.parametrize("connection", ["", "nonsense", "AccountName=x", "http://account/"])
def test_a_connection_that_names_no_account_is_refused_by_its_setting(connection: str) -> None:
    with pytest.raises(TableConnectionError, match="LUCIUS_TABLE_CONNECTION"):
        open_tables(connection)


async def opened(tmp_path: Path, connection: str, **more: str) -> None:
    environ = {
        "LUCIUS_DATA_DIR": str(tmp_path),
        "LUCIUS_STORAGE_BACKEND": "ledger",
        "LUCIUS_TABLE_CONNECTION": connection,
        **more,
    }
    ledger = await open_ledger(load_settings(environ))
    await ledger.check()
    await ledger.close()


async def test_tables_are_created_at_the_start(tmp_path: Path) -> None:
    connection = shared_azurite().table_connection
    await opened(tmp_path, connection)
    await opened(tmp_path, connection)


NAMES = {
    "ledger": ["LUCIUS_LEDGER_TABLE"],
    "table": [
        "LUCIUS_JOBS_TABLE",
        "LUCIUS_STEPS_TABLE",
    ],
}
JOBS, BESIDE = "LUCIUS_JOBS_TABLE", ("outbox", "events")
SHARED = ["LUCIUS_IDEMPOTENCY_TABLE", "LUCIUS_JOB_INDEX_TABLE", "LUCIUS_INFLIGHT_TABLE"]


@pytest.mark.parametrize("backend", NAMES)
async def test_the_settings_name_the_tables_that_exist(tmp_path: Path, backend: str) -> None:
    prefix = fresh_prefix()
    named = {name: f"{prefix}_{no}x" for no, name in enumerate([*NAMES[backend], *SHARED])}
    connection = shared_azurite().table_connection
    await opened(tmp_path, connection, LUCIUS_STORAGE_BACKEND=backend, **named)
    async with TableServiceClient.from_connection_string(connection) as service:
        found = [t.name async for t in service.list_tables() if t.name.startswith(prefix)]
    wanted = [*named.values(), *(f"{named[JOBS]}{each}" for each in BESIDE if JOBS in named)]
    assert sorted(found) == sorted(value.replace("_", "") for value in wanted)


ANY_TABLE = [(backend, name) for backend, own in NAMES.items() for name in [*own, *SHARED]]


@pytest.mark.parametrize(("backend", "gone"), ANY_TABLE)
async def test_a_table_that_is_gone_is_named_and_the_process_is_not_ready(
    tmp_path: Path, backend: str, gone: str
) -> None:
    """Whichever it is, a few looks name it; then every look does, until it is there again."""
    connection, prefix = shared_azurite().table_connection, fresh_prefix()
    tables = {name: f"{prefix}{no}" for no, name in enumerate([*NAMES[backend], *SHARED])}
    given = {"LUCIUS_STORAGE_BACKEND": backend, "LUCIUS_TABLE_CONNECTION": connection, **tables}
    ledger = await open_ledger(load_settings({"LUCIUS_DATA_DIR": str(tmp_path), **given}))
    try:
        async with TableServiceClient.from_connection_string(connection) as service:
            await service.delete_table(tables[gone])
            said = [await checked(ledger) for _ in range(2 * (len(tables) + len(BESIDE)) + 2)]
            assert f"table {tables[gone]} ({gone}) does not exist" in (said[-1] or "")
            assert said[-2] == said[-1]
            await service.create_table(tables[gone])
            assert await checked(ledger) is None
    finally:
        await ledger.close()


async def checked(ledger: Ledger) -> str | None:
    try:
        await ledger.check()
    except LedgerError as error:
        return str(error).partition("RequestId")[0]
    return None


async def test_an_account_that_refuses_us_is_named_with_its_setting(tmp_path: Path) -> None:
    wrong = connection_of(shared_azurite().table_port, "d3Jvbmc=")
    with pytest.raises(LedgerForbiddenError, match="LUCIUS_TABLE_CONNECTION needs"):
        await opened(tmp_path, wrong)


async def test_an_account_that_cannot_be_reached_is_said_with_its_setting() -> None:
    tables = open_tables(connection_of(free_port()), pause=Waits())
    with pytest.raises(LedgerUnavailableError, match="at LUCIUS_TABLE_CONNECTION does not answer"):
        await tables.get("jobs", "p", "r")
    await tables.close()


async def test_two_settings_that_name_one_table_are_refused(tmp_path: Path) -> None:
    same = {"LUCIUS_LEDGER_TABLE": "one_table", "LUCIUS_JOB_INDEX_TABLE": "OneTable"}
    with pytest.raises(
        TableConnectionError, match="LUCIUS_JOB_INDEX_TABLE and LUCIUS_LEDGER_TABLE name the same"
    ):
        await opened(tmp_path, shared_azurite().table_connection, **same)


async def test_a_table_name_of_which_nothing_is_left_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="LUCIUS_INFLIGHT_TABLE"):
        await opened(tmp_path, shared_azurite().table_connection, LUCIUS_INFLIGHT_TABLE="__")


async def test_without_the_sdk_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lucius.adapters.ledgers.azure.opening", None)
    with pytest.raises(UnsupportedError, match=r"pip install 'lucius\[azure\]'"):
        await opened(tmp_path, shared_azurite().table_connection)
