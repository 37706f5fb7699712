"""Crash points of a job on Temporal: whatever is lost, repeated or overtaken, the job ends once and well."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus

from lucius.app.runtime import Runtime
from lucius.app.settings import Settings
from lucius.app.temporal import open_workflows
from lucius.core.inputs import AckReceived, ResultReceived, ResultStatus
from lucius.core.job import Job, JobState
from lucius.engine.temporal.engine import WorkflowStarter, owes_start
from lucius.engine.temporal.invoker import Invoker
from lucius.engine.temporal.invoker_client import AskingHere, InvokerAnswer
from lucius.platform import Service
from lucius.ports.bus import Message
from tests.temporal.server import TemporalServer, shared_server
from tests.temporal.test_both_engines import Gated
from tests.temporal.world import (
    SERVICES,
    Recording,
    Scripted,
    ended,
    envelope,
    running,
    settings_of,
    submitted,
)

pytestmark = pytest.mark.xdist_group("temporal")


def directives(bus: Recording) -> list[tuple[str, int]]:
    sent = (m.body for _, m in bus.published if m.body["type"] == "DIRECTIVE")
    return [(str(body["stepId"]), int(body["attempt_no"])) for body in sent]


ONE_EACH = [("alpha", 1), ("beta", 1), ("gamma", 1)]


async def test_a_reply_that_comes_before_the_publish_has_returned_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = shared_server()
    client = await server.client()
    async with running(settings_of(tmp_path, server), ()) as (runtime, bus):
        publish = bus.publish

        async def answered_first(topic: str, messages: Sequence[Message]) -> None:
            await publish(topic, messages)
            for body in (m.body for m in messages if m.body["type"] == "DIRECTIVE"):
                lease = (str(body["stepId"]), int(body["attempt_no"]), str(body["lease_id"]))
                await runtime.engine.apply(str(body["jobId"]), AckReceived(*lease))
                done = ResultReceived(*lease, ResultStatus.SUCCEEDED, "mem://x")
                await runtime.engine.apply(str(body["jobId"]), done)

        monkeypatch.setattr(bus, "publish", answered_first)
        job_id = await submitted(runtime, envelope())
        assert (await ended(runtime, job_id)).state is JobState.SUCCEEDED
        assert directives(bus) == ONE_EACH
        assert (await client.get_workflow_handle(job_id).result())["state"] == "SUCCEEDED"


class LosingAnswers(AskingHere):
    """Every first answer is lost on its way back, after the invoker has done what was asked."""

    def __init__(self, invoker: Invoker) -> None:
        super().__init__(invoker)
        self._lost: set[str] = set()

    async def attempt(self, body: Mapping[str, Any]) -> InvokerAnswer | None:
        told = await super().attempt(body)
        if body["stepId"] not in self._lost:
            self._lost.add(body["stepId"])
            raise ConnectionError("the answer was lost")
        return told


async def unstarted(folder: Path, settings: Settings) -> str:
    """A job of a process that could not reach Temporal, and is gone."""
    away = settings.model_copy(update={"temporal_address": "127.0.0.1:1"})
    async with running(away, ()) as (runtime, _):
        return await submitted(runtime, envelope())


async def test_a_job_that_was_not_started_is_started_later(tmp_path: Path) -> None:
    server = shared_server()
    await server.client()
    settings = settings_of(tmp_path, server)
    job_id = await unstarted(tmp_path, settings)
    async with running(settings) as (runtime, _):
        assert (await ended(runtime, job_id)).state is JobState.SUCCEEDED


async def test_the_sweep_of_an_orchestrator_starts_what_was_not_started_and_nothing_twice(
    tmp_path: Path,
) -> None:
    server = shared_server()
    client = await server.client()
    settings = settings_of(tmp_path, server)
    job_id = await unstarted(tmp_path, settings)
    away = settings.model_copy(update={"temporal_address": "127.0.0.1:1"})
    async with running(away, ()) as (runtime, _):
        starter = WorkflowStarter(await open_workflows(settings), runtime.ledger, now=runtime.now)
        assert await starter.sweep() == 1
        run_id = (await client.get_workflow_handle(job_id).describe()).run_id
        assert await starter.sweep() == 1, "it is owed until the workflow has asked"
        assert (await client.get_workflow_handle(job_id).describe()).run_id == run_id
    async with running(settings) as (runtime, _):
        job = await ended(runtime, job_id)
        assert job.state is JobState.SUCCEEDED
        assert not owes_start(job)


async def until(runtime: Runtime, job_id: str, holds: Any) -> Job:
    """Ended jobs are not waited for by version: look again."""
    for _ in range(6000):
        job = await runtime.engine.job(job_id)
        assert job is not None
        if holds(job):
            return job
        await asyncio.sleep(0.02)
    raise AssertionError("it does not come to hold")


async def test_a_signal_that_is_lost_is_sent_again(tmp_path: Path) -> None:
    """The Temporal server is killed, the result comes, the server is back on the same file."""
    server = TemporalServer()
    server.start()
    await server.client()
    settings, last = settings_of(tmp_path, server), Gated("gamma")
    services: list[Service] = [*(Scripted(name) for name in SERVICES[:2]), last]
    try:
        async with running(settings, services) as (runtime, _):
            job_id = await submitted(runtime, envelope())
            await asyncio.wait_for(last.began.wait(), 60)
            server.kill()
            last.gate.set()
            job = await ended(runtime, job_id)
            assert [owed.kind for owed in job.owed] == ["signal_workflow"]
            server.start()
            client = await server.client()
            assert (await client.get_workflow_handle(job_id).result())["state"] == "SUCCEEDED"
            await until(runtime, job_id, lambda job: not job.owed)
    finally:
        server.remove()


async def test_a_signal_for_a_workflow_that_has_ended_or_never_was_is_settled(
    tmp_path: Path,
) -> None:
    server = shared_server()
    client = await server.client()
    settings, first = settings_of(tmp_path, server), Gated("alpha")
    async with running(settings, [first]) as (runtime, _):
        job_id = await submitted(runtime, envelope())
        await asyncio.wait_for(first.began.wait(), 60)
        handle = client.get_workflow_handle(job_id)
        await handle.terminate()
        assert (await handle.describe()).status is WorkflowExecutionStatus.TERMINATED
        first.gate.set()
        step_done = partial(until, runtime, job_id)
        await step_done(lambda job: job.steps[0].completed_at is not None and not job.owed)
