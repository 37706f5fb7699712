"""Steps, Outbox and Events of the ledger `table` follow the job's row: late at most, and never backwards."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import timedelta
from typing import Any

import pytest

from lucius.adapters.ledgers.azure.copies import Pending, pending_events
from lucius.adapters.ledgers.azure.heads import Glance
from lucius.adapters.ledgers.azure.ledger import AzureLedger
from lucius.adapters.ledgers.azure.split import SplitTables
from lucius.adapters.ledgers.azure.store import ETAG, ROW, Act, Change, Etags, Refused, Row, Store
from lucius.core.effects import Event
from lucius.core.errors import LedgerUnavailableError
from lucius.core.job import Job
from tests.conformance.azure_ledgers import EVENTS, JOBS, LANES, OUTBOX, STEPS, split
from tests.conformance.jobs import ack_of, release_of
from tests.conformance.ledger_registry import Shared
from tests.faults.azure_operations import (
    CANCEL,
    Site,
    applies,
    lived,
    next_step,
    request,
    submits,
)
from tests.faults.azure_operations import Act as Doing
from tests.faults.azure_upkeep import looks
from tests.faults.stopping_store import Clock, DeadError
from tests.memory_tables import MemoryTables

COPIES = [EVENTS, OUTBOX, STEPS]
"""In the order in which they are written."""
JOB_ID = request("one").job.job_id


def apart(store: Store, clock: Clock) -> AzureLedger:
    """Each save is copied at once."""
    return split(store, "t", clock, lag=timedelta())


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
    """Whether the last save has not been copied."""
    (job,) = [row for row in await rows_of(site, JOBS) if "state" in row]
    (head,) = [row for row in await rows_of(site, STEPS) if row[ROW] == "JOB"]
    return bool(head.get("save_id") != job["save_id"])


# -- a writer that died ----------------------------------------------------------------------


async def loads(ledger: AzureLedger) -> object:
    return await ledger.load(JOB_ID)


FINISHERS: dict[str, Doing] = {
    "a reader": loads,
    "the scanner": looks,
    "the next writer": applies(CANCEL),
}


@pytest.mark.parametrize("finisher", FINISHERS)
@pytest.mark.parametrize("table", COPIES)
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
        site.wait(minutes=6)
        assert await site.by_another(loads) == request("one", released=True).job
        assert not await lags(site)
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
        site.wait(minutes=6)
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


async def goes_on_uncopied(site: Site) -> None:
    """A save was not copied, and the next one cannot be either."""
    await left_behind(site, EVENTS, next_step)
    store = Interrupted(site.store, EVENTS, fail, always=True)
    assert await applies(CANCEL)(site.open(store))


def test_a_save_carries_what_the_one_before_has_left_to_be_copied() -> None:
    async def body(site: Site) -> None:
        await goes_on_uncopied(site)
        site.wait(minutes=6)
        await site.by_another(loads)
        assert not await lags(site)
        assert await site.open().verify() == []

    run(body)


def test_what_is_too_much_to_be_carried_is_copied_before_the_next_save(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def body(site: Site) -> None:
        await left_behind(site, EVENTS, next_step)
        monkeypatch.setattr(Pending, "heavy", True)
        store = Interrupted(site.store, EVENTS, fail, always=True)
        with pytest.raises(LedgerUnavailableError, match=JOB_ID):
            await applies(CANCEL)(site.open(store))
        assert await site.by_another(applies(CANCEL))
        (job,) = [row for row in await rows_of(site, JOBS) if "state" in row]
        assert len(pending_events(job)) == 1

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


def test_verify_reports_copies_that_nothing_will_bring_up() -> None:
    """As where someone has deleted the wake-up row. A reader finishes them."""

    async def body(site: Site) -> None:
        await left_behind(site, STEPS, applies(CANCEL))
        site.wait(minutes=6)
        assert "projection_lag" not in await found(site)
        await drop_wakeups(site)
        assert "projection_lag" in await found(site)
        await site.by_another(loads)
        assert "projection_lag" not in await found(site)

    run(body)


async def found(site: Site) -> set[str]:
    return {drift.kind for drift in await site.open().verify()}


async def drop_wakeups(site: Site) -> None:
    for row in await rows_of(site, LANES):
        await site.store.commit(f"t{LANES}", [Change(Act.DELETE, row)])


# -- with a guard taken out ------------------------------------------------------------------


@pytest.mark.parametrize("table", [OUTBOX, STEPS])
def test_without_its_guard_a_late_writer_goes_backwards(table: str) -> None:
    async def body(site: Site) -> None:
        before, after = await late_writer(site, table, guarded=False)
        assert before != after

    run(body)


async def not_finished(self: SplitTables, glance: Glance) -> bool:
    """The scanner leaves it as it is."""
    return True


def not_carried(self: Pending, job: Job, before: object, events: Sequence[Event]) -> Pending:
    return Pending(tuple(events))


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


def test_if_a_save_does_not_carry_them_the_events_of_the_one_before_are_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def body(site: Site) -> None:
        monkeypatch.setattr(Pending, "after", not_carried)
        await goes_on_uncopied(site)
        site.wait(minutes=6)
        await site.by_another(loads)
        assert "event_gap" in {drift.kind for drift in await site.open().verify()}

    run(body)
