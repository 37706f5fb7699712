"""A service on the kit beside the gateway of a certificate, in virtual time: no sockets, no threads.

Defects are put between the kit and the gateway, so that each test breaks one promise and no other.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple, cast

from lucius.adapters.buses.pull_gateway import BatchedReplies, PullBus
from lucius.adapters.workspaces.local import LocalWorkspace
from lucius.client import ProblemError
from lucius.client.plain import PlainClient
from lucius.dev.certificate.certification import Certification, Grade
from lucius.dev.certificate.checks import CHECKS
from lucius.dev.certificate.exam import ExamGateway, ReplyVerdict
from lucius.dev.certificate.examinee import Examined, Examinee, Folders, Samples
from lucius.platform import FatalError, Output, Records, Replies, Service, ServiceRunner, Task
from lucius.platform.chaos import Chaos
from lucius.platform.records import MemoryRecords
from lucius.ports.bus import Bus
from tests.virtual import VirtualLoop

T = TypeVar("T")
Args = TypeVarTuple("Args")


class InlineLoop(VirtualLoop):
    """What would go to a thread is done at once: a thread does not wait for virtual time."""

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Args], T], *args: *Args
    ) -> asyncio.Future[T]:
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(func(*args))
        except BaseException as error:
            done.set_exception(error)
        return done


class Honest(Service):
    """Keeps the contract."""

    name = "shout"
    step_types = ("SHOUT",)

    async def execute(self, task: Task) -> Output:
        if not isinstance(task.payload, dict):
            raise FatalError("the payload is no object", code="NO_OBJECT")
        text = (await task.latest()).decode()
        await asyncio.sleep(task.payload.get("seconds", 0))
        await task.stage("output.txt", text.upper())
        return Output()


@dataclass(frozen=True)
class Defect:
    """What stands in the place of which part of a service that keeps the contract."""

    service: Callable[[], Service] = Honest
    replies: Callable[[Replies], Replies] = lambda replies: replies
    bus: Callable[[PullBus], Any] = lambda bus: bus
    records: Callable[[], Records] = MemoryRecords
    slots: int = 16
    heeds_stale: bool = True
    samples: Samples = field(default_factory=Samples)
    terminate: Callable[["InProcess"], None] = lambda process: process.drain()


class DirectClient:
    """The client of a worker, without HTTP. A dead one says nothing any more and hears nothing."""

    def __init__(self, gateway: ExamGateway) -> None:
        self._gateway = gateway
        self.dead = False

    async def pull(
        self, service: str, *, limit: int, wait_seconds: float, worker: object
    ) -> Mapping[str, Any]:
        await self._alive()
        found = await self._gateway.pulled(limit, wait_seconds)
        if isinstance(found, ReplyVerdict):
            raise ProblemError(found.status, found.more)
        return {"directives": found}

    async def reply(self, service: str, replies: Sequence[Any]) -> Mapping[str, Any]:
        await self._alive()
        return {"outcomes": self._gateway.replied(replies)}

    async def _alive(self) -> None:
        if self.dead:
            await asyncio.Event().wait()

    async def close(self) -> None: ...


class InProcess:
    """Implements `Examinee`: a process that is a task."""

    def __init__(self, world: "World", gateway: ExamGateway, slow: bool) -> None:
        self._world, self._gateway, self._slow = world, gateway, slow
        self._exit: asyncio.Future[int] | None = None

    async def start(self) -> None:
        self._client = DirectClient(self._gateway)
        self._exit = asyncio.get_running_loop().create_future()
        self.runner = self._world.runner(self._client, self._slow)
        await self.runner.start()

    def terminate(self) -> None:
        self._world.defect.terminate(self)

    def drain(self, after: float = 0) -> None:
        async def drained() -> None:
            await asyncio.sleep(after)
            await self.runner.stop()
            self.exit(0)

        self._draining = asyncio.ensure_future(drained())

    def exit(self, code: int) -> None:
        assert self._exit is not None
        if not self._exit.done():
            self._exit.set_result(code)

    async def kill(self) -> None:
        self._client.dead = True
        tasks = [task for task in (self.runner._receiver, *self.runner._running) if task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.exit(-9)

    async def ended(self) -> int:
        assert self._exit is not None
        return await asyncio.shield(self._exit)

    def log(self) -> str:
        return ""


class World:
    """Implements `Starter`."""

    alone = True

    def __init__(self, folder: Path, defect: Defect) -> None:
        self.defect = defect
        self.folders = Folders(folder)
        self.delays = defect.samples.slow is None
        self._workspace = LocalWorkspace(
            self.folders.workspace,
            readable=[self.folders.input],
            writable=[self.folders.output],
        )

    def make(self, gateway: ExamGateway, *, slow: bool) -> Examinee:
        return InProcess(self, gateway, slow)

    def runner(self, client: DirectClient, slow: bool) -> ServiceRunner:
        made, service = cast(PlainClient, client), self.defect.service()

        def stale(lease_id: str) -> None:
            if self.defect.heeds_stale:
                runner.end_lease(lease_id)

        bus = PullBus(made, service.name, usable=lambda body: None, refused=lambda error: None)
        runner = ServiceRunner(
            service,
            cast(Bus, self.defect.bus(bus)),
            self._workspace,
            slots=self.defect.slots,
            grace=timedelta(seconds=1),
            records=self.defect.records(),
            replies=self.defect.replies(BatchedReplies(made, service.name, stale)),
            chaos=Chaos(delay=timedelta(seconds=4.5)) if slow else None,
        )
        return runner


async def found(folder: Path, defect: Defect, *names: str) -> dict[str, Grade]:
    world = World(folder, defect)
    checks = [check for check in CHECKS if not names or check.name in names]
    certification = Certification(Examined("shout", "SHOUT"), defect.samples, world.folders, world)
    return {finding.check.name: finding for finding in await certification.run(checks)}
