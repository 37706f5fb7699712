"""A Temporal server that skips time: leases and backoffs take their minutes, and are over in a moment."""

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from lucius.adapters.buses.memory import MemoryBus
from lucius.adapters.configs.files import FileConfig
from lucius.adapters.ledgers.memory import MemoryLedger
from lucius.app.engine import Outbox
from lucius.core.job import Job
from lucius.core.plan import TEMPORAL
from lucius.engine.admission.ingress import Ingress, IngressPolicy
from lucius.engine.temporal.invoker import Invoker
from lucius.engine.temporal.invoker_client import AskingHere, InvokerAnswer
from lucius.engine.temporal.metrics import TemporalInstruments
from lucius.engine.temporal.worker import Activities
from lucius.engine.temporal.workflow import JobWorkflow
from lucius.engine.temporal.workflows import TemporalPlace, TemporalWorkflows
from lucius.ports.lanes import BOTH_ENGINES
from tests.engine.world import envelope
from tests.temporal.world import closed
from tests.wiring import outbox

SERVER = Path(sys.executable).parent / "temporal-test-server"
QUEUE = "skipping"


class Skipping(AskingHere):
    """The time of the invoker is the server's."""

    def __init__(self, invoker: Invoker, env: WorkflowEnvironment, clock: "Clock") -> None:
        super().__init__(invoker)
        self._env = env
        self._clock = clock

    async def attempt(self, body: Mapping[str, Any]) -> InvokerAnswer | None:
        self._clock.at = await self._env.get_current_time()
        return await super().attempt(body)

    async def timeout(self, body: Mapping[str, Any]) -> InvokerAnswer | None:
        self._clock.at = await self._env.get_current_time()
        return await super().timeout(body)


class Clock:
    def __init__(self, at: datetime) -> None:
        self.at = at

    def now(self) -> datetime:
        return self.at


@asynccontextmanager
async def skipping() -> AsyncIterator[tuple[WorkflowEnvironment, Outbox]]:
    env = await WorkflowEnvironment.start_time_skipping(test_server_existing_path=str(SERVER))
    async with env:
        clock = Clock(await env.get_current_time())
        place = TemporalPlace("", "default", QUEUE)
        parts = outbox(
            MemoryLedger(),
            MemoryBus(),
            Ingress(FileConfig(), IngressPolicy(engine=TEMPORAL)),
            now=clock.now,
            lanes=BOTH_ENGINES,
            workflows=TemporalWorkflows(env.client, place, now=clock.now),
        )
        invoker = Invoker(
            parts.engine,
            parts.dispatcher,
            parts.ticks,
            parts.nudges,
            lanes=BOTH_ENGINES,
            now=clock.now,
        )
        activities = Activities(Skipping(invoker, env, clock), TemporalInstruments()).all
        await parts.reconciler.prepare()
        running = asyncio.create_task(parts.reconciler.run())
        worker = Worker(
            env.client,
            task_queue=QUEUE,
            workflows=[JobWorkflow],
            activities=activities,
            build_id="test",
        )
        try:
            async with worker:
                yield env, parts
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await parts.tasks.close()


async def started(env: WorkflowEnvironment, parts: Outbox) -> str:
    """The workflow is started by the dispatcher; a handle does not wait for that."""
    job_id = (await parts.engine.submit(envelope())).job_id
    job = await parts.engine.job(job_id)
    while job is not None and not any(step.executions for step in job.steps):
        job = await parts.engine.wait(job_id, job.version, 60)
    return job_id


async def result(env: WorkflowEnvironment, parts: Outbox, job_id: str) -> Job:
    """Time is skipped while a result is waited for."""
    run_id = (await env.client.get_workflow_handle(job_id).describe()).run_id
    handle = env.client.get_workflow_handle(job_id, run_id=run_id)
    skipped = env.time_skipping_unlocked()  # type: ignore[attr-defined]
    async with skipped:
        await closed(handle)
    job = await parts.engine.job(job_id)
    assert job is not None
    return job


def waits(job: Job) -> list[timedelta]:
    """Between the begin of one attempt of the first step and that of the next."""
    begun = [execution.leased_at for execution in job.steps[0].executions]
    return [later - earlier for earlier, later in pairwise(begun)]


def about(found: list[timedelta], *minutes: float) -> bool:
    pairs = zip(found, minutes, strict=True)
    return all(0 <= wait.total_seconds() - 60 * least < 30 for wait, least in pairs)
