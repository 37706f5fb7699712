"""Saves of the ledger `table` are copied later and together: what waits is carried on, and never lost."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

from lucius.adapters.ledgers.azure.copies import CROWD, LAG, MOST, Copy, Late, Pending, Trace
from lucius.adapters.ledgers.azure.ledger import AzureLedger
from lucius.adapters.ledgers.azure.projections import Projections, Tables
from lucius.adapters.ledgers.azure.side_tables import AzureLeases
from lucius.adapters.ledgers.azure.split import SplitTables
from lucius.adapters.ledgers.azure.store import ROW, Row, Store
from lucius.core.decide import decide
from lucius.core.inputs import Ticked
from lucius.core.job import Job
from lucius.engine.ticks import QUIET
from tests.conformance.azure_ledgers import EVENTS, LANES, OUTBOX, STEPS, split
from tests.conformance.jobs import ack_of, at, failure_of, success_of
from tests.engine.apart import Apart
from tests.engine.world import Timed
from tests.faults.azure_operations import (
    CANCEL,
    STEP,
    Site,
    applied,
    applies,
    lived,
    next_step,
    request,
    submits,
)
from tests.faults.stopping_store import Clock
from tests.memory_tables import MemoryTables
from tests.virtual import VirtualLoop, run_virtually

JOB_ID = request("one").job.job_id
COPIES = (STEPS, OUTBOX, EVENTS)


def apart(store: Store, clock: Clock) -> AzureLedger:
    return split(store, "t", clock)


def run(body: Callable[[Site], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(body(Site(apart)))


async def rows_of(site: Site, table: str) -> list[Row]:
    return [row async for row in site.store.scan(f"t{table}", None)]


async def looks(site: Site, owner: AzureLedger, **later: float) -> None:
    """The owner of the lanes looks for what is due, so much later."""
    site.wait(**later)
    await owner.due(site.clock(), [], 100)


def writes(site: Site) -> dict[str, int]:
    return {table: site.store.written[f"t{table}"] for table in COPIES}


async def copied_of(site: Site) -> int:
    """The version that has been copied."""
    (head,) = [row for row in await rows_of(site, STEPS) if row[ROW] == "JOB"]
    return int(head["version"])


# -- together --------------------------------------------------------------------------------


def test_saves_of_a_job_are_copied_together_after_a_while() -> None:
    async def body(site: Site) -> None:
        owner = site.open()
        await lived(ack_of)(owner)
        await next_step(owner)
        before = writes(site)
        await looks(site, owner)
        assert writes(site) == before
        await looks(site, owner, seconds=LAG.total_seconds())
        job = await owner.load(JOB_ID)
        assert job is not None
        assert await copied_of(site) == job.version
        assert len(await rows_of(site, EVENTS)) == job.seq
        assert await owner.verify() == []

    run(body)


def test_jobs_of_one_partition_share_a_request_to_the_outbox() -> None:
    async def body(site: Site) -> None:
        owner, jobs = site.open(), 20
        for key in range(jobs):
            made = request(key, key, released=True)
            await owner.create(made.claim, made.job, made.events)
            assert await applied(owner, key, ack_of)
        before = site.store.requests
        await looks(site, owner, seconds=LAG.total_seconds())
        assert site.store.requests - before == 2 * jobs + 1
        assert len(await rows_of(site, OUTBOX)) == jobs
        assert await owner.verify() == []

    run(body)


def test_what_its_owner_has_saved_is_copied_when_it_ends_in_good_order() -> None:
    async def body(site: Site) -> None:
        await site.by_another(lived(ack_of))
        job = await site.open().load(JOB_ID)
        assert job is not None
        assert await copied_of(site) == job.version

    run(body)


def test_a_reader_writes_nothing_while_copies_may_wait() -> None:
    async def body(site: Site) -> None:
        await lived(ack_of)(site.open())
        before = dict(site.store.written)
        reader = site.open()
        assert await reader.load(JOB_ID) is not None
        assert [event.seq for event in await reader.events(JOB_ID, 0, 2)] == [1, 2]
        await reader.close()
        assert dict(site.store.written) == before

    run(body)


def test_with_a_lag_of_nothing_a_save_copies_at_once() -> None:
    async def body(site: Site) -> None:
        await lived(ack_of)(split(site.store, "t", site.clock, lag=timedelta()))
        job = await site.open().load(JOB_ID)
        assert job is not None
        assert await copied_of(site) == job.version

    run(body)


def test_copies_are_not_late_where_nothing_is_due() -> None:
    """The page of the ledger says how late: the lag, and the time to the next look."""

    async def main(loop: VirtualLoop) -> None:
        tables = MemoryTables()
        ledger = split(tables, "t", loop.now)
        services = [Timed(name, 0) for name in ("ocr", "embedding", "sis")]
        leases = AzureLeases(tables, "shared")
        async with Apart(loop, ledger, leases=leases, services=[*services]).running() as world:
            await world.owner("owner")
            asking = await world.orchestrator("asks")
            job = await world.ended(asking, await world.submit(asking))
            await asyncio.sleep((LAG + QUIET).total_seconds() + 1)
            head = await tables.get(f"t{STEPS}", job.job_id, "JOB")
            assert head is not None
            assert head["version"] == job.version

    run_virtually(main)


async def test_an_older_save_that_is_copied_late_by_the_same_process_replaces_nothing() -> None:
    """Two saves of a job may be copied at the same time, and what is known of its rows is shared."""
    store, made = MemoryTables(), request("one", released=True)
    copies = Projections(store, Tables("jobs", "steps", "outbox", "events"))
    job = made.job
    head = await copies.begin(job.job_id, job.tenant_id, "bucket", job)
    trace = Trace("bucket")
    trace.see(head)
    newer = decide(job, ack_of(job), job.updated_at + timedelta(seconds=1)).job
    for saved in (newer, job):
        await copies.write([Copy(saved, f"save {saved.version}", Pending(), trace)])
    found = await copies.head(job.job_id)
    assert found is not None
    assert found["version"] == newer.version > job.version
    ((_, entry),) = store.tables["outbox"].items()
    assert entry["version"] == newer.version


# -- what waits is carried on ----------------------------------------------------------------


async def by_dead_ones(site: Site) -> Job:
    """Each of three processes moves the job and dies before it copies; a fourth comes up and copies."""
    await lived()(site.open())
    for act in (applies(ack_of), next_step):
        assert await act(site.open())
    owner = site.open()
    await owner.load(JOB_ID)
    await looks(site, owner, seconds=LAG.total_seconds())
    job = await owner.load(JOB_ID)
    assert job is not None
    return job


def test_a_row_carries_what_several_dead_writers_have_not_copied() -> None:
    async def body(site: Site) -> None:
        job = await by_dead_ones(site)
        assert len(await rows_of(site, EVENTS)) == job.seq
        assert await copied_of(site) == job.version
        assert await site.open().verify() == []

    run(body)


async def retried(site: Site) -> list[Row]:
    """The rows of Outbox of a job whose first attempt came and went before anything was copied."""
    owner = site.open()
    await lived(ack_of)(owner)
    assert await applied(owner, "one", retryable)
    job = await owner.load(JOB_ID)
    assert job is not None
    again = decide(job, Ticked(), job.updated_at + timedelta(hours=1))
    assert await owner.save(again.job, job.version, again.events)
    await looks(site, owner, seconds=LAG.total_seconds())
    return await rows_of(site, OUTBOX)


def retryable(job: Job) -> Any:
    return failure_of(job, final=False)


def test_an_entry_that_came_and_went_between_two_copies_has_its_row() -> None:
    async def body(site: Site) -> None:
        (entry,) = await retried(site)
        assert entry["state"] == "SENT"
        assert entry["sent_at"] is not None
        assert await site.open().verify() == []

    run(body)


def test_if_a_row_does_not_carry_entries_that_are_gone_they_have_no_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lucius.adapters.ledgers.azure.copies._left", lambda job, before: ())

    async def body(site: Site) -> None:
        assert await retried(site) == []

    run(body)


# -- a job that has ended --------------------------------------------------------------------


async def ended(site: Site, owner: AzureLedger) -> None:
    await lived(ack_of, types=STEP)(owner)
    assert await applied(owner, "one", success_of)
    await owner._lanes.close()  # what nobody needs is dropped


def test_the_wake_up_row_of_an_ended_job_stays_until_it_has_been_copied() -> None:
    async def body(site: Site) -> None:
        owner = site.open()
        await ended(site, owner)
        assert len(await rows_of(site, LANES)) == 1
        assert await owner.due(at(10**8), range(16), 10) == []
        await looks(site, owner, seconds=LAG.total_seconds())
        await owner._lanes.close()
        assert await rows_of(site, LANES) == []
        assert await owner.verify() == []

    run(body)


def always(self: SplitTables, job_id: str) -> bool:
    return True


def test_if_it_went_before_nobody_would_copy_the_job_of_a_dead_writer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SplitTables, "is_copied", always)

    async def body(site: Site) -> None:
        await ended(site, site.open())
        site.wait(hours=1)
        await site.by_another(lambda ledger: ledger.due(site.clock(), range(16), 10))
        assert "projection_lag" in {drift.kind for drift in await site.open().verify()}

    run(body)


def test_a_late_reply_to_an_ended_job_is_copied_at_once() -> None:
    """Nobody looks at that job again."""

    async def body(site: Site) -> None:
        await site.by_another(lived(ack_of, types=STEP))
        job = await site.open().load(JOB_ID)
        assert job is not None
        late = success_of(job)
        await site.by_another(applies(CANCEL))
        assert await applies(lambda job: late)(site.open())
        assert len(await rows_of(site, EVENTS)) == max(
            [int(row[ROW]) for row in await rows_of(site, EVENTS)]
        )
        site.wait(minutes=6)
        assert await site.open().verify() == []

    run(body)


# -- how many wait ---------------------------------------------------------------------------


def test_the_oldest_of_too_many_are_copied_before_their_time_and_no_more_than_these_wait() -> None:
    clock = Clock(at(0))
    late = Late(clock, LAG)
    for number in range(CROWD + 3):
        late.note(f"job-{number}", None)
    assert [job_id for job_id, _ in late.taken(all_own=False)] == ["job-0", "job-1", "job-2"]
    for number in range(MOST + 5):
        late.note(f"more-{number}", None)
    clock.moment += LAG
    waiting: set[str] = set()
    while taken := late.taken(all_own=False):
        waiting |= {job_id for job_id, _ in taken}
    assert len(waiting) == MOST


def test_a_job_waits_from_its_first_save_on() -> None:
    clock = Clock(at(0))
    late = Late(clock, LAG)
    late.note("job", None)
    clock.moment += LAG / 2
    late.note("job", None)
    clock.moment += LAG / 2
    assert [job_id for job_id, _ in late.taken(all_own=False)] == ["job"]


def test_a_row_says_when_it_carries_too_much() -> None:
    made = request("one")
    few, many = Pending(tuple(made.events)), Pending(tuple(made.events) * 2_000)
    assert not few.heavy
    assert many.heavy


def test_a_new_job_has_the_rows_of_its_steps_though_nothing_has_been_copied() -> None:
    async def body(site: Site) -> None:
        await submits("one")(site.open())
        steps = [row[ROW] for row in await rows_of(site, STEPS)]
        assert steps == ["000|ocr", "001|embedding", "002|sis", "JOB"]
        assert await copied_of(site) == 0
        states = [row.get("state") for row in await rows_of(site, STEPS)]
        assert states == ["DISPATCHING", "PENDING", "PENDING", None]

    run(body)
