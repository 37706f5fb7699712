"""FM_021 on a durable bus: the process dies, and its services with it; the bus keeps what it has."""

import asyncio
from functools import partial

from lucius.core.job import AbortReason, Job, JobState, StepState
from lucius.engine.ownership import EMBEDDED
from lucius.ports.bus import Subscription
from tests.bus_looks import backlog
from tests.faults.services import TOPICS, Scribe
from tests.faults.stage import Orchestrator, Stage, Worker, staged


class Process:
    """LUCIUS and a service in one process. With `named`, worker ids name its incarnation."""

    def __init__(self, stage: Stage, incarnation: int, *, named: bool) -> None:
        self._stage = stage
        self._id = f"{EMBEDDED}{incarnation}/" if named else EMBEDDED

    async def orchestrate(self) -> Orchestrator:
        return await self._stage.orchestrator(alive=self._id)

    async def serve(self) -> Worker:
        return await self._stage.worker(Scribe("ocr", 60), worker_id=f"{self._id}ocr")


def state_is(job: Job, state: StepState) -> bool:
    return job.steps[0].state is state


async def killed_at_work(stage: Stage, *, named: bool) -> Job:
    first, second = (Process(stage, number, named=named) for number in (1, 2))
    lucius, worker = await first.orchestrate(), await first.serve()
    job_id = await lucius.submit()
    await stage.until(job_id, partial(state_is, state=StepState.IN_PROGRESS))
    await worker.kill()
    await lucius.kill()
    await second.serve()
    await second.orchestrate()
    return await stage.finished(job_id)


async def killed_before_its_ack_was_read(stage: Stage, *, named: bool) -> Job:
    first, second = (Process(stage, number, named=named) for number in (1, 2))
    lucius = await first.orchestrate()
    await stage.bus.ensure([Subscription(t, "ocr", {"step_type": ("OCR",)}) for t in TOPICS])
    job_id = await lucius.submit()
    await stage.until(job_id, partial(state_is, state=StepState.AWAITING_ACK))
    await lucius.kill()
    worker = await first.serve()
    await asyncio.sleep(1)
    await worker.kill()
    await second.serve()
    await second.orchestrate()
    return await stage.finished(job_id)


@staged
async def test_fm_021_reproduce_without_a_name_the_lease_of_a_dead_service_runs_out(
    stage: Stage,
) -> None:
    await killed_at_work(stage, named=False)
    assert stage.loop.time() > 900


@staged
async def test_fm_021_prevent_the_lease_of_a_service_that_died_with_its_process_ends_at_the_start(
    stage: Stage,
) -> None:
    job = await killed_at_work(stage, named=True)
    assert (job.state, job.steps[0].used) == (JobState.SUCCEEDED, 0)
    assert [e.reason for e in job.steps[0].executions[:-1]] == [AbortReason.PROCESS_DIED]
    assert stage.loop.time() < 120, "nobody waited for a lease to run out"


@staged
async def test_fm_021_reproduce_an_ack_of_a_dead_service_holds_its_step(stage: Stage) -> None:
    await killed_before_its_ack_was_read(stage, named=False)
    assert stage.loop.time() > 900


@staged
async def test_fm_021_prevent_an_ack_that_outlived_its_service_holds_nothing(stage: Stage) -> None:
    job = await killed_before_its_ack_was_read(stage, named=True)
    assert (job.state, job.steps[0].used) == (JobState.SUCCEEDED, 0)
    assert stage.loop.time() < 120


@staged
async def test_what_waits_on_a_durable_bus_is_not_published_again(stage: Stage) -> None:
    first, second = (Process(stage, number, named=True) for number in (1, 2))
    lucius = await first.orchestrate()
    await stage.bus.ensure([Subscription(t, "ocr", {"step_type": ("OCR",)}) for t in TOPICS])
    job_id = await lucius.submit()
    await stage.until(job_id, partial(state_is, state=StepState.AWAITING_ACK))
    await lucius.kill()
    await second.orchestrate()
    assert await backlog(stage.bus, "ocr", TOPICS) == 1
