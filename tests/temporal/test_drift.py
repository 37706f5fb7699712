"""Differences between the ledger and Temporal that were planted are found, and mended where that is right."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from lucius.app.runtime import Runtime
from lucius.app.settings import Settings
from lucius.app.temporal import open_workflows
from lucius.core.effects import SignalWorkflow
from lucius.core.inputs import CancelRequested
from lucius.core.job import Job
from lucius.engine.temporal.drift import WorkflowDrift
from lucius.engine.temporal.workflows import TemporalWorkflows
from tests.temporal.server import TemporalServer
from tests.temporal.test_both_engines import Gated
from tests.temporal.world import closed, ended, envelope, running, settings_of, submitted

pytestmark = pytest.mark.xdist_group("temporal")


async def drift_of(settings: Settings, runtime: Runtime) -> WorkflowDrift:
    return WorkflowDrift(await open_workflows(settings), runtime.ledger)


async def kinds(drift: WorkflowDrift, job_id: str) -> list[str]:
    return [each.kind for each in await drift.found() if each.subject == job_id]


async def found(drift: WorkflowDrift, job_id: str, kind: str) -> None:
    """What a server lists may be a moment behind."""
    for _ in range(600):
        if await kinds(drift, job_id) == [kind]:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"{kind} is not found")


@pytest.fixture
def server() -> object:
    """One of its own: others' workflows would be differences here."""
    server = TemporalServer()
    server.start()
    yield server
    server.remove()


async def test_planted_differences_are_found_and_a_lost_end_is_told_again(
    server: TemporalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await server.client()
    settings, first = settings_of(tmp_path, server), Gated("alpha")
    async with running(settings, [first]) as (runtime, _):
        drift = await drift_of(settings, runtime)
        job_id = await submitted(runtime, envelope())
        await asyncio.wait_for(first.began.wait(), 60)
        assert await drift.found() == []

        async def lost(workflows: object, job: Job, effect: SignalWorkflow) -> None:
            """It counts as delivered, and nobody has heard it."""

        with monkeypatch.context() as patch:
            patch.setattr(TemporalWorkflows, "signal", lost)
            await runtime.engine.apply(job_id, CancelRequested(immediate=True))
            await ended(runtime, job_id)
            await found(drift, job_id, "workflow_running")
        assert await drift.repair() == 1
        assert await closed(client.get_workflow_handle(job_id)) == {"state": "CANCELLED"}


async def test_a_workflow_that_was_terminated_and_one_without_a_job_are_named(
    server: TemporalServer, tmp_path: Path
) -> None:
    client = await server.client()
    settings, first = settings_of(tmp_path, server), Gated("alpha")
    async with running(settings, [first]) as (runtime, _):
        drift = await drift_of(settings, runtime)
        job_id = await submitted(runtime, envelope())
        await asyncio.wait_for(first.began.wait(), 60)
        job = await runtime.engine.job(job_id)
        assert job is not None
        workflows = await open_workflows(
            settings.model_copy(update={"temporal_task_queue": "nobody"})
        )
        await workflows.start(replace(job, plan=replace(job.plan, job_id="job_unknown")))
        await found(drift, "job_unknown", "workflow_without_job")
        await client.get_workflow_handle(job_id).terminate()
        await found(drift, job_id, "workflow_ended")
