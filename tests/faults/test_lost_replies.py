"""FM_002 and FM_003: a reply is lost on its way: the ACK, or the RESULT."""

import asyncio

from lucius.core.job import AbortReason, Job, JobState, StepState
from tests.faults.network import kinds
from tests.faults.sabotage import nobody_looks_again_while
from tests.faults.services import LONG, Scribe
from tests.faults.stage import Stage, staged

# -- FM_002 ----------------------------------------------------------------------------------


async def ack_lost_with_its_worker(stage: Stage) -> str:
    """The worker takes the directive; its ACK is lost, and it dies before it can say more."""
    stage.bus.lose = kinds("ACK")
    lucius = await stage.orchestrator()
    worker = await stage.worker(Scribe("ocr", 60))
    job_id = await lucius.submit()
    await asyncio.sleep(5)
    await worker.kill()
    stage.bus.lose = kinds()
    await stage.worker(Scribe())
    return job_id


@staged
async def test_fm_002_reproduce_without_the_ack_clock_the_job_waits_for_ever(stage: Stage) -> None:
    with nobody_looks_again_while(StepState.AWAITING_ACK):
        job_id = await ack_lost_with_its_worker(stage)
        await asyncio.sleep(LONG)
    assert (await stage.step(job_id)).state is StepState.AWAITING_ACK


@staged
async def test_fm_002_prevent_a_missing_ack_ends_the_attempt_and_makes_the_next(
    stage: Stage,
) -> None:
    job = await stage.finished(await ack_lost_with_its_worker(stage), within=120)
    first, second = job.steps[0].executions
    assert job.state is JobState.SUCCEEDED
    assert (first.reason, second.attempt_no) == (AbortReason.ACK_TIMEOUT, 2)


@staged
async def test_fm_002_recover_the_result_proves_the_ack_that_was_lost(stage: Stage) -> None:
    stage.bus.lose = kinds("ACK")
    lucius = await stage.orchestrator()
    scribe = Scribe("ocr", 20)
    await stage.worker(scribe)
    job = await stage.finished(await lucius.submit())
    assert job.state is JobState.SUCCEEDED
    assert scribe.begun == [1]
    assert len(job.steps[0].executions) == 1


# -- FM_003 ----------------------------------------------------------------------------------


async def result_lost(stage: Stage, scribe: Scribe) -> str:
    lucius = await stage.orchestrator()
    stage.bus.lose = kinds("RESULT")
    await stage.worker(scribe)
    job_id = await lucius.submit()
    await asyncio.sleep(60)
    stage.bus.lose = kinds()
    return job_id


def effect_and_result(stage: Stage, job: Job) -> tuple[list[bytes], bytes]:
    return stage.effects(job), stage.workspace.objects[job.final_output["uri"]]


@staged
async def test_fm_003_reproduce_without_the_lease_clock_the_job_waits_for_ever(
    stage: Stage,
) -> None:
    with nobody_looks_again_while(StepState.IN_PROGRESS):
        job_id = await result_lost(stage, Scribe())
        await asyncio.sleep(LONG)
    assert (await stage.step(job_id)).state is StepState.IN_PROGRESS


@staged
async def test_fm_003_prevent_the_lease_runs_out_and_the_work_is_not_done_twice(
    stage: Stage,
) -> None:
    scribe = Scribe()
    job = await stage.finished(await result_lost(stage, scribe))
    assert [e.reason for e in job.steps[0].executions] == [AbortReason.LEASE_EXPIRED, None]
    assert scribe.begun == [1], "the second attempt met the commit record"


@staged
async def test_fm_003_recover_the_second_attempt_reports_the_result_of_the_first(
    stage: Stage,
) -> None:
    job = await stage.finished(await result_lost(stage, Scribe()), within=960)
    assert job.state is JobState.SUCCEEDED
    assert effect_and_result(stage, job) == ([b"by attempt 1"], b"by attempt 1")
