"""FM_011 and FM_012: a client cancels or pauses a job at the moment at which it moves on."""

import asyncio
from typing import Any

from lucius.core.inputs import CancelRequested, PauseRequested, ResumeRequested
from lucius.core.job import EntryState, Job, JobState, StepState
from tests.faults.sabotage import no_compare_and_swap
from tests.faults.services import Puppet
from tests.faults.stage import Orchestrator, Stage, staged

# -- FM_011 ----------------------------------------------------------------------------------


async def cancelled_during_release(stage: Stage) -> Job:
    """The owner of the lane has decided to release; before it saves, another process cancels."""
    lucius = await stage.orchestrator()
    await stage.puppet()
    lucius.outbox.windows.close()
    job_id = await lucius.submit()
    await stage.asked(job_id)
    gate = lucius.points.hold("before ledger.save")
    lucius.outbox.windows.reopen()
    lucius.outbox.releases.pump_all()
    await gate.reached()
    cancelled = await stage.bystander().apply(job_id, CancelRequested())
    assert cancelled is not None
    assert cancelled.job.state is JobState.CANCELLED
    gate.open()
    await asyncio.sleep(60)
    return await stage.job(job_id)


@staged
async def test_fm_011_reproduce_without_compare_and_swap_a_cancelled_job_is_released(
    stage: Stage,
) -> None:
    with no_compare_and_swap():
        job = await cancelled_during_release(stage)
    assert job.state is not JobState.CANCELLED, "a terminal state has changed"
    assert len(stage.bus.directives(job.job_id)) == 1


@staged
async def test_fm_011_prevent_the_release_loses_and_is_then_refused(stage: Stage) -> None:
    job = await cancelled_during_release(stage)
    assert (job.state, job.steps[0].attempt_no) == (JobState.CANCELLED, 0)
    assert job.steps[0].entry is not None
    assert job.steps[0].entry.state is EntryState.FAILED_FINAL
    assert not stage.bus.directives(job.job_id)
    assert not await stage.ledger.verify()


async def cancelled_after_release(stage: Stage) -> tuple[Puppet, Any]:
    """The release was first: the step is out, so the job is cancelled once it has ended."""
    lucius = await stage.orchestrator()
    puppet = await stage.puppet()
    job_id = await lucius.submit("OCR->EMBEDDING")
    await stage.until(job_id, lambda job: job.steps[0].out)
    await lucius.engine.apply(job_id, CancelRequested())
    directive = await puppet.take()
    await puppet.ack(directive)
    assert (await stage.job(job_id)).state is JobState.CANCELLING
    return puppet, directive


@staged
async def test_fm_011_recover_the_result_of_what_was_out_completes_the_cancel(
    stage: Stage,
) -> None:
    puppet, directive = await cancelled_after_release(stage)
    await puppet.succeed(directive)
    job = await stage.finished(directive["jobId"], within=1)
    assert job.state is JobState.CANCELLED
    assert [s.state for s in job.steps] == [StepState.SUCCEEDED, StepState.CANCELLED]


@staged
async def test_fm_011_recover_the_silence_of_what_was_out_completes_the_cancel(
    stage: Stage,
) -> None:
    _, directive = await cancelled_after_release(stage)
    job = await stage.finished(directive["jobId"])
    assert job.state is JobState.CANCELLED
    assert len(stage.bus.directives(job.job_id)) == 1, "no second attempt is made"


# -- FM_012 ----------------------------------------------------------------------------------


async def paused_during_result(stage: Stage) -> tuple[Orchestrator, Job]:
    """A result is being saved, with the release of the next step; another process pauses the job."""
    lucius = await stage.orchestrator()
    puppet = await stage.puppet()
    await stage.puppet("embedding")
    job_id = await lucius.submit("OCR->EMBEDDING")
    directive = await puppet.take()
    await puppet.ack(directive)
    gate = lucius.points.hold("before ledger.save")
    await puppet.succeed(directive)
    await gate.reached()
    paused = await stage.bystander().apply(job_id, PauseRequested())
    assert paused is not None
    assert paused.job.state is JobState.PAUSING
    gate.open()
    await asyncio.sleep(60)
    return lucius, await stage.job(job_id)


def asked(stage: Stage, job: Job) -> list[object]:
    return [message.properties["stepId"] for message in stage.bus.directives(job.job_id)]


@staged
async def test_fm_012_reproduce_without_compare_and_swap_the_pause_is_lost(stage: Stage) -> None:
    with no_compare_and_swap():
        _, job = await paused_during_result(stage)
    assert job.state is JobState.IN_PROGRESS
    assert asked(stage, job) == ["ocr", "embedding"]


@staged
async def test_fm_012_prevent_the_result_counts_and_nothing_new_is_released(stage: Stage) -> None:
    _, job = await paused_during_result(stage)
    assert job.state is JobState.PAUSED
    assert [s.state for s in job.steps] == [StepState.SUCCEEDED, StepState.PENDING]
    assert asked(stage, job) == ["ocr"]
    assert not await stage.ledger.verify()


@staged
async def test_fm_012_recover_the_paused_job_resumes_where_it_stopped(stage: Stage) -> None:
    lucius, job = await paused_during_result(stage)
    await lucius.engine.apply(job.job_id, ResumeRequested())
    puppet = await stage.puppet("embedding")
    await puppet.succeed(await puppet.take(within=5))
    job = await stage.finished(job.job_id)
    assert job.state is JobState.SUCCEEDED
    assert asked(stage, job) == ["ocr", "embedding"]
