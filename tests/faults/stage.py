"""The stage of the failure modes: what outlives a process, and processes that can be killed.

Everything runs in virtual time, with the real engine, the real reconciler and the real kit.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

import pytest

from lucius.adapters.configs.files import FileConfig
from lucius.adapters.ledgers.memory import MemoryLedger
from lucius.adapters.workspaces.memory import MemoryWorkspace
from lucius.core.job import Job, Step
from lucius.core.plan import OUTBOX, TEMPORAL
from lucius.core.routing import LANES, reply_topic
from lucius.engine.admission.ingress import Ingress, IngressPolicy
from lucius.engine.outbox import OutboxEngine
from lucius.engine.ownership import EMBEDDED
from lucius.engine.replies import REPLIES
from lucius.engine.temporal.invoker import Invoker
from lucius.engine.temporal.invoker_client import AskingHere
from lucius.platform import Commits, Records, Service, ServiceRunner
from lucius.ports.config import ConfigSource
from lucius.ports.lanes import BOTH_ENGINES, NO_LANES, Lanes
from tests.bus_looks import dead_letters
from tests.engine.world import envelope
from tests.faults.engines import engines_of
from tests.faults.network import Network
from tests.faults.points import Gate, Points, pointed
from tests.faults.services import DAY, TOPICS, Puppet
from tests.temporal.virtual import VirtualServer, VirtualWorker
from tests.virtual import VirtualLoop, run_virtually
from tests.wiring import outbox

PACKAGED = FileConfig()


class Effects(MemoryWorkspace):
    """Keeps every content that an object ever had. Outputs of every scheme are in memory too."""

    def __init__(self) -> None:
        super().__init__("")
        self.history: defaultdict[str, list[bytes]] = defaultdict(list)

    def store(self, uri: str, data: bytes) -> None:
        super().store(uri, data)
        self.history[uri].append(data)


class Orchestrator:
    """Engine, dispatcher and reconciler of one process."""

    def __init__(
        self,
        stage: "Stage",
        *,
        config: ConfigSource = PACKAGED,
        policy: IngressPolicy | None = None,
        now: Callable[[], datetime] | None = None,
        alive: str = EMBEDDED,
    ) -> None:
        self.points = Points()
        self._temporal = stage.temporal
        now = now or stage.loop.now
        self.outbox = outbox(
            pointed(stage.ledger, "ledger", self.points),
            pointed(stage.bus, "bus", self.points),
            Ingress(config, replace(policy or IngressPolicy(), engine=stage.engine)),
            now=now,
            alive=alive,
            lanes=BOTH_ENGINES,
            workflows=stage.temporal.workflows(now),
        )
        self.engine = self.outbox.engine
        self.dispatcher, self.reconciler = self.outbox.dispatcher, self.outbox.reconciler
        self.running: asyncio.Task[None] | None = None
        self._now = now
        self.worker = VirtualWorker(AskingHere(self.invoker()))

    def invoker(self, lanes: Lanes = BOTH_ENGINES) -> Invoker:
        parts = self.outbox
        return Invoker(
            parts.engine,
            parts.dispatcher,
            parts.ticks,
            parts.nudges,
            lanes=lanes,
            now=self._now,
        )

    async def start(self) -> None:
        await self.reconciler.prepare()
        self.running = asyncio.create_task(self.reconciler.run())
        self._temporal.join(self.worker)

    async def submit(self, request_type: str = "OCR", **fields: Any) -> str:
        given = envelope(request_type=request_type, **fields)
        return (await self.engine.submit(given)).job_id

    async def dies(self, gate: Gate) -> None:
        await gate.reached()
        await self.kill()

    async def kill(self) -> None:
        """The process is gone at once: nothing is finished, nothing is said."""
        self.points.dead = True
        self._temporal.leave(self.worker)
        while tasks := [
            *self.outbox.tasks._running,
            *self.worker.tasks,
            *([self.running] if self.running else []),
        ]:
            self.running = None
            await _cancelled(tasks)


class Worker:
    """One process of a service, on the real kit."""

    def __init__(
        self,
        stage: "Stage",
        service: Service,
        *,
        embedded: bool = False,
        worker_id: str | None = None,
        commits: type[Commits] = Commits,
        records: Records | None = None,
        slots: int = 8,
    ) -> None:
        self.points = Points()
        workspace = pointed(stage.workspace, "workspace", self.points)
        self.runner = ServiceRunner(
            service,
            pointed(stage.bus, "bus", self.points),
            workspace,
            slots=slots,
            worker_id=f"{EMBEDDED}{service.name}" if embedded else worker_id,
            topics=TOPICS,
            records=records,
            commits=commits(workspace),
            clock=stage.loop.now,
        )

    async def dies(self, gate: Gate) -> None:
        await gate.reached()
        await self.kill()

    async def kill(self) -> None:
        self.points.dead = True
        receiver = self.runner._receiver
        await _cancelled([*self.runner._running, *([receiver] if receiver else [])])


async def _cancelled(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class Stage:
    """The ledger and the workspace outlive everything; the bus too, unless it is volatile."""

    def __init__(self, loop: VirtualLoop, engine: str = OUTBOX) -> None:
        self.loop = loop
        self.engine = engine
        self.temporal = VirtualServer(loop.now)
        self.ledger = MemoryLedger()
        self.bus = Network()
        self.workspace = Effects()
        self._processes: list[Orchestrator | Worker] = []

    async def orchestrator(self, **options: Any) -> Orchestrator:
        started = Orchestrator(self, **options)
        self._processes.append(started)
        await started.start()
        return started

    def bystander(self) -> OutboxEngine:
        """The engine of a process that owns no lane: it saves decisions, and delivers nothing."""
        return outbox(
            self.ledger, self.bus, Ingress(PACKAGED), now=self.loop.now, lanes=NO_LANES
        ).engine

    async def worker(self, service: Service, **options: Any) -> Worker:
        started = Worker(self, service, **options)
        self._processes.append(started)
        await started.runner.start()
        return started

    async def puppet(self, name: str = "ocr") -> Puppet:
        return await Puppet(self.bus, name).start()

    async def end_everything(self) -> None:
        for process in self._processes:
            await process.kill()
        await self.temporal.close()
        await self.bus.close()

    # -- looking -----------------------------------------------------------------------------

    async def job(self, job_id: str) -> Job:
        job = await self.ledger.load(job_id)
        assert job is not None, "an accepted job is never lost"
        return job

    async def step(self, job_id: str, index: int = 0) -> Step:
        return (await self.job(job_id)).steps[index]

    async def until(
        self, job_id: str, holds: Callable[[Job], bool], within: float = 3 * DAY
    ) -> Job:
        """The job once something holds of it."""
        deadline = self.loop.time() + within
        while not holds(job := await self.job(job_id)):
            assert self.temporal.broken is None, self.temporal.broken
            assert self.loop.time() < deadline, f"after {within} s the job is {job}"
            await asyncio.sleep(0.25)
        return job

    async def asked(self, job_id: str) -> Step:
        """The first step once its directive is wanted: at once, or when its workflow has asked for it."""
        wanted = await self.until(job_id, lambda job: job.steps[0].entry is not None, within=1)
        return wanted.steps[0]

    @property
    def again(self) -> float:
        """Seconds after which what a dead process was about to publish is out again, and not yet overdue."""
        return {OUTBOX: 15.0, TEMPORAL: 35.0}[self.engine]

    async def finished(self, job_id: str, within: float = DAY) -> Job:
        """The job at its end, with a ledger in which nothing contradicts itself."""
        job = await self.until(job_id, lambda job: job.terminal, within)
        assert not await self.ledger.verify()
        return job

    def effects(self, job: Job, step_id: str = "ocr") -> list[bytes]:
        """The different outputs that a step has had, in order."""
        uri = f"{job.plan.workspace_ref}{step_id}/output.txt"
        return list(dict.fromkeys(self.workspace.history[uri]))

    async def outcomes(self, job_id: str) -> list[str]:
        """What the events say of callbacks that were recorded and not applied."""
        events = await self.ledger.events(job_id, 0, 1000)
        return [event.data["outcome"] for event in events if event.data and "outcome" in event.data]

    async def dead_letters(self) -> list[str]:
        """Why replies were set aside."""
        topics = [reply_topic(lane) for lane in range(LANES)]
        return [letter.reason for letter in await dead_letters(self.bus, REPLIES, topics)]


def staged(body: Callable[[Stage], Awaitable[None]]) -> Callable[[str], None]:
    """A test in virtual time, on a stage of its own: on both engines, unless `engines.py` says why not."""

    async def main(loop: VirtualLoop, engine: str) -> None:
        stage = Stage(loop, engine)
        try:
            await body(stage)
        finally:
            await stage.end_everything()

    @pytest.mark.parametrize("engine", engines_of(body.__name__))
    def test(engine: str) -> None:
        run_virtually(partial(main, engine=engine))

    test.__name__ = body.__name__
    test.__doc__ = body.__doc__
    return test
