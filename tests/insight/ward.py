"""A whole LUCIUS in virtual time with what it knows beside its jobs; faults are injected into its parts."""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from lucius.adapters.buses.memory import MemoryBus
from lucius.adapters.ledgers.memory import MemoryLedger
from lucius.adapters.workspaces.memory import MemoryWorkspace
from lucius.app.operations import insight, listening
from lucius.app.services import runners_of
from lucius.core.errors import BusUnavailableError, LedgerUnavailableError, PublishRefusedError
from lucius.core.inputs import Input
from lucius.core.job import Job
from lucius.core.plan import Sla, StepPlan
from lucius.engine.admission.ingress import Ingress, IngressPolicy
from lucius.engine.ownership import EMBEDDED
from lucius.engine.replies import Guard
from lucius.operations.why import ProcessState
from lucius.platform import FatalError, Output, RetryableError, Service, ServiceRunner, Task
from lucius.ports.bus import Delivery, Message
from lucius.ports.config import Catalog, JobProtocol
from lucius.ports.diagnosis import Diagnosis
from lucius.ports.lanes import ALL_LANES
from lucius.ports.ledger import NO_LIMITS, Inflight, Limits
from lucius.ports.workspace import Unrestored
from tests.virtual import VirtualLoop
from tests.wiring import gateway_on, outbox

SERVICES = ("ocr", "embedding", "sis")


def protocol(name: str, *steps: tuple[str, int]) -> JobProtocol:
    planned = tuple(StepPlan(each, each.upper(), each, stage) for each, stage in steps)
    return JobProtocol(name.lower(), name, planned)


PROTOCOLS = {
    "OCR": protocol("OCR", ("ocr", 1)),
    "ALL": protocol("ALL", ("ocr", 1), ("embedding", 2)),
    "STAGE": protocol("STAGE", ("ocr", 1), ("embedding", 1), ("sis", 2)),
}


class WardConfig:
    pause = timedelta(days=1)

    def __init__(self) -> None:
        self.now = Catalog(PROTOCOLS)

    def catalog(self) -> Catalog:
        return self.now

    async def refresh(self) -> bool:
        return False

    def fault(self) -> str | None:
        return None

    async def close(self) -> None:
        """It holds nothing."""


class Working(Service):
    """Fails jobs as `fails` says, by their tenant; takes `seconds` for each."""

    commit = False

    def __init__(self, name: str, seconds: float = 1.0) -> None:
        self.name = name
        self.step_types = (name.upper(),)
        self.seconds = seconds
        self.fails: dict[str, Exception] = {}
        self.says: str | None = None

    async def execute(self, task: Task) -> Output:
        if self.says is not None:
            task.report(self.says)
        await asyncio.sleep(self.seconds)
        error = self.fails.get(task.tenant_id) or self.fails.get("*")
        if error is not None:
            raise error
        return Output({"uri": f"mem://out/{task.job_id}/{self.name}"})


class WardBus(MemoryBus):
    """`away`: nothing is answered. `refuses`: no directive is taken. `loses`: a tenant that nobody serves."""

    def __init__(self) -> None:
        super().__init__()
        self.away = False
        self.refuses = False
        self.loses: str | None = None

    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        if self.away:
            raise BusUnavailableError("the broker does not answer")
        directive = any(m.properties.get("type") == "DIRECTIVE" for m in messages)
        if self.refuses and directive:
            raise PublishRefusedError("the quota is used up")
        kept = [m for m in messages if m.properties.get("tenant_id") != self.loses]
        await super().publish(topic, kept)

    async def receive(self, *given: Any, **more: Any) -> Sequence[Delivery]:
        if self.away:
            raise BusUnavailableError("the broker does not answer")
        return await super().receive(*given, **more)


class WardLedger(MemoryLedger):
    """`away`: neither written nor asked."""

    def __init__(self) -> None:
        super().__init__()
        self.away = False

    async def save(self, *given: Any) -> bool:
        self._check()
        return await super().save(*given)

    async def inflight(self) -> Inflight:
        self._check()
        return await super().inflight()

    async def check(self) -> None:
        self._check()

    def _check(self) -> None:
        if self.away:
            raise LedgerUnavailableError("the disk is full")


