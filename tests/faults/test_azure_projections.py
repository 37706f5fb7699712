"""Steps, Outbox and Events of the ledger `table` follow the job's row: late at most, and never backwards."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import pytest

from lucius.core.errors import LedgerUnavailableError
from lucius.ledgers.azure.heads import Glance
from lucius.ledgers.azure.ledger import AzureLedger
from lucius.ledgers.azure.split import SplitTables
from lucius.ledgers.azure.store import ETAG, Act, Change, Etags, Refused, Row, Store
from tests.conformance.azure_ledgers import EVENTS, JOBS, OUTBOX, STEPS, split
from tests.conformance.jobs import ack_of, release_of
from tests.conformance.ledger_registry import Shared
from tests.faults.azure_operations import (
    CANCEL,
    Site,
    applies,
    lived,
    looks,
    next_step,
    request,
    submits,
)
from tests.faults.azure_operations import Act as Doing
from tests.faults.stopping_store import Clock, DeadError
from tests.memory_tables import MemoryTables

COPIES = [EVENTS, OUTBOX, STEPS]
"""In the order in which they are written."""
JOB_ID = request("one").job.job_id


def apart(store: Store, clock: Clock) -> AzureLedger:
    return split(store, "t", clock)


class Interrupted(Shared):
    """A table service that does something else before writes to one table that follow the job's row."""

    def __init__(
        self,
        store: Store,
        table: str,
        instead: Callable[[], Awaitable[None]],
        *,
        always: bool = False,
        guarded: bool = True,
    ) -> None:
        super().__init__(store)
        self._store = store
        self._table = f"t{table}"
        self._instead = instead
        self._always = always
        self._guarded = guarded
        self._saved = False
        self.commit = self._commit

    async def _commit(
        self, table: str, changes: Sequence[Change], *, once: bool = False
    ) -> Etags | Refused:
        if table == self._table and (self._saved or self._always):
            self._saved = False
            await self._instead()
        if table == self._table and not self._guarded:
            changes = [Change(Act.UPSERT, change.row) for change in changes]
        self._saved = self._saved or table == f"t{JOBS}"
        return await self._store.commit(table, changes, once=once)


async def die() -> None:
    raise DeadError


async def fail() -> None:
    raise LedgerUnavailableError("no answer")


RUNS = lived(ack_of)


async def left_behind(site: Site, table: str, act: Doing, before: Doing = RUNS) -> None:
    """A writer that dies after the job's row, before it writes to that table."""
    await site.by_another(before)
    with pytest.raises(DeadError):
        await act(site.open(Interrupted(site.store, table, die)))


