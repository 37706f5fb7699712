"""The server of `virtual.py` does what a real one does: the same rows, at the same times."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from lucius.app.engine import Outbox
from lucius.core.inputs import AckReceived, CancelRequested
from lucius.core.job import Job, JobState
from lucius.core.plan import TEMPORAL
from lucius.engine.clock import StallWatch
from tests.faults.services import LONG
from tests.faults.stage import Orchestrator, Stage
from tests.temporal.skipping import result, skipping, started
from tests.virtual import VirtualLoop, run_virtually

pytestmark = pytest.mark.xdist_group("temporal")


@pytest.fixture(autouse=True)
def _time_may_jump(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skipped time looks like a clock that was set ahead, which would excuse the silent."""
    monkeypatch.setattr(StallWatch, "deaf_until", lambda watch, observer: None)


Script = Callable[[Outbox, Job], Any]


def lease(job: Job) -> tuple[str, int, str]:
    execution = job.steps[0].executions[-1]
    return "ocr", execution.attempt_no, execution.exec_id


async def silent(parts: Outbox, job: Job) -> None:
    """Nobody says anything: three ACK timeouts, with their backoffs."""


async def falls_silent(parts: Outbox, job: Job) -> None:
    """A lease runs out, and then nobody acknowledges."""
    await parts.engine.apply(job.job_id, AckReceived(*lease(job)))


async def cancelled(parts: Outbox, job: Job) -> None:
    """A signal cuts the wait short."""
    await parts.engine.apply(job.job_id, CancelRequested(immediate=True))


SCRIPTS = (silent, falls_silent, cancelled)


def shape(job: Job) -> list[Any]:
    """The rows, and when each attempt began: half a minute is the tolerance of a busy machine."""
    first = job.steps[0].executions[0].leased_at
    return [job.state, *((s.state, s.used) for s in job.steps)] + [
        (e.attempt_no, e.state, e.reason, minutes(e.leased_at, first))
        for e in job.steps[0].executions
    ]


def minutes(at: datetime, since: datetime) -> int:
    return round((at - since) / timedelta(minutes=1) - 0.25)


async def really(script: Script) -> list[Any]:
    async with skipping() as (env, parts):
        job_id = await started(env, parts)
        job = await parts.engine.job(job_id)
        assert job is not None
        await script(parts, job)
        return shape(await result(env, parts, job_id))


def virtually(script: Script) -> list[Any]:
    async def main(loop: VirtualLoop) -> list[Any]:
        stage = Stage(loop, TEMPORAL)
        lucius = await stage.orchestrator()
        job_id = await lucius.submit("OCR->EMBEDDING->SIS")
        job = await stage.until(job_id, lambda job: bool(job.steps[0].executions))
        await script(lucius.outbox, job)
        job = await stage.finished(job_id)
        await asyncio.sleep(1)
        assert stage.temporal.executions[job_id].result["state"] == job.state
        await stage.end_everything()
        return shape(job)

    return run_virtually(main)


@pytest.mark.parametrize("script", SCRIPTS)
async def test_a_job_goes_the_same_way_at_the_same_times(script: Script) -> None:
    expected = await really(script)
    assert await asyncio.to_thread(virtually, script) == expected


def test_a_worker_that_takes_a_workflow_over_replays_it() -> None:
    """The past of a workflow leads to the same commands in another process."""

    async def main(loop: VirtualLoop) -> None:
        stage = Stage(loop, TEMPORAL)
        first: Orchestrator = await stage.orchestrator()
        puppet = await stage.puppet()
        job_id = await first.submit()
        await puppet.ack(await puppet.take())
        await first.kill()
        await stage.orchestrator()
        await puppet.succeed(await puppet.take(LONG))
        assert (await stage.finished(job_id)).state is JobState.SUCCEEDED
        await asyncio.sleep(1)
        assert stage.temporal.executions[job_id].replays == 1
        await stage.end_everything()

    run_virtually(main)
