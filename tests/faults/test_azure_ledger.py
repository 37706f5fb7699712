"""A writer to an Azure ledger that stops at any of its requests: nothing is lost, doubled, torn or forgotten.

Every operation is stopped at every request that it makes. Others go on meanwhile; then time passes.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import count

import pytest

from lucius.adapters.ledgers.azure import writing
from lucius.adapters.ledgers.azure.heads import Glance
from lucius.adapters.ledgers.azure.ledger import AzureLedger
from lucius.adapters.ledgers.azure.scanning import Scanner
from lucius.adapters.ledgers.azure.single import SingleTable
from lucius.adapters.ledgers.azure.split import SplitTables
from lucius.adapters.ledgers.azure.store import ROW, Store
from lucius.adapters.ledgers.azure.tenants import Tenants
from lucius.adapters.ledgers.azure.wakeups import LaneTable
from lucius.core.errors import LedgerUnavailableError
from lucius.core.job import Job
from lucius.ports.ledger import JobQuery
from tests.conformance.azure_ledgers import LANES as LANES_TABLE
from tests.conformance.azure_ledgers import single, split
from tests.conformance.jobs import at, claim_of
from tests.faults.azure_operations import (
    CREATIONS,
    PREFIX,
    SAVES,
    Operation,
    Site,
    request,
    submitted,
)
from tests.faults.azure_upkeep import UPKEEP, prunes
from tests.faults.stopping_store import Clock, DeadError, Fate, StoppingStore

FAR = at(10**8)


def in_one(store: Store, clock: Clock) -> AzureLedger:
    return single(store, PREFIX, clock)


def apart(store: Store, clock: Clock) -> AzureLedger:
    return split(store, PREFIX, clock)


def apart_at_once(store: Store, clock: Clock) -> AzureLedger:
    return split(store, PREFIX, clock, lag=timedelta())


LAYOUTS = {"ledger": in_one, "table": apart, "table without lag": apart_at_once}


async def stopped(site: Site, operation: Operation, number: int, fate: Fate, rivals: bool) -> bool:
    """Run it with a writer that stops at that request. False: it makes fewer."""
    await operation.before(site)
    before = await versions(site)
    store = StoppingStore(site.store, number, fate)
    writer = site.open(store)
    task = asyncio.ensure_future(operation.act(writer))
    reached = asyncio.ensure_future(store.reached.wait())
    await asyncio.wait({task, reached}, return_when=asyncio.FIRST_COMPLETED)
    if not reached.done():
        reached.cancel()
        await task
        return False
    rival = await site.by_another(operation.rival) if rivals else None
    site.wait(minutes=11)
    await site.by_another(lambda ledger: ledger.due(site.clock(), range(16), 100))
    store.wake_up.set()
    answer = await outcome_of(task)
    if fate in (Fate.RESENT, Fate.UNKNOWN):
        await writer.close()  # it lives on: whatever it means to drop is dropped
    await settle_down(site)
    landed = [each is True for each in (answer, rival)].count(True)
    overtaken = fate is Fate.RESENT and rivals
    await compare(site, operation, before, landed, overtaken or not fate.answered)
    return True


async def outcome_of(task: "asyncio.Future[object]") -> object:
    try:
        return await task
    except (DeadError, LedgerUnavailableError) as error:
        return error


async def settle_down(site: Site) -> None:
    """Every wake-up row comes up, and every ready entry is taken up, by an owner that ends in good order."""
    for hours in (9, 9, 9, 1, 200, 1):
        site.wait(hours=hours)
        await site.by_another(lambda ledger: taken_over(ledger, site.clock()))


async def taken_over(ledger: AzureLedger, now: datetime) -> None:
    await ledger.due(now, range(16), 100)
    for queue in await ledger.ready_queues(range(16)):
        for entry in await ledger.ready(queue.queue_name, queue.lane, queue.tenant_id, 100):
            await ledger.load(entry.job_id)


async def jobs_of(ledger: AzureLedger) -> list[Job]:
    return list((await ledger.list(JobQuery(limit=100))).jobs)


async def versions(site: Site) -> dict[str, int]:
    return {job.job_id: job.version for job in await jobs_of(site.open())}


async def compare(
    site: Site, operation: Operation, before: dict[str, int], landed: int, unheard: bool
) -> None:
    """`unheard`: the writer may not know that its request has landed."""
    ledger = site.open()
    if operation.act is prunes:
        await prunes(ledger)  # the next sweep finishes what one has begun
    assert await ledger.verify() == []
    jobs = await jobs_of(ledger)
    owing = {job.job_id for job in jobs if job.due_at is not None}
    assert {due.job_id for due in await ledger.due(FAR, range(16), 100)} == owing
    table = f"{PREFIX}{LANES_TABLE}"
    rows = [row async for row in site.store.scan(table, None, "WAKE|", "WAKE}")]
    assert len(rows) == len(owing), f"wake-up rows that nobody relies on: {[r[ROW] for r in rows]}"
    if operation in SAVES:
        (job,) = jobs
        moved = job.version - before[job.job_id]
        assert landed <= moved <= landed + unheard, "a save was lost or doubled"
    if operation in CREATIONS:
        assert len([job for job in jobs if job.job_id not in before]) <= 1, "it was doubled"
        await submitted(ledger, request("three"))
        (job,) = [job for job in await jobs_of(ledger) if not job.terminal]
        held = await ledger.claimed(claim_of(1))
        assert held is not None
        assert held.job_id == job.job_id
        assert (await ledger.inflight()).total == 1
        assert await ledger.verify() == []


def run_everywhere(layout: str, operation: Operation, fate: Fate, rivals: bool) -> None:
    for number in count():
        site = Site(LAYOUTS[layout])
        try:
            if not asyncio.run(stopped(site, operation, number, fate, rivals)):
                break
        except AssertionError as error:
            raise AssertionError(f"stopped at request {number}: {error}") from error
    assert number > 0, "it makes no request at all"


@pytest.mark.parametrize("fate", Fate, ids=lambda fate: fate.name.lower())
@pytest.mark.parametrize("operation", [*CREATIONS, *SAVES, *UPKEEP], ids=str)
@pytest.mark.parametrize(
    ("layout", "rivals"),
    [(layout, rivals) for layout in ("ledger", "table") for rivals in (False, True)]
    + [("table without lag", False)],
)
def test_a_writer_that_stops_anywhere_leaves_nothing_undone(
    layout: str, operation: Operation, fate: Fate, rivals: bool
) -> None:
    run_everywhere(layout, operation, fate, rivals)


# -- with a guard taken out ------------------------------------------------------------------


async def not_told(self: object, *args: object) -> None:
    """The lane is told nothing."""


async def not_ended(self: object, *args: object) -> None:
    """The tenant's lists are left as they are."""


