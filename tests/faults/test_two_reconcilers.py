"""FM_013: two processes believe that they own the same lane, and move the same job."""

import asyncio

from lucius.core.inputs import ResultReceived, ResultStatus
from lucius.core.job import AbortReason, Job, JobState, StepState
from lucius.core.routing import LANES
from tests.faults.sabotage import no_compare_and_swap
from tests.faults.services import Scribe
from tests.faults.stage import Orchestrator, Stage, staged


async def both_release(stage: Stage) -> Job:
    """Both have read the job, both release its entry, and then both save."""
    await stage.puppet()
    one, other = await stage.orchestrator(), await stage.orchestrator()
    one.outbox.windows.close()
    job_id = await one.submit()
    one.outbox.windows.reopen()
    await other.outbox.ready.recover(range(LANES))
    gates = [process.points.hold("before ledger.save") for process in (one, other)]
    for process, gate in zip((one, other), gates, strict=True):
        process.outbox.releases.pump_all()
        await gate.reached()
    for gate in gates:
        gate.open()
    await asyncio.sleep(5)
    return await stage.job(job_id)


@staged
async def test_fm_013_reproduce_without_compare_and_swap_one_attempt_goes_out_twice(
    stage: Stage,
) -> None:
    with no_compare_and_swap():
        job = await both_release(stage)
    leases = {message.properties["lease_id"] for message in stage.bus.directives(job.job_id)}
    assert len(leases) == 2


@staged
async def test_fm_013_prevent_one_saves_and_the_other_decides_again_and_does_nothing(
    stage: Stage,
) -> None:
    job = await both_release(stage)
    (execution,) = job.steps[0].executions
    (directive,) = stage.bus.directives(job.job_id)
    assert directive.properties["lease_id"] == execution.exec_id
    assert not await stage.ledger.verify()


@staged
async def test_fm_013_prevent_a_lease_that_both_find_expired_ends_once(stage: Stage) -> None:
    puppet = await stage.puppet()
    one, _ = await stage.orchestrator(), await stage.orchestrator()
    job_id = await one.submit()
    await puppet.ack(await puppet.take())
    job = await stage.until(job_id, lambda job: job.steps[0].state is StepState.FAILED_RETRY)
    assert [e.reason for e in job.steps[0].executions] == [AbortReason.LEASE_EXPIRED]
    await puppet.succeed(await puppet.take())
    job = await stage.finished(job_id)
    assert [e.attempt_no for e in job.steps[0].executions] == [1, 2]


@staged
async def test_fm_013_prevent_an_owner_whose_copy_is_old_looks_again_before_it_ticks(
    stage: Stage,
) -> None:
    """A reply that another process took makes the job due earlier than its owner believes."""
    puppet = await stage.puppet()
    owner = await stage.orchestrator()
    job_id = await owner.submit()
    directive = await puppet.take()
    await puppet.ack(directive)
    failed = ResultReceived("ocr", 1, directive["lease_id"], ResultStatus.FAILED_RETRY)
    await stage.bystander().apply(job_id, failed)
    await puppet.succeed(await puppet.take(within=31))
    assert (await stage.finished(job_id)).state is JobState.SUCCEEDED


JOBS = 80


def open_leases(process: Orchestrator) -> int:
    return sum(out for out, *_ in process.outbox.windows.snapshot().values())


@staged
async def test_fm_013_recover_many_jobs_under_two_owners_end_with_one_execution_a_step(
    stage: Stage,
) -> None:
    owners = [await stage.orchestrator(), await stage.orchestrator()]
    for name in ("ocr", "embedding", "sis"):
        await stage.worker(Scribe(name), slots=4)
    jobs = [
        await owners[n % 2].submit("OCR->EMBEDDING->SIS", number=n, tenant_id=f"t{n % 2}")
        for n in range(JOBS)
    ]
    for job_id in jobs:
        job = await stage.finished(job_id)
        assert job.state is JobState.SUCCEEDED
        assert [len(step.executions) for step in job.steps] == [1, 1, 1]
    await asyncio.sleep(62)  # what the other one heard is looked at after a minute
    assert [open_leases(owner) for owner in owners] == [0, 0], "no window stays partly closed"
