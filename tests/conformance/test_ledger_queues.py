"""What is due and what is ready: found in order, by lane, and gone when it no longer holds."""

from dataclasses import replace

import pytest

from lucius.core.errors import LedgerTooNewError
from lucius.core.inputs import (
    CancelRequested,
    PauseRequested,
    PublishRefused,
    ResumeRequested,
    Ticked,
)
from lucius.core.job import Fault, Job
from lucius.core.plan import StepPlan
from lucius.ports.ledger import DueJob, ReadyQueue
from tests.conformance.jobs import ack_of, at, life_of, make, release_of
from tests.conformance.ledger_registry import ADAPTERS, DURABLE, LANES, Harness
from tests.conformance.on_every import on_every

FAR = at(10**8)
SIDE_BY_SIDE = (StepPlan("left", "OCR", "left", 0), StepPlan("right", "OCR", "right", 0))


async def ready_ids(on: Harness, job: Job, service: str = "ocr-service") -> list[str]:
    lane = job.plan.routing.lane
    entries = await on.ledger.ready(service, lane, job.tenant_id, 100)
    assert [entry.position for entry in entries] == sorted(entry.position for entry in entries)
    return [entry.job_id for entry in entries]


# -- due -------------------------------------------------------------------------------------


@on_every(ADAPTERS)
async def test_due_jobs_come_earliest_first_and_never_too_early(on: Harness) -> None:
    jobs = [await on.create(make(n, released=True, now=at(n))) for n in (5, 3, 4, 1, 2)]
    expected = sorted(((job.due_at, job.job_id) for job in jobs), key=str)
    found = await on.ledger.due(FAR, LANES, 100)
    assert [(due.due_at, due.job_id) for due in found] == expected
    assert await on.ledger.due(FAR, LANES, 2) == [DueJob(j, d) for d, j in expected[:2] if d]
    first = expected[0][0]
    assert first is not None
    assert await on.ledger.next_due(LANES) == first
    assert len(await on.ledger.due(first, LANES, 100)) == 1
    assert await on.ledger.due(at(0), LANES, 100) == []


@on_every(ADAPTERS)
async def test_due_looks_at_the_lanes_it_is_asked_for(on: Harness) -> None:
    jobs = [await on.create(make(n, f"tenant-{n}", now=at(n))) for n in range(12)]
    lanes = {job.plan.routing.lane for job in jobs}
    assert len(lanes) > 3
    for lane in LANES:
        mine = [job for job in jobs if job.plan.routing.lane == lane]
        found = await on.ledger.due(FAR, [lane], 100)
        assert {due.job_id for due in found} == {job.job_id for job in mine}
        earliest = min((job.due_at for job in mine if job.due_at), default=None)
        assert await on.ledger.next_due([lane]) == earliest
    assert await on.ledger.due(FAR, [], 100) == []
    assert await on.ledger.next_due([]) is None


@on_every(ADAPTERS)
async def test_a_job_is_due_at_its_newest_moment_only(on: Harness) -> None:
    made = make(1, released=True)
    await on.create(made)
    for decision in life_of(made.job):
        job = await on.save(decision)
        found = await on.ledger.due(FAR, LANES, 100)
        out = any(step.out for step in job.steps)
        assert [(due.job_id, due.due_at) for due in found] == (
            [(job.job_id, job.due_at)] if job.due_at else []
        )
        assert found == [] or found[0].out or not out
    assert await on.ledger.next_due(LANES) is None


