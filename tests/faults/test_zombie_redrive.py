"""FM_025: a job is ended at once and redriven with a corrected payload; its old worker works on."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest

from lucius.core.inputs import CancelRequested
from lucius.core.job import Job, JobState
from lucius.platform import Commits, Output, Service, Task
from lucius.platform.messages import Directive
from tests.faults.engines import ENGINES
from tests.faults.stage import Orchestrator, Stage, Worker, staged

OLD, NEW = b"from the old payload", b"from the new payload"
WANTED = "s3://bucket/result.txt"


class Copyist(Service):
    """Stages what its payload says; the first execution waits until it is let go."""

    name = "ocr"
    step_types = ("OCR",)

    def __init__(self) -> None:
        self.begun, self.go = asyncio.Event(), asyncio.Event()

    async def execute(self, task: Task) -> Output | None:
        if not self.begun.is_set():
            self.begun.set()
            await self.go.wait()
        await task.stage("output.txt", f"from the {task.payload.get('language', 'old')} payload")
        return None


async def cancelled(stage: Stage, slots: int = 2) -> tuple[Orchestrator, Worker, Copyist, str]:
    """A job that was ended at once, while a worker in another process is busy with it."""
    lucius, zombie = await stage.orchestrator(), Copyist()
    worker = await stage.worker(zombie, slots=slots)
    job_id = await lucius.submit(output_ref=WANTED)
    await zombie.begun.wait()
    await lucius.engine.apply(job_id, CancelRequested(immediate=True))
    return lucius, worker, zombie, job_id


async def redriven(stage: Stage, lucius: Orchestrator, job_id: str) -> Job:
    again = await lucius.engine.redrive(job_id, payload={"language": "new"})
    return await stage.finished(again.job_id)


def contents(stage: Stage, job: Job) -> set[bytes]:
    """What stands at the places of the step: in the workspace, and where the client wants it."""
    places = (f"{job.plan.workspace_ref}ocr/output.txt", WANTED)
    return {stage.workspace.objects[place] for place in places}


@contextmanager
def no_marks() -> Iterator[None]:
    """Sabotage: no job looks whether a redrive has taken its step over."""

    def nowhere(self: Commits, directive: Directive) -> str:
        return f"{directive.workspace}_redrives/no/mark.json"

    with patch.object(Commits, "_later_mark", nowhere):
        yield


async def commits_after_the_redrive(stage: Stage) -> Job:
    lucius, _, zombie, job_id = await cancelled(stage)
    job = await redriven(stage, lucius, job_id)
    zombie.go.set()
    await asyncio.sleep(5)
    return job


@staged
async def test_fm_025_reproduce_without_marks_the_old_output_replaces_the_new_one(
    stage: Stage,
) -> None:
    with no_marks():
        job = await commits_after_the_redrive(stage)
    assert job.state is JobState.SUCCEEDED
    assert contents(stage, job) == {OLD}


@staged
async def test_fm_025_prevent_an_old_worker_commits_nothing_after_the_redrive(
    stage: Stage,
) -> None:
    job = await commits_after_the_redrive(stage)
    assert job.state is JobState.SUCCEEDED
    assert contents(stage, job) == {NEW}
    assert len([uri for uri in stage.workspace.objects if "/_commits/" in uri]) == 1


@pytest.mark.parametrize("place", ["/ocr/output.txt", WANTED])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("engine", ENGINES)
def test_fm_025_prevent_what_was_committed_before_the_redrive_is_not_promoted_after_it(
    engine: str, place: str, when: str
) -> None:
    """The old worker is held at each of its two places, before it fills it and after it has looked."""

    @staged
    async def story(stage: Stage) -> None:
        lucius, worker, zombie, job_id = await cancelled(stage)
        looked = "digest" if place == WANTED else "create"
        point = "before workspace.create" if when == "before" else f"after workspace.{looked}"
        gate = worker.points.hold(point, lambda uri, *_: uri.endswith(place))
        zombie.go.set()
        await gate.reached()
        job = await redriven(stage, lucius, job_id)
        gate.open()
        await asyncio.sleep(5)
        assert contents(stage, job) == {NEW}

    story(engine)


@staged
async def test_fm_025_recover_a_redrive_replaces_what_the_old_worker_had_committed(
    stage: Stage,
) -> None:
    lucius, _, zombie, job_id = await cancelled(stage)
    zombie.go.set()
    await asyncio.sleep(5)
    assert contents(stage, await stage.job(job_id)) == {OLD}
    job = await redriven(stage, lucius, job_id)
    assert job.state is JobState.SUCCEEDED
    assert contents(stage, job) == {NEW}


@staged
async def test_fm_025_recover_the_worker_of_a_redrive_dies_between_its_mark_and_its_promotion(
    stage: Stage,
) -> None:
    lucius, _, zombie, job_id = await cancelled(stage, slots=1)
    second = await stage.worker(released())
    gate = second.points.crash("before workspace.create", lambda uri, *_: uri.endswith(".txt"))
    again = await lucius.engine.redrive(job_id, payload={"language": "new"})
    await second.dies(gate)
    zombie.go.set()
    job = await stage.finished(again.job_id)
    assert contents(stage, job) == {NEW}


def released() -> Copyist:
    """One that waits for nothing."""
    made = Copyist()
    made.begun.set()
    return made
