"""FM_021: the process dies, and its bus and its services with it."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import patch

from lucius.core import callbacks
from lucius.core.job import AbortReason, Job, JobState, StepState
from lucius.engine.ownership import Ownership
from tests.faults.network import Network
from tests.faults.services import Scribe
from tests.faults.stage import Orchestrator, Stage, Worker, staged


class Process:
    """Everything in one process on a volatile bus: when it dies, all of that is gone."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.scribe = Scribe("ocr", 60)

    async def start(self, *, serving: bool = True) -> "Process":
        self._stage.bus = Network(volatile=True)
        self.lucius: Orchestrator = await self._stage.orchestrator()
        self.worker: Worker | None = None
        if serving:
            self.worker = await self._stage.worker(self.scribe, embedded=True)
        else:
            await self._stage.puppet()
        return self

    async def kill(self) -> None:
        if self.worker is not None:
            await self.worker.kill()
        await self.lucius.kill()
        await self._stage.bus.close()


def no_notice_of_the_restart() -> Any:
    """A new process counts what was out, and believes that the bus still has it."""

    async def take_up(self: Ownership, job_id: str) -> None:
        job = await self._engine.job(job_id)
        assert job is not None
        self._engine.found(job)

    return patch.object(Ownership, "_take_up", take_up)


def at_work(job: Job, leases: int) -> bool:
    step = job.steps[0]
    return step.state is StepState.IN_PROGRESS and len(step.executions) == leases


async def killed_at_work(stage: Stage, kills: int) -> Job:
    """Each process dies while its service is at work on the step."""
    process = await Process(stage).start()
    job_id = await process.lucius.submit()
    for number in range(kills):
        await stage.until(job_id, partial(at_work, leases=number + 1))
        await asyncio.sleep(1)
        await process.kill()
        process = await Process(stage).start()
    return await stage.finished(job_id)


@staged
async def test_fm_021_reproduce_without_notice_every_kill_uses_an_attempt_until_none_is_left(
    stage: Stage,
) -> None:
    with no_notice_of_the_restart():
        job = await killed_at_work(stage, 3)
    assert job.state is JobState.FAILED_FINAL


@staged
async def test_fm_021_reproduce_when_deaths_are_free_for_ever_a_step_kills_every_process(
    stage: Stage,
) -> None:
    with patch.object(callbacks, "FREE_DEATHS", 1_000_000):
        job = await killed_at_work(stage, 8)
    step = job.steps[0]
    assert (step.used, step.deaths) == (0, 8), "eight deaths, always attempt 1"


@staged
async def test_fm_021_prevent_the_first_death_ends_the_lease_at_once_and_costs_nothing(
    stage: Stage,
) -> None:
    job = await killed_at_work(stage, 1)
    step = job.steps[0]
    assert (job.state, step.used) == (JobState.SUCCEEDED, 0)
    assert {e.attempt_no for e in step.executions} == {1}
    assert [e.reason for e in step.executions[:-1]] == [AbortReason.PROCESS_DIED]
    assert stage.loop.time() < 120, "nobody waited for a lease to run out"


@staged
async def test_fm_021_prevent_from_the_second_death_on_each_uses_an_attempt_until_none_is_left(
    stage: Stage,
) -> None:
    job = await killed_at_work(stage, 4)
    assert job.state is JobState.FAILED_FINAL
    assert [e.attempt_no for e in job.steps[0].executions] == [1, 1, 2, 3]
    assert job.fault is not None
    assert job.fault.code == "PROCESS_DIED"


@staged
async def test_fm_021_recover_after_two_deaths_the_second_attempt_succeeds(stage: Stage) -> None:
    job = await killed_at_work(stage, 2)
    assert (job.state, job.steps[0].attempt_no) == (JobState.SUCCEEDED, 2)


@staged
async def test_fm_021_prevent_a_clean_restart_is_no_death(stage: Stage) -> None:
    """A process that drains gives its leases back before it ends."""
    process = await Process(stage).start()
    job_id = await process.lucius.submit()
    await stage.until(job_id, partial(at_work, leases=1))
    assert process.worker is not None
    await process.worker.runner.stop()
    await process.lucius.outbox.replies.drained()
    await process.kill()
    step = await stage.step(job_id)
    assert (step.returns, step.deaths) == (1, 0)
    await Process(stage).start()
    assert (await stage.finished(job_id)).steps[0].deaths == 0


async def killed_when(stage: Stage, holds: Callable[[Job], bool]) -> tuple[Job, Job]:
    """The process dies when that holds; the job before, and at its end in the next process."""
    process = await Process(stage).start(serving=False)
    job_id = await process.lucius.submit()
    before = await stage.until(job_id, holds)
    await process.kill()
    await Process(stage).start()
    return before, await stage.finished(job_id, within=70)


@staged
async def test_fm_021_recover_what_was_released_is_published_again_as_the_same_attempt(
    stage: Stage,
) -> None:
    before, after = await killed_when(stage, lambda job: job.steps[0].out)
    assert before.steps[0].state is StepState.DISPATCHING
    assert after.state is JobState.SUCCEEDED
    assert [e.exec_id for e in after.steps[0].executions] == [before.steps[0].executions[0].exec_id]


@staged
async def test_fm_021_recover_what_was_sent_is_published_again_as_the_same_attempt(
    stage: Stage,
) -> None:
    before, after = await killed_when(
        stage, lambda job: job.steps[0].state is StepState.AWAITING_ACK
    )
    assert after.state is JobState.SUCCEEDED
    assert [e.exec_id for e in after.steps[0].executions] == [before.steps[0].executions[0].exec_id]


@staged
async def test_fm_021_prevent_the_lease_of_a_service_elsewhere_goes_on(stage: Stage) -> None:
    """It does not live in the process that died: its result still counts, over HTTP."""
    process = await Process(stage).start(serving=False)
    job_id = await process.lucius.submit()
    puppet = await stage.puppet()
    directive = await puppet.take()
    await puppet.ack(directive)
    await process.kill()
    await Process(stage).start(serving=False)
    assert (await stage.step(job_id)).state is StepState.IN_PROGRESS
    again = await stage.puppet()
    await again.succeed(directive)
    job = await stage.finished(job_id, within=5)
    assert len(job.steps[0].executions) == 1