@on_every(ADAPTERS)
async def test_due_jobs_are_read_in_pages(on: Harness) -> None:
    """Also where many are due at one moment, and where the last one of a page has moved since."""
    jobs = [
        await on.create(make(n, f"tenant-{n}", released=True, now=at(n // 4))) for n in range(12)
    ]
    read, page = list[DueJob](), await on.ledger.due(FAR, LANES, 5)
    while page:
        read += page
        page = await on.ledger.due(FAR, LANES, 5, page[-1])
    assert sorted(due.job_id for due in read) == sorted(job.job_id for job in jobs)
    assert [due.due_at for due in read] == sorted(due.due_at for due in read)
    by_id = {job.job_id: job for job in jobs}
    await on.apply(by_id[read[4].job_id], CancelRequested(immediate=True))
    left = await on.ledger.due(FAR, LANES, 100, read[4])
    assert left == read[5:]


@on_every(ADAPTERS)
async def test_a_paused_job_is_due_and_has_nothing_out(on: Harness) -> None:
    paused = await on.apply(await on.create(make(1)), PauseRequested())
    (due,) = await on.ledger.due(FAR, LANES, 9)
    assert (due.job_id, due.out) == (paused.job_id, False)


@on_every(ADAPTERS)
async def test_a_job_that_has_ended_is_due_while_it_owes(on: Harness) -> None:
    made = make(1, callback_urls=("https://client.example/done",))
    ended = await on.apply(await on.create(made), CancelRequested())
    assert ended.terminal
    assert [due.job_id for due in await on.ledger.due(FAR, LANES, 9)] == [ended.job_id]


# -- ready -----------------------------------------------------------------------------------


@on_every(ADAPTERS)
async def test_ready_entries_keep_the_order_in_which_they_came(on: Harness) -> None:
    jobs = [await on.create(make(n)) for n in range(10)]
    lane = jobs[0].plan.routing.lane
    assert await ready_ids(on, jobs[0]) == [job.job_id for job in jobs]
    first = await on.ledger.ready("ocr-service", lane, "tenant_a", 4)
    assert [entry.job_id for entry in first] == [job.job_id for job in jobs[:4]]
    assert {entry.step_id for entry in first} == {"ocr"}


@on_every(ADAPTERS)
async def test_queues_are_apart_by_service_lane_and_tenant(on: Harness) -> None:
    jobs = [await on.create(make(n, f"tenant-{n % 3}")) for n in range(9)]
    other = await on.create(make("sis", "tenant-0", types=("SIS",)))
    queues = await on.ledger.ready_queues(LANES)
    lane = {job.tenant_id: job.plan.routing.lane for job in jobs}
    expected = {ReadyQueue("ocr-service", lane[t], t, 3) for t in lane}
    expected.add(ReadyQueue("sis-service", other.plan.routing.lane, "tenant-0", 1))
    assert set(queues) == expected
    assert await ready_ids(on, other, "sis-service") == [other.job_id]
    only = await on.ledger.ready_queues([lane["tenant-1"]])
    assert {queue.lane for queue in only} == {lane["tenant-1"]}
    assert await on.ledger.ready_queues([]) == []


@on_every(ADAPTERS)
async def test_what_is_released_leaves_its_queue(on: Harness) -> None:
    jobs = [await on.create(make(n)) for n in range(3)]
    await on.apply(jobs[1], release_of(jobs[1]))
    assert await ready_ids(on, jobs[0]) == [jobs[0].job_id, jobs[2].job_id]
    (queue,) = await on.ledger.ready_queues(LANES)
    assert queue.held == 2


@on_every(ADAPTERS)
async def test_pause_and_cancel_withdraw_and_resume_goes_to_the_end(on: Harness) -> None:
    first, second, third = [await on.create(make(n)) for n in range(3)]
    paused = await on.apply(first, PauseRequested())
    await on.apply(second, CancelRequested())
    assert await ready_ids(on, first) == [third.job_id]
    await on.apply(paused, ResumeRequested())
    assert await ready_ids(on, first) == [third.job_id, first.job_id]


@on_every(ADAPTERS)
async def test_an_entry_that_waits_out_a_refusal_is_ready_only_after_it(on: Harness) -> None:
    job = await on.create(make(1, released=True))
    run = job.steps[0].executions[-1]
    fault = Fault("REFUSED", "too large")
    job = await on.apply(job, PublishRefused("ocr", run.attempt_no, run.exec_id, fault))
    assert await ready_ids(on, job) == []
    assert job.due_at is not None
    job = await on.apply(job, Ticked(), job.due_at)
    assert await ready_ids(on, job) == [job.job_id]
    assert await on.ledger.verify() == []


@on_every(ADAPTERS)
async def test_entries_side_by_side_are_queued_and_released_apart(on: Harness) -> None:
    job = await on.create(make(1, steps=SIDE_BY_SIDE))
    assert await ready_ids(on, job, "left") == await ready_ids(on, job, "right") == [job.job_id]
    job = await on.apply(job, release_of(job, 0))
    assert await ready_ids(on, job, "left") == []
    (before,) = await on.ledger.ready("right", job.plan.routing.lane, "tenant_a", 10)
    await on.apply(job, ack_of(job, 0))
    (after,) = await on.ledger.ready("right", job.plan.routing.lane, "tenant_a", 10)
    assert before == after, "a place in the queue is kept"


@on_every(ADAPTERS, DURABLE)
async def test_jobs_of_a_newer_schema_are_left_to_newer_processes(on: Harness) -> None:
    newer, ours = await on.create(make(1)), await on.create(make(2, now=at(1)))
    await on.tamper.mark_newer(newer.job_id)
    ledger = await on.reopen()
    with pytest.raises(LedgerTooNewError, match="99"):
        await ledger.load(newer.job_id)
    assert [due.job_id for due in await ledger.due(FAR, LANES, 1)] == [ours.job_id]
    assert await ledger.next_due(LANES) == ours.due_at
    assert await ready_ids(on, ours) == [ours.job_id]
    stale = replace(newer, version=newer.version + 1)
    assert not await ledger.save(stale, newer.version, ())