def run(body: Callable[[Site], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(body(Site(apart)))


async def lags(site: Site) -> bool:
    """After a while, `verify` says so."""
    site.wait(minutes=6)
    return "projection_lag" in {drift.kind for drift in await site.open().verify()}


# -- a writer that died ----------------------------------------------------------------------


async def loads(ledger: AzureLedger) -> object:
    return await ledger.load(JOB_ID)


async def reads_events(ledger: AzureLedger) -> object:
    return await ledger.events(JOB_ID, 0, 100)


FINISHERS: dict[str, Doing] = {
    "a reader": loads,
    "the scanner": looks,
    "the next writer": applies(CANCEL),
    "a reader of events": reads_events,
}
MEETINGS = [
    (table, finisher)
    for table in COPIES
    for finisher in FINISHERS
    if table == EVENTS or finisher != "a reader of events"  # who would miss nothing
]


@pytest.mark.parametrize(("table", "finisher"), MEETINGS)
def test_whoever_meets_what_a_dead_writer_left_finishes_it(table: str, finisher: str) -> None:
    async def body(site: Site) -> None:
        await left_behind(site, table, next_step)
        assert await lags(site)
        site.wait(hours=9)
        await site.by_another(FINISHERS[finisher])
        assert await site.open().verify() == []

    run(body)


@pytest.mark.parametrize("table", COPIES)
def test_a_new_job_that_was_not_copied_is_found_by_its_id_and_finished(table: str) -> None:
    async def body(site: Site) -> None:
        creates = submits("one", released=True)
        with pytest.raises(DeadError):
            await creates(site.open(Interrupted(site.store, table, die)))
        assert await lags(site)
        assert await site.by_another(loads) == request("one", released=True).job
        assert await site.open().verify() == []

    run(body)


def test_events_that_were_not_copied_yet_are_read_from_the_job() -> None:
    async def body(site: Site) -> None:
        await left_behind(site, EVENTS, next_step)
        ledger = site.open()
        events = await ledger.events(JOB_ID, 0, 100)
        job = await ledger.load(JOB_ID)
        assert job is not None
        assert [event.seq for event in events] == [*range(1, job.seq + 1)]
        assert [e.seq for e in await site.open().events(JOB_ID, 1, 1)] == [2]

    run(body)


def test_an_entry_that_was_withdrawn_waits_no_more_though_its_writer_died() -> None:
    async def body(site: Site) -> None:
        await left_behind(site, OUTBOX, applies(CANCEL), lived())
        (entry,) = await rows_of(site, OUTBOX)
        assert entry["state"] == "PENDING"
        await site.by_another(loads)
        (entry,) = await rows_of(site, OUTBOX)
        assert entry["state"] == "FAILED_FINAL"

    run(body)


async def rows_of(site: Site, table: str) -> list[Row]:
    return [row async for row in site.store.scan(f"t{table}", None)]


@pytest.mark.parametrize("table", COPIES)
def test_a_save_whose_copies_fail_has_landed_and_the_next_one_brings_them(table: str) -> None:
    async def body(site: Site) -> None:
        await site.by_another(lived(released=False))
        ledger = site.open(Interrupted(site.store, table, fail))
        assert await applies(release_of)(ledger)
        assert await applies(ack_of)(ledger)
        await ledger.close()
        assert await site.open().verify() == []

    run(body)


def test_a_save_waits_until_the_one_before_is_copied() -> None:
    """Otherwise the events and withdrawn entries of that one would be lost with the row that holds them."""

    async def body(site: Site) -> None:
        await left_behind(site, STEPS, next_step)
        store = Interrupted(site.store, STEPS, fail, always=True)
        with pytest.raises(LedgerUnavailableError, match=JOB_ID):
            await applies(CANCEL)(site.open(store))
        job = await site.open().load(JOB_ID)
        assert job is not None
        assert not job.terminal

    run(body)


# -- a late writer ---------------------------------------------------------------------------


async def others_go_on(site: Site) -> None:
    assert await site.by_another(applies(lambda job: ack_of(job, 1)))
    assert await site.by_another(applies(CANCEL))


async def late_writer(
    site: Site, table: str, *, guarded: bool = True
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The copies before and after a writer wakes up that slept while others went on."""
    before: dict[str, Any] = {}

    async def sleep() -> None:
        await others_go_on(site)
        before.update(await copies(site.store))

    await site.by_another(lived(ack_of))
    store = Interrupted(site.store, table, sleep, guarded=guarded)
    await next_step(site.open(store))
    return before, await copies(site.store)


async def copies(store: MemoryTables) -> dict[str, Any]:
    """Without their ETags: an event may be written again as it is."""
    return {
        f"{table} {key}": {name: value for name, value in row.items() if name != ETAG}
        for table in COPIES
        for key, row in store.tables[f"t{table}"].items()
    }


@pytest.mark.parametrize("table", COPIES)
def test_a_late_writer_changes_nothing_that_is_newer(table: str) -> None:
    async def body(site: Site) -> None:
        before, after = await late_writer(site, table)
        assert before == after
        assert await site.open().verify() == []

    run(body)


def test_copies_are_as_old_as_their_job_while_a_writer_is_at_work() -> None:
    """`verify` does not report what is written at this moment."""

    async def body(site: Site) -> None:
        await left_behind(site, STEPS, next_step)
        (job,) = [row for row in await rows_of(site, JOBS) if "state" in row]
        site.clock.moment = job["updated_at"]
        assert await site.open().verify() == []
        assert await lags(site)

    run(body)


# -- with a guard taken out ------------------------------------------------------------------


@pytest.mark.parametrize("table", [OUTBOX, STEPS])
def test_without_its_guard_a_late_writer_goes_backwards(table: str) -> None:
    async def body(site: Site) -> None:
        before, after = await late_writer(site, table, guarded=False)
        assert before != after

    run(body)


async def not_finished(self: SplitTables, glance: Glance) -> None:
    """The scanner leaves it as it is."""


async def not_compared(self: SplitTables, job_id: str, etag: str) -> bool:
    return True


def test_without_the_scanner_what_nobody_reads_stays_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def body(site: Site) -> None:
        await left_behind(site, STEPS, next_step)
        monkeypatch.setattr(SplitTables, "finish", not_finished)
        site.wait(hours=9)
        await site.by_another(looks)
        assert await lags(site)

    run(body)


def test_without_the_wait_for_the_save_before_its_events_are_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def body(site: Site) -> None:
        await left_behind(site, EVENTS, next_step)
        monkeypatch.setattr(SplitTables, "_is_whole", not_compared)
        store = Interrupted(site.store, EVENTS, fail, always=True)
        assert await applies(CANCEL)(site.open(store))
        await site.by_another(loads)
        assert "event_gap" in {drift.kind for drift in await site.open().verify()}

    run(body)
