"""How many requests a three-step job costs on an Azure ledger, wake-ups and their tidying included."""

import asyncio
from dataclasses import replace

import pytest

from lucius.adapters.ledgers.azure.ledger import AzureLedger
from lucius.adapters.ledgers.azure.opening import open_tables
from lucius.adapters.ledgers.azure.scanning import AHEAD
from lucius.adapters.ledgers.azure.store import Store
from lucius.adapters.ledgers.azure.wakeups import LaneTable, new_wakeup
from lucius.adapters.ledgers.stored.json_form import micros
from lucius.core.decide import decide
from lucius.core.job import Job
from lucius.ports.ledger import Created, DueJob
from tests.azurite_server import shared_azurite
from tests.conformance.azure_ledgers import JOBS, LANES, TENANTS, fresh_prefix, single, split
from tests.conformance.jobs import at, life_of, make, release_of
from tests.faults.stopping_store import Clock
from tests.memory_tables import MemoryTables

N = 20
LAYOUTS = {"ledger": single, "table": split}
MOST = {
    ("ledger", 1, 1): 11.5,
    ("ledger", 2, 1): 14.1,
    ("table", 1, 1): 14.5,
    ("table", 2, 1): 18.5,
    ("ledger", 1, N): 9,
    ("ledger", 2, N): 11.5,
    ("table", 1, N): 6,
    ("table", 2, N): 9,
}
"""Requests a job, with so many processes and jobs at a time: the page of the ledger says so."""


async def lived(owner: AzureLedger, job: Job, clock: Clock) -> None:
    """ACK, then RESULT with the next release, to the end; each a second after the other."""
    for decision in life_of(job, (job.updated_at - at(0)).total_seconds()):
        clock.moment = decision.job.updated_at
        assert await owner.save(decision.job, decision.job.version - 1, decision.events)


async def in_one_process(ledger: AzureLedger, number: int, clock: Clock) -> None:
    made = make(number, released=True, now=clock())
    assert await ledger.claimed(made.claim) is None
    assert await ledger.create(made.claim, made.job, made.events) == Created()
    await lived(ledger, made.job, clock)


async def apart(api: AzureLedger, owner: AzureLedger, number: int, clock: Clock) -> None:
    """Whoever takes it in releases nothing; the owner of the lane reads it once, and releases it."""
    made = make(number, now=clock())
    assert await api.claimed(made.claim) is None
    assert await api.create(made.claim, made.job, made.events) == Created()
    job = await owner.load(made.job.job_id)
    assert job is not None
    released = decide(job, release_of(job), clock())
    assert await owner.save(released.job, job.version, released.events)
    await lived(owner, released.job, clock)


async def cost(store: MemoryTables, layout: str, processes: int, at_once: int) -> float:
    """Requests a job: what its copies take is counted, the looks at the lanes are not."""
    clock = Clock(at(0))
    ledgers = [LAYOUTS[layout](store, "t", clock) for _ in range(processes)]

    async def whole(number: int, own: Clock) -> None:
        if processes == 1:
            await in_one_process(ledgers[0], number, own)
        else:
            await apart(ledgers[0], ledgers[1], number, own)
        clock.moment = max(clock.moment, own.moment)
        await ledgers[-1].due(clock(), [], 1)

    await whole(0, clock)
    await ledgers[-1].close()
    store.requests = 0  # a tenant's first job makes it known, and reads its counters
    for first in range(1, N + 1, at_once):
        own = [Clock(clock()) for _ in range(at_once)] if at_once > 1 else [clock]
        await asyncio.gather(*(whole(first + no, each) for no, each in enumerate(own)))
    await ledgers[-1].close()
    return store.requests / N


@pytest.mark.parametrize("at_once", [1, N], ids=["one at a time", "twenty at once"])
@pytest.mark.parametrize("processes", [1, 2], ids=["one process", "processes apart"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_three_step_job_costs_no_more_requests_than_we_say(
    layout: str, processes: int, at_once: int
) -> None:
    requests = asyncio.run(cost(MemoryTables(), layout, processes, at_once))
    most = MOST[layout, processes, at_once]
    assert most - 0.5 <= requests <= most, f"{requests} requests a job"


def test_the_double_counts_what_the_sdk_sends() -> None:
    async def main() -> None:
        tables, prefix, clock = (
            open_tables(shared_azurite().table_connection),
            fresh_prefix(),
            Clock(at(0)),
        )
        for table in (JOBS, TENANTS, LANES):
            await tables.ensure(prefix + table, "LUCIUS_LEDGER_TABLE")
        double, sent = MemoryTables(), tables.instruments.requests.cells
        before = sum(sent.values())
        stores: tuple[Store, Store] = (tables, double)
        for store in stores:
            await in_one_process(single(store, prefix, clock), 1, clock)
        assert sum(sent.values()) - before == double.requests
        await tables.close()

    asyncio.run(main())


@pytest.mark.parametrize("others", [0, 15], ids=["alone", "among empty lanes"])
async def test_paging_through_a_full_lane_reads_each_of_its_rows_about_once(others: int) -> None:
    """A lane that is taken over is read whole, a page at a time. The empty ones are read once."""
    store, rows, page = MemoryTables(), 3000, 500
    ledger, lanes = single(store, "", Clock(at(0))), LaneTable(store, LANES)
    lane = make(0).job.plan.routing.lane
    for number in range(rows):
        job = replace(make(number).job, version=1)
        await lanes.announce(new_wakeup(job, micros(at(60)) + number, "claim", 0), ())
    lanes_read = [lane, *[each for each in range(16) if each != lane][:others]]
    store.requests, found, after = 0, list[DueJob](), None
    while got := await ledger.due(at(10**6), lanes_read, page, after):
        found += got
        after = got[-1]
    assert len({each.job_id for each in found}) == len(found) == rows
    assert store.requests <= 2 * rows / AHEAD + rows / page + 2 + others
