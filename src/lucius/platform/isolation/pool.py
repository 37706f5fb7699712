"""The processes of one service: each executes a task at a time, is watched meanwhile, and used again."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Coroutine, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final

from lucius.core.errors import LuciusError
from lucius.core.inputs import ResultStatus
from lucius.core.wire import bounded
from lucius.platform.bodies import within
from lucius.platform.errors import (
    FatalError,
    MemoryLimitError,
    ProcessDiedError,
    RetryableError,
    StepCancelledError,
    StepError,
)
from lucius.platform.isolation.forks import Child, ForkServer, pickled, resident
from lucius.platform.isolation.frames import FrameError, told
from lucius.platform.service import (
    MIB,
    OWN_MEMORY,
    Output,
    Service,
    container_memory,
    cores,
    memory_limit_of,
    slots_of,
)
from lucius.platform.task import Task
from lucius.system.logs import message_fields

log = logging.getLogger("lucius.platform")
LOOK: Final = 0.05
"""Seconds between two looks at the memory of a child."""
TIME_LIMIT: Final = timedelta(minutes=10)
"""For a service that sets none: a process must not compute for ever."""
KEPT_SHARE: Final = 8
"""A child that keeps more than this part of its limit, beyond what it began with, is replaced."""
SERVERS_OWN: Final = ("callback_token", "callback_urls")
"""Of a directive: they speak for the attempt, which the server does."""


class InProcesses:
    """A `Body` over child processes. There are as many as tasks at once, so none waits for one."""

    def __init__(self, service: Service, forks: ForkServer) -> None:
        pickled(service)  # refused now, not with the first task
        self._service = service
        self._forks = forks
        self._memory_limit = memory_limit_of(service)
        self._idle: list[Child] = []

    async def open(self) -> None:
        self.warn_of_little_memory()
        await self._forks.learn(self._service)

    def warn_of_little_memory(self) -> None:
        service, room = self._service, container_memory()
        wanted, found = service.processes or cores(), slots_of(service, 1)
        if room is None or (found == wanted and self._memory_limit == service.memory_limit):
            return
        log.warning(
            "the container has %d MiB of memory: %s runs %d of %d processes, each with at most %d MiB;"
            " all need %d MiB",
            room // MIB,
            service.name,
            found,
            wanted,
            self._memory_limit // MIB,
            (OWN_MEMORY + wanted * service.memory_limit) // MIB,
        )

    async def __call__(self, task: Task) -> Output | None:
        child = await self._child()
        try:
            limit = self._service.time_limit or TIME_LIMIT
            said = await within(limit, self._supervised(child, task))
        except BaseException:
            child.kill()
            raise
        self._keep(child)
        return _output(said)

    def _supervised(self, child: Child, task: Task) -> Awaitable[Mapping[str, Any]]:
        return Supervision(child, task, self._service, self._memory_limit).outcome()

    async def _child(self) -> Child:
        while self._idle:
            child = self._idle.pop()
            if child.alive:
                return child
            child.kill()
        return await self._forks.fork(self._service)

    def _keep(self, child: Child) -> None:
        child.executed += 1
        grown = resident(child.pid) - child.memory_when_new
        worn = child.executed >= self._service.tasks_per_process
        if worn or grown > self._memory_limit // KEPT_SHARE or not child.alive:
            child.kill()
        else:
            self._idle.append(child)

    async def close(self) -> None:
        for child in self._idle:
            child.kill()
        self._idle.clear()


class Supervision:
    """One task in one child: its questions are answered, its limits kept."""

    def __init__(self, child: Child, task: Task, service: Service, memory_limit: int) -> None:
        self._child = child
        self._task = task
        self._service = service
        self._memory_limit = memory_limit
        self._verdict: StepError | None = None

    async def outcome(self) -> Mapping[str, Any]:
        """What the child says at the end. It is dead, or must be killed, if this raises."""
        body = {k: v for k, v in self._task.directive.items() if k not in SERVERS_OWN}
        level = logging.getLogger().getEffectiveLevel()
        async with _beside(self._watch_memory(), self._pass_cancel_on()):
            try:
                await self._child.send({"do": "execute", "directive": body, "level": level})
                return await self._conversation()
            except (asyncio.IncompleteReadError, ConnectionError) as error:
                raise self._verdict or await self._died() from error
            except FrameError as error:
                raise ProcessDiedError(f"its process sent what cannot be read: {error}") from error

    async def _died(self) -> ProcessDiedError:
        return ProcessDiedError(f"its process died: {await self._child.how_it_ended()}")

    async def _conversation(self) -> Mapping[str, Any]:
        limit = 2 * self._memory_limit
        while True:
            said, body = await self._child.receive(limit)
            match said.get("say"):
                case "ask":
                    await self._answer(said, body)
                case "log":
                    self._log(said)
                case "report":
                    self._task.report(str(said.get("progress")))
                case "done" | "failed":
                    return said
                case other:
                    raise FrameError(f"{other!r} is nothing that a child says")

    async def _answer(self, asked: Mapping[str, Any], body: bytes) -> None:
        number = asked.get("number")
        try:
            if asked.get("call") == "stage":
                content = (await self._task.stage(str(asked.get("name")), body)).encode()
            else:
                content = await self._task.read(asked.get("reference"))
        except Exception as error:
            await self._child.send({"do": "answer", "number": number, "error": told(error)})
        else:
            await self._child.send({"do": "answer", "number": number}, content)

    def _log(self, said: Mapping[str, Any]) -> None:
        level, stack = said.get("level"), said.get("stack")
        logging.getLogger(str(said.get("logger"))).log(
            level if type(level) is int else logging.INFO,
            "%s",
            bounded(str(said.get("message"))),
            exc_info=None if stack is None else ElsewhereError(str(stack)),
            extra=message_fields(self._task.directive),
        )

    # -- limits ------------------------------------------------------------------------------

    def _condemn(self, verdict: StepError) -> None:
        self._verdict = verdict
        self._child.kill()

    async def _watch_memory(self) -> None:
        limit, used = self._memory_limit, 0
        while used <= limit:
            await asyncio.sleep(LOOK)
            used = resident(self._child.pid)
        self._condemn(MemoryLimitError(f"{used} bytes in use, memory_limit is {limit}"))

    async def _pass_cancel_on(self) -> None:
        await self._task.until_cancelled()
        await self._child.send({"do": "cancel"})
        grace = self._service.cancel_grace
        if grace is not None:
            await asyncio.sleep(grace.total_seconds())
            self._condemn(StepCancelledError(f"killed: it did not stop within {grace}"))


class ElsewhereError(LuciusError):
    """Carries the stack of a child into the server's log."""

    def __str__(self) -> str:
        return f"\n{super().__str__()}"


def _output(said: Mapping[str, Any]) -> Output | None:
    """What a child says is data from outside: whatever it is, it ends as an output or a failure."""
    if said["say"] == "failed":
        final = said.get("status") == ResultStatus.FAILED_FINAL.value
        kind: type[StepError] = FatalError if final else RetryableError
        raise kind(str(said.get("message")), code=str(said.get("code")))
    fields = said.get("output")
    return Output(**fields) if isinstance(fields, dict) else None


@asynccontextmanager
async def _beside(*works: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run them meanwhile; what they fail with shows in the conversation itself."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
