"""Signals to workflows, in virtual time: the newest says all, so what is not urgent waits a moment for it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from lucius.adapters.buses.memory import MemoryBus
from lucius.adapters.configs.files import FileConfig
from lucius.adapters.ledgers.memory import MemoryLedger
from lucius.app.engine import Outbox
from lucius.core.effects import SignalWorkflow
from lucius.core.errors import WorkflowsUnavailableError
from lucius.core.inputs import (
    AckReceived,
    AttemptRequested,
    PauseRequested,
    ResultReceived,
    ResultStatus,
)
from lucius.core.job import Job
from lucius.core.plan import TEMPORAL
from lucius.engine.admission.ingress import Ingress, IngressPolicy
from lucius.ports.lanes import BOTH_ENGINES
from lucius.ports.workflows import Fate
from tests.engine.world import envelope
from tests.virtual import VirtualLoop, run_virtually
from tests.wiring import outbox

LEASE = ("ocr", 1, "lease-1")


class Told:
    """Workflows that only remember what they were told, and when."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.signals: list[tuple[str, float]] = []
        self.started: list[str] = []
        self.away = False

    async def start(self, job: Job) -> None:
        self.started.append(job.job_id)

    async def signal(self, job: Job, effect: SignalWorkflow) -> None:
        if self.away:
            raise WorkflowsUnavailableError("nobody there")
        self.signals.append((effect.signal, self._loop.time()))

    async def running(self) -> AsyncIterator[str]:
        for job_id in list[str]():
            yield job_id

    async def fate(self, job_id: str) -> Fate:
        return Fate.RUNNING

    async def standing(self, job_id: str) -> None:
        return None

    async def check(self) -> None: ...

    async def provision(self) -> list[str]:
        return []

    async def close(self) -> None: ...

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.signals]


@asynccontextmanager
async def one_job(loop: VirtualLoop) -> AsyncIterator[tuple[Outbox, Told, str]]:
    """Its first attempt is out: the test is the workflow and the service."""
    told = Told(loop)
    ingress = Ingress(FileConfig(), IngressPolicy(engine=TEMPORAL))
    parts = outbox(
        MemoryLedger(), MemoryBus(), ingress, now=loop.now, lanes=BOTH_ENGINES, workflows=told
    )
    await parts.reconciler.prepare()
    running = asyncio.create_task(parts.reconciler.run())
    job_id = (await parts.engine.submit(envelope())).job_id
    await parts.engine.apply(job_id, AttemptRequested(*LEASE))
    yield parts, told, job_id
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await parts.tasks.close()


def story(act: Callable[[Outbox, Told, str], Awaitable[None]]) -> None:
    async def main(loop: VirtualLoop) -> None:
        async with one_job(loop) as (parts, told, job_id):
            await act(parts, told, job_id)

    run_virtually(main)


async def owed(parts: Outbox, job_id: str) -> list[str]:
    job = await parts.engine.job(job_id)
    assert job is not None
    return [each.kind for each in job.owed]


@pytest.mark.parametrize(("engine", "often"), [(None, 2), (TEMPORAL, 0)])
def test_only_a_process_that_does_everything_starts_what_it_signals(
    engine: str | None, often: int
) -> None:
    """Workflows are started by orchestrators, not by invokers. It is tried again until one asks."""

    async def main(loop: VirtualLoop) -> None:
        told, ingress = Told(loop), Ingress(FileConfig(), IngressPolicy(engine=TEMPORAL))
        parts = outbox(
            MemoryLedger(),
            MemoryBus(),
            ingress,
            now=loop.now,
            lanes=BOTH_ENGINES,
            workflows=told,
            engine_name=engine,
        )
        await parts.reconciler.prepare()
        running = asyncio.create_task(parts.reconciler.run())
        job_id = (await parts.engine.submit(envelope())).job_id
        await asyncio.sleep(20)
        assert told.started == [job_id] * often
        assert await owed(parts, job_id) == ["start_workflow"]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await parts.tasks.close()

    run_virtually(main)


def test_a_result_that_follows_its_ack_says_both() -> None:
    async def act(parts: Outbox, told: Told, job_id: str) -> None:
        await parts.engine.apply(job_id, AckReceived(*LEASE))
        await asyncio.sleep(0.5)
        await parts.engine.apply(job_id, ResultReceived(*LEASE, ResultStatus.SUCCEEDED, "mem://x"))
        await asyncio.sleep(10)
        assert told.names == ["step_result"]

    story(act)


def test_an_ack_alone_is_told_a_second_later() -> None:
    async def act(parts: Outbox, told: Told, job_id: str) -> None:
        await parts.engine.apply(job_id, AckReceived(*LEASE))
        await asyncio.sleep(10)
        ((name, at),) = told.signals
        assert (name, round(at, 3)) == ("step_ack", 1.0)

    story(act)


def test_orders_are_told_at_once() -> None:
    async def act(parts: Outbox, told: Told, job_id: str) -> None:
        await parts.engine.apply(job_id, PauseRequested())
        await asyncio.sleep(0.01)
        assert told.names == ["pause"]

    story(act)


def test_a_workflow_that_asks_for_what_is_next_has_settled_the_signal_itself() -> None:
    async def act(parts: Outbox, told: Told, job_id: str) -> None:
        done = ResultReceived(*LEASE, ResultStatus.SUCCEEDED, "mem://x")
        await parts.engine.apply(job_id, done)
        await asyncio.sleep(0.1)
        assert (told.names, await owed(parts, job_id)) == (["step_result"], ["signal_workflow"])
        asked = await parts.engine.apply(job_id, AttemptRequested("embedding", 1, "lease-2"))
        assert asked is not None
        assert await owed(parts, job_id) == []
        await asyncio.sleep(0.9)
        job = await parts.engine.job(job_id)
        assert job is not None
        assert job.version == asked.job.version, "no save of its own"

    story(act)


def test_a_signal_after_which_nothing_is_asked_is_settled_a_second_later() -> None:
    async def act(parts: Outbox, told: Told, job_id: str) -> None:
        await parts.engine.apply(job_id, PauseRequested())
        await asyncio.sleep(0.5)
        assert await owed(parts, job_id) == ["signal_workflow"]
        await asyncio.sleep(1)
        assert await owed(parts, job_id) == []
        await asyncio.sleep(60)
        assert told.names == ["pause"]

    story(act)


def test_a_signal_that_cannot_be_delivered_stays_owed_and_is_tried_again() -> None:
    async def act(parts: Outbox, told: Told, job_id: str) -> None:
        told.away = True
        await parts.engine.apply(job_id, PauseRequested())
        await asyncio.sleep(20)
        assert (told.names, await owed(parts, job_id)) == ([], ["signal_workflow"])
        told.away = False
        await asyncio.sleep(60)
        assert (told.names, await owed(parts, job_id)) == (["pause"], [])

    story(act)
