"""Every kind of difference between the ledger and Temporal is found; what has one right answer is mended."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest

from lucius.core.effects import SignalWorkflow
from lucius.core.inputs import CancelRequested
from lucius.core.job import Job
from lucius.core.plan import OUTBOX, TEMPORAL
from lucius.engine.temporal.drift import WorkflowDrift
from lucius.engine.temporal.workflows import TemporalWorkflows
from tests.faults.stage import Orchestrator, Stage
from tests.temporal.virtual import Handle
from tests.virtual import VirtualLoop, run_virtually

NAMED = ("workflow_ended", "workflow_without_job", "workflow_of_other_engine")


def signals_are_lost() -> AbstractContextManager[Any]:
    """They count as delivered, and nobody has heard them."""

    async def lost(workflows: object, job: Job, effect: SignalWorkflow) -> None:
        """Nothing."""

    return patch.object(TemporalWorkflows, "signal", lost)


def starts_are_lost() -> AbstractContextManager[Any]:
    async def lost(workflows: object, job: Job) -> None:
        """Nothing."""

    return patch.object(TemporalWorkflows, "start", lost)


async def out(stage: Stage, lucius: Orchestrator) -> str:
    """A job whose first step is with a service, and whose workflow knows."""
    puppet = await stage.puppet()
    job_id = await lucius.submit()
    await puppet.ack(await puppet.take())
    await stage.until(job_id, lambda job: not job.owed)
    return job_id


async def workflow_running(stage: Stage, lucius: Orchestrator) -> str:
    job_id = await out(stage, lucius)
    with signals_are_lost():
        await lucius.engine.apply(job_id, CancelRequested(immediate=True))
        await stage.until(job_id, lambda job: not job.owed)
    return job_id


async def workflow_behind(stage: Stage, lucius: Orchestrator) -> str:
    with signals_are_lost():
        return await out(stage, lucius)


async def workflow_not_started(stage: Stage, lucius: Orchestrator) -> str:
    """Its process has died, and no other has looked yet."""
    with starts_are_lost():
        job_id = await lucius.submit()
        await asyncio.sleep(1)
    await lucius.kill()
    return job_id


async def workflow_missing(stage: Stage, lucius: Orchestrator) -> str:
    """The server was set back to a copy that is older than the job."""
    job_id = await out(stage, lucius)
    await stage.temporal.executions.pop(job_id).close()
    return job_id


async def workflow_ended(stage: Stage, lucius: Orchestrator) -> str:
    job_id = await out(stage, lucius)
    await Handle(stage.temporal, job_id).terminate()
    return job_id


async def workflow_without_job(stage: Stage, lucius: Orchestrator) -> str:
    """The ledger was set back to a copy that is older than the job."""
    job_id = await out(stage, lucius)
    del stage.ledger.jobs[job_id]
    return job_id


async def workflow_of_other_engine(stage: Stage, lucius: Orchestrator) -> str:
    job_id = await out(stage, lucius)
    await stage.temporal.workflows(stage.loop.now).start(await stage.job(job_id))
    return job_id


Plant = Callable[[Stage, Orchestrator], Awaitable[str]]
PLANTS: tuple[Plant, ...] = (
    workflow_running,
    workflow_behind,
    workflow_not_started,
    workflow_missing,
    workflow_ended,
    workflow_without_job,
    workflow_of_other_engine,
)


def name(plant: Plant) -> str:
    return plant.__name__


def drift_of(stage: Stage) -> WorkflowDrift:
    return WorkflowDrift(stage.temporal.workflows(stage.loop.now), stage.ledger)


async def kinds(stage: Stage) -> list[str]:
    return [drift.kind for drift in await drift_of(stage).found()]


@pytest.mark.parametrize("plant", PLANTS, ids=name)
def test_a_difference_that_was_planted_is_found_and_mended_where_that_is_right(
    plant: Plant,
) -> None:
    async def main(loop: VirtualLoop) -> None:
        other = plant is workflow_of_other_engine
        stage = Stage(loop, OUTBOX if other else TEMPORAL)
        lucius = await stage.orchestrator()
        await plant(stage, lucius)
        assert await kinds(stage) == [name(plant)]
        mended = await drift_of(stage).repair()
        assert (mended, await kinds(stage)) == (
            (0, [name(plant)]) if name(plant) in NAMED else (1, [])
        )
        await stage.end_everything()

    run_virtually(main)


def test_the_sweep_asks_only_for_jobs_that_have_not_moved_lately() -> None:
    """A job that moves has a workflow that runs: nothing is asked of the server for it."""

    async def main(loop: VirtualLoop) -> None:
        stage = Stage(loop, TEMPORAL)
        job_id = await workflow_behind(stage, await stage.orchestrator())
        job = await stage.ledger.load(job_id)
        assert job is not None
        moved = job.updated_at
        assert await drift_of(stage).found(moved_before=moved) == []
        later = moved + timedelta(microseconds=1)
        assert [each.kind for each in await drift_of(stage).found(later)] == ["workflow_behind"]
        await stage.end_everything()

    run_virtually(main)


def test_what_is_on_its_way_is_no_difference() -> None:
    """A signal that is owed is no drift, nor is what has come by the time of the second look."""

    async def main(loop: VirtualLoop) -> None:
        stage = Stage(loop, TEMPORAL)
        lucius = await stage.orchestrator()
        job_id = await out(stage, lucius)
        assert await kinds(stage) == []
        stage.temporal.away = True
        await lucius.engine.apply(job_id, CancelRequested(immediate=True))
        stage.temporal.away = False
        assert await kinds(stage) == []
        await stage.end_everything()

    run_virtually(main)
