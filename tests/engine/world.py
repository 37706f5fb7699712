"""A whole LUCIUS in virtual time: memory ledger, memory bus, the real engine and the real kit."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

from lucius.adapters.buses.memory import MemoryBus
from lucius.adapters.configs.files import FileConfig
from lucius.adapters.ledgers.memory import MemoryLedger
from lucius.adapters.workspaces.memory import MemoryWorkspace
from lucius.app.engine import Reconciler
from lucius.app.services import runners_of
from lucius.engine.admission.ingress import Ingress, IngressPolicy
from lucius.engine.loop import Listener, OwedEffects
from lucius.engine.outbox import OutboxEngine
from lucius.engine.ownership import EMBEDDED
from lucius.engine.releases import HeldBack
from lucius.platform import Output, Service, ServiceRunner, Task
from lucius.ports.bus import Message
from lucius.ports.ledger import Ledger
from tests.virtual import VirtualLoop
from tests.wiring import NoneHeldBack, outbox


def envelope(tenant_id: str = "tenant_a", number: int = 0, **fields: Any) -> dict[str, Any]:
    return {
        "tenant_id": tenant_id,
        "request_type": "OCR->EMBEDDING->SIS",
        "input_ref": f"s3://bucket/{tenant_id}/{number}.pdf",
        "output_ref": f"s3://bucket/{tenant_id}/{number}.json",
        "payload": {"prompt_set": ["who?"]},
        "schema_version": "v1",
        **fields,
    }


class Timed(Service):
    """Takes `seconds` of virtual time for a step on average, half as much to half as much again."""

    commit = False

    def __init__(self, name: str, seconds: float) -> None:
        self.name = name
        self.step_types = (name.upper(),)
        self.seconds = seconds
        self.executed = 0
        self._random = Random(name)

    async def execute(self, task: Task) -> Output:
        self.executed += 1
        if self.seconds:
            await asyncio.sleep(self.seconds * self._random.uniform(0.5, 1.5))
        return Output({"uri": f"mem://out/{task.job_id}/{self.name}"})


class InOrder(MemoryBus):
    """Tenants take no turns on a topic, as on most brokers: the window alone keeps the queue short."""

    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        nobodys = [
            Message(m.message_id, m.body, {**m.properties, "tenant_id": ""}) for m in messages
        ]
        await super().publish(topic, nobodys)


@dataclass
class World:
    loop: VirtualLoop
    ledger: Ledger = field(default_factory=MemoryLedger)
    bus: MemoryBus = field(default_factory=MemoryBus)
    workspace: MemoryWorkspace = field(default_factory=MemoryWorkspace)
    services: list[Service] = field(default_factory=list)
    slots: int = 25
    policy: IngressPolicy = field(default_factory=IngressPolicy)
    listeners: Sequence[Listener] = ()
    owed: OwedEffects = field(default_factory=OwedEffects)
    held_back: HeldBack = field(default_factory=NoneHeldBack)
    engine: OutboxEngine = field(init=False)
    reconciler: Reconciler = field(init=False)
    runners: list[ServiceRunner] = field(default_factory=list)

    def __post_init__(self) -> None:
        config = FileConfig()
        ingress = Ingress(config, self.policy)
        self.outbox = outbox(
            self.ledger,
            self.bus,
            ingress,
            now=self.loop.now,
            listeners=self.listeners,
            owed=self.owed,
            held_back=self.held_back,
        )
        self.engine = self.outbox.engine
        self.dispatcher, self.reconciler = self.outbox.dispatcher, self.outbox.reconciler

    @asynccontextmanager
    async def running(self) -> AsyncIterator["World"]:
        await self.reconciler.prepare()
        tasks = [asyncio.create_task(self.reconciler.run())]
        for service in self.services:
            self.runners += runners_of(
                service,
                self.bus,
                self.workspace,
                topology=self.policy.topology,
                slots=self.slots,
                worker_id=f"{EMBEDDED}{service.name}",
            )
        for runner in self.runners:
            await runner.start()
        try:
            yield self
        finally:
            for runner in self.runners:
                await runner.stop()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.outbox.tasks.close()

    async def submit(self, **fields: Any) -> str:
        return (await self.engine.submit(envelope(**fields))).job_id

    async def finished(self, job_id: str) -> Mapping[str, Any]:
        job = await self.engine.job(job_id)
        while job is not None and not job.terminal:
            job = await self.engine.wait(job_id, job.version, 1e6)
        assert job is not None
        return {"state": job.state, "job": job, "seconds": self._seconds(job)}

    def _seconds(self, job: Any) -> float:
        return float((job.completed_at - job.plan.accepted_at).total_seconds())