async def no_tombstone(self: object, *args: object) -> bool:
    return True


async def no_fence(self: object, glance: Glance, wakeup: str) -> str:
    return glance.etag or ""


def all_of_them(lane: int, rows: Sequence[str], *job: object) -> list[str]:
    """The rows of a refused save go, whether or not the job relies on them."""
    return list(rows)


SABOTAGE = {
    "no wake-up before a save": (LaneTable, "announce", not_told, SAVES[0], Fate.UNHEARD),
    "no wake-up before a claim": (LaneTable, "announce", not_told, CREATIONS[0], Fate.UNSENT),
    "no second look at what has ended": (Scanner, "_ended", no_tombstone, SAVES[3], Fate.UNSENT),
    "no tombstone": (SingleTable, "bury", no_tombstone, CREATIONS[0], Fate.LATE),
    "no fence": (SingleTable, "touch", no_fence, SAVES[0], Fate.LATE),
    "no tombstone in separate tables": (SplitTables, "bury", no_tombstone, CREATIONS[0], Fate.LATE),
    "no fence in separate tables": (SplitTables, "touch", no_fence, SAVES[0], Fate.LATE),
    "no wake-up before a late reply": (SplitTables, "apart", False, SAVES[-2], Fate.UNSENT),
    "no look at what is stored": (writing, "unnamed", all_of_them, SAVES[0], Fate.RESENT),
    "no withdrawal": (Tenants, "withdraw", not_ended, CREATIONS[0], Fate.UNSENT),
}


@pytest.mark.parametrize("guard", SABOTAGE)
def test_without_the_guard_something_is_forgotten(
    guard: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, name, broken, operation, fate = SABOTAGE[guard]
    monkeypatch.setattr(owner, name, broken)
    with pytest.raises(AssertionError, match="stopped at request"):
        layout = "table" if owner is SplitTables else "ledger"
        run_everywhere(layout, operation, fate, rivals=False)
