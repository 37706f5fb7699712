"""FM_006: a worker dies after it created the commit record and before its output is promoted."""

from lucius.core.job import Job, JobState
from lucius.platform import Commits
from tests.faults.services import NoCommitRecord, Scribe
from tests.faults.stage import Stage, staged


def promotes(uri: str, data: bytes) -> bool:
    return uri.endswith("/ocr/output.txt")


async def dies_before_promotion(stage: Stage, second: Scribe, commits: type[Commits]) -> Job:
    lucius = await stage.orchestrator()
    worker = await stage.worker(Scribe())
    gate = worker.points.crash("before workspace.create", promotes)
    job_id = await lucius.submit()
    await worker.dies(gate)
    assert not stage.effects(await stage.job(job_id))
    await stage.worker(second, commits=commits)
    return await stage.finished(job_id)


@staged
async def test_fm_006_reproduce_without_meeting_the_record_the_winner_is_replaced(
    stage: Stage,
) -> None:
    second = Scribe()
    job = await dies_before_promotion(stage, second, NoCommitRecord)
    assert second.begun == [2], "what was committed is worked on again"
    assert stage.effects(job) == [b"by attempt 2"]


@staged
async def test_fm_006_prevent_whoever_meets_the_record_executes_nothing(stage: Stage) -> None:
    second = Scribe()
    await dies_before_promotion(stage, second, Commits)
    assert second.begun == []


@staged
async def test_fm_006_recover_the_next_attempt_finishes_the_promotion_and_reports_it(
    stage: Stage,
) -> None:
    job = await dies_before_promotion(stage, Scribe(), Commits)
    assert job.state is JobState.SUCCEEDED
    assert stage.effects(job) == [b"by attempt 1"]
    assert stage.workspace.objects[job.final_output["uri"]] == b"by attempt 1"
