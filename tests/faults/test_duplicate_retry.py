"""FM_001: a lease runs out while its worker still works, and a second worker runs the same step."""

from lucius.core.job import ExecutionState, Job, JobState
from lucius.platform import Commits
from tests.faults.network import kinds
from tests.faults.services import NoCommitRecord, Scribe
from tests.faults.stage import Stage, staged


async def both_work(stage: Stage, commits: type[Commits]) -> Job:
    """A needs 1,000 s and its heartbeats are lost; B takes the second attempt, and A goes on."""
    stage.bus.lose = kinds("HEARTBEAT")
    lucius = await stage.orchestrator()
    await stage.worker(Scribe("ocr", 1000), slots=1, commits=commits)
    job_id = await lucius.submit()
    await stage.until(job_id, lambda job: job.steps[0].used == 1)
    await stage.worker(Scribe("ocr", 20), slots=1, commits=commits)
    job = await stage.finished(job_id)
    await stage.until(job_id, lambda job: job.noted > 0)
    return job


@staged
async def test_fm_001_reproduce_without_the_commit_record_both_apply_their_effect(
    stage: Stage,
) -> None:
    job = await both_work(stage, NoCommitRecord)
    assert stage.effects(job) == [b"by attempt 2", b"by attempt 1"]


@staged
async def test_fm_001_prevent_the_second_to_commit_finds_the_record_and_applies_nothing(
    stage: Stage,
) -> None:
    job = await both_work(stage, Commits)
    assert stage.effects(job) == [b"by attempt 2"]


@staged
async def test_fm_001_recover_the_job_succeeds_with_one_committed_execution(stage: Stage) -> None:
    job = await both_work(stage, Commits)
    assert job.state is JobState.SUCCEEDED
    states = [execution.state for execution in job.steps[0].executions]
    assert states == [ExecutionState.ABORTED, ExecutionState.DONE]
    assert await stage.outcomes(job.job_id) == ["late"], "what A says then is only recorded"
