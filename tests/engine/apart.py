"""Processes apart in virtual time: orchestrators without lanes and owners that share them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from lucius.adapters.buses.memory import MemoryBus
from lucius.adapters.configs.files import FileConfig
from lucius.adapters.ledgers.memory import MemoryLeases, MemoryLedger
from lucius.adapters.workspaces.memory import MemoryWorkspace
from lucius.app.engine import Outbox
from lucius.app.services import runners_of
from lucius.core.job import Job
from lucius.engine.admission.ingress import Ingress, IngressPolicy
from lucius.engine.dispatcher import Decorate
from lucius.engine.ownership import LeasedLanes
from lucius.platform import Service, ServiceRunner
from lucius.ports.leases import LeaseStore
from lucius.ports.ledger import Ledger
from tests.engine.world import InOrder, envelope
from tests.virtual import VirtualLoop
from tests.wiring import outbox

LOOK = timedelta(seconds=1)


class Broker(InOrder):
    """It outlives every process of LUCIUS."""

    volatile = False


@dataclass
class Process:
    """One process. Killed, it says nothing to anyone and gives nothing back."""

    name: str
    lanes: LeasedLanes
    parts: Outbox
    task: asyncio.Task[None] | None = None

    @property
    def owned(self) -> frozenset[int]:
        return self.lanes.owned

    async def kill(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
        await self.parts.tasks.close()

    async def stop(self) -> None:
        await self.lanes.give_back()
        await self.kill()


@dataclass
class Apart:
    loop: VirtualLoop
    ledger: Ledger = field(default_factory=MemoryLedger)
    bus: MemoryBus = field(default_factory=Broker)
    leases: LeaseStore = field(default_factory=MemoryLeases)
    services: list[Service] = field(default_factory=list)
    slots: int = 25
    decorate: Decorate = lambda body: body
    workspace: MemoryWorkspace = field(default_factory=MemoryWorkspace)
    processes: list[Process] = field(default_factory=list)
    runners: list[ServiceRunner] = field(default_factory=list)

    def _process(self, name: str, *, takes: bool) -> Process:
        lanes = LeasedLanes(self.leases, name, clock=self.loop.time, takes=takes)
        ingress = Ingress(FileConfig(), IngressPolicy())
        parts = outbox(
            self.ledger,
            self.bus,
            ingress,
            now=self.loop.now,
            lanes=lanes,
            look=LOOK,
            decorate=self.decorate,
        )
        process = Process(name, lanes, parts)
        self.processes.append(process)
        return process

    async def orchestrator(self, name: str) -> Process:
        process = self._process(name, takes=False)
        process.task = asyncio.create_task(process.parts.nudges.run())
        return process

    async def owner(self, name: str) -> Process:
        process = self._process(name, takes=True)
        await process.parts.reconciler.prepare()
        process.task = asyncio.create_task(process.parts.reconciler.run())
        return process

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Apart"]:
        for service in self.services:
            self.runners += runners_of(
                service, self.bus, self.workspace, topology="shared", slots=self.slots
            )
        for runner in self.runners:
            await runner.start()
        try:
            yield self
        finally:
            for runner in self.runners:
                await runner.stop()
            for process in self.processes:
                await process.kill()

    async def submit(self, orchestrator: Process, **fields: Any) -> str:
        return (await orchestrator.parts.engine.submit(envelope(**fields))).job_id

    async def ended(self, process: Process, job_id: str, within: float = 1e5) -> Job:
        job = await process.parts.engine.ended(job_id, within)
        assert job is not None
        return job