@dataclass
class Ward:
    loop: VirtualLoop
    services: dict[str, Working] = field(default_factory=dict)
    slots: int = 4
    sla: Sla = field(default_factory=Sla)
    subscribed: bool = True
    guard: Guard = lambda body, job_id, received: None
    limits: Limits = NO_LIMITS
    runners: dict[str, ServiceRunner] = field(default_factory=dict)
    troubles: dict[str, str] = field(default_factory=dict)
    tasks: list["asyncio.Task[None]"] = field(default_factory=list)
    unrestored: list[Unrestored] = field(default_factory=list)
    services_down: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ledger, self.bus, self.config = WardLedger(), WardBus(), WardConfig()
        self.clock_back = timedelta()
        self.activity = listening(self.ledger, ALL_LANES, self.now)
        self.outbox = outbox(
            self.ledger,
            self.bus,
            Ingress(self.config, IngressPolicy(sla=self.sla)),
            now=self.now,
            limits=lambda tenant_id: self.limits,
            guard=self.guard,
            listeners=self.activity.listeners,
            held_back=self.activity.paused,
            observers=self.activity.observers,
        )
        self.engine = self.outbox.engine
        self.insight = insight(
            self.activity,
            self.ledger,
            self.outbox,
            lanes=ALL_LANES,
            catalog=self.config.catalog,
            troubles=self._outages,
            process=ProcessState(
                lambda: self.unrestored, lambda: self.services_down, self.config.fault
            ),
            now=self.now,
        )

    def now(self) -> Any:
        return self.loop.now() - self.clock_back

    def _outages(self) -> dict[str, str]:
        on = self.outbox.dispatcher.outage.on or self.outbox.replies.outage.on
        return {"bus": "the bus does not answer"} if on else {}

    @asynccontextmanager
    async def running(self, *names: str) -> AsyncIterator["Ward"]:
        if self.subscribed:
            await gateway_on(self.bus, self.config).prepare()
        await self.outbox.reconciler.prepare()
        self.tasks.append(asyncio.create_task(self.outbox.reconciler.run()))
        for name in names:
            await self.start(name)
        try:
            yield self
        finally:
            self.bus.away = self.ledger.away = False
            for runner in self.runners.values():
                await runner.stop()
            for task in self.tasks:
                task.cancel()
            await asyncio.gather(*self.tasks, return_exceptions=True)
            await self.outbox.tasks.close()

    async def start(self, name: str, seconds: float = 1.0) -> Working:
        service = self.services.setdefault(name, Working(name, seconds))
        (runner,) = runners_of(
            service,
            self.bus,
            MemoryWorkspace(),
            topology="shared",
            slots=self.slots,
            worker_id=f"{EMBEDDED}{name}",
        )
        self.runners[name] = runner
        await runner.start()
        return service

    async def stop(self, name: str) -> None:
        await self.runners.pop(name).stop()

    async def submit(self, kind: str = "OCR", tenant_id: str = "tenant_a", **fields: Any) -> str:
        envelope = {
            "tenant_id": tenant_id,
            "request_type": kind,
            "input_ref": "s3://bucket/in.pdf",
            "output_ref": "s3://bucket/out.json",
            "payload": {},
            "schema_version": "v1",
            "idempotency_key": f"{len(self.ledger.jobs)}",
            **fields,
        }
        return (await self.engine.submit(envelope)).job_id

    async def apply(self, job_id: str, received: Input) -> None:
        assert await self.engine.apply(job_id, received) is not None

    async def job(self, job_id: str) -> Job:
        job = await self.engine.job(job_id)
        assert job is not None
        return job

    async def ended(self, job_id: str) -> Job:
        job = await self.engine.ended(job_id, 1e6)
        assert job is not None
        assert job.terminal
        return job

    async def all_troubles(self) -> dict[str, str]:
        """As the readiness of a process has them."""
        found = {**self._outages(), **self.troubles}
        try:
            await self.ledger.check()
        except LedgerUnavailableError as error:
            found["ledger"] = str(error)
        return found

    async def why(self, job_id: str, *, tenants: Collection[str] | None = None) -> Diagnosis:
        troubles = await self.all_troubles()
        return await self.insight.diagnoser.job(await self.job(job_id), troubles, tenants=tenants)

    async def wrong(self) -> list[str]:
        found = await self.insight.diagnoser.system(await self.all_troubles(), {}, tenants=None)
        return [finding.cause for finding in found]


FATAL = FatalError("page 7 of 9 cannot be read")
LATER = RetryableError("the index did not answer within 30 s")
