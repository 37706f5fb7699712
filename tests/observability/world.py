"""A whole LUCIUS in virtual time with its metrics, and ways to read them as a scraper would."""

import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry

from lucius.adapters.configs.files import FileConfig
from lucius.adapters.ledgers.memory import MemoryLedger
from lucius.adapters.workspaces.memory import MemoryWorkspace
from lucius.engine.admission.ingress import Ingress, IngressPolicy
from lucius.platform import Output, Service, ServiceRunner, Task
from lucius.ports.ledger import Ledger
from tests.engine.world import envelope
from tests.faults.network import Network
from tests.faults.services import Puppet
from tests.virtual import VirtualLoop, run_virtually
from tests.wiring import outbox


class Scripted(Service):
    """Does what the test says: `act` may raise, wait, or return."""

    name = "ocr"
    step_types = ("OCR",)
    commit = False

    def __init__(self, act: Callable[[Task], Awaitable[None]] | None = None) -> None:
        self._act = act

    async def execute(self, task: Task) -> Output:
        if self._act is not None:
            await self._act(task)
        return Output({"uri": f"mem://out/{task.job_id}"})


@dataclass
class Watched:
    """Engine, reconciler, one service and the metrics of it all, on a bus that can be made to fail."""

    loop: VirtualLoop
    ledger: Ledger = field(default_factory=MemoryLedger)
    bus: Network = field(default_factory=Network)

    def __post_init__(self) -> None:
        ingress = Ingress(FileConfig(), IngressPolicy())
        self.outbox = outbox(self.ledger, self.bus, ingress, now=self.loop.now)
        self.engine, self.metrics = self.outbox.engine, self.outbox.metrics
        self.registry = CollectorRegistry()
        self.metrics.register(self.registry)
        self.dispatcher, self.reconciler = self.outbox.dispatcher, self.outbox.reconciler
        self._runners: list[ServiceRunner] = []

    async def start(self) -> None:
        await self.reconciler.prepare()
        self.outbox.tasks.spawn(self.reconciler.run())

    async def serve(self, service: Service) -> ServiceRunner:
        runner = ServiceRunner(service, self.bus, MemoryWorkspace(), clock=self.loop.now)
        self._runners.append(runner)
        await runner.start()
        return runner

    async def puppet(self) -> Puppet:
        """A service that the test moves by hand."""
        return await Puppet(self.bus).start()

    async def stop(self) -> None:
        for runner in self._runners:
            await runner.stop()
        await self.outbox.tasks.close()

    async def submit(self, **fields: Any) -> str:
        given = envelope(**{"request_type": "OCR", "payload": {}, **fields})
        return (await self.engine.submit(given)).job_id

    async def finished(self, job_id: str) -> str:
        job = await self.engine.job(job_id)
        while job is not None and not job.terminal:
            job = await self.engine.wait(job_id, job.version, 1e6)
        assert job is not None
        return job.state.value

    async def value(self, name: str, **labels: str) -> float:
        """As a scrape would find it now; 0 if it is not there."""
        await self.metrics.refresh({"ledger": True})
        return self.registry.get_sample_value(name, labels) or 0.0


def watched(body: Callable[[Watched], Awaitable[None]]) -> Callable[[], None]:
    """A test in virtual time, in a world that has been started."""

    async def main(loop: VirtualLoop) -> None:
        world = Watched(loop)
        await world.start()
        try:
            await body(world)
        finally:
            await world.stop()

    def test() -> None:
        run_virtually(main)

    test.__name__, test.__doc__ = body.__name__, body.__doc__
    return test


class Lines(logging.Handler):
    """Every line that would be written, formatted as it would be."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__(logging.DEBUG)
        self.setFormatter(formatter)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@contextmanager
def logged(formatter: logging.Formatter, level: int = logging.DEBUG) -> Iterator[list[str]]:
    handler, root = Lines(formatter), logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(level)
    try:
        yield handler.lines
    finally:
        root.removeHandler(handler)
        root.setLevel(before)
