"""Where `execute()` runs: on the loop, in a thread of its own, or in a process (`isolation`)."""

import asyncio
import contextvars
import sys
import threading
from collections.abc import Awaitable, Coroutine, Sequence
from datetime import timedelta
from typing import Any, Final, Protocol, TypeVar

from lucius.platform.errors import LeaseExpiredError, TimeLimitError, step_failure
from lucius.platform.service import Output, Service, parse_payload
from lucius.platform.task import SyncTask, Task
from lucius.system.instruments import Count, Distribution, Instruments, Level

# What a process of a service counts: its attempts, how long they took, and its slots.


class ServiceInstruments(Instruments):
    def __init__(self) -> None:
        self.attempts = Count(
            "lucius_service_attempts_total",
            "Attempts that have ended, by the status and the code of their RESULT",
            ("service", "status", "code"),
        )
        self.seconds = Distribution(
            "lucius_service_attempt_seconds",
            "From the ACK of an attempt to its result: execute(), commit and promotion",
            ("service",),
        )
        self.slots = Level(
            "lucius_service_slots", "Slots of this process, busy and free", ("service", "state")
        )

    def taken(self) -> list[Any]:
        """For the process that is scraped, where that is another one. Slots are as they are now."""
        slots = [[labels, number] for labels, number in self.slots.cells.items()]
        return [self.attempts.taken(), self.seconds.taken(), slots]

    def put(self, taken: Sequence[Any]) -> None:
        attempts, seconds, slots = taken
        self.attempts.put(attempts)
        self.seconds.put(seconds)
        self.slots.show({tuple(labels): number for labels, number in slots})


T = TypeVar("T")
TURN_SECONDS: Final = 0.0005
"""After so long a thread that computes lets the others go on, the loop with its heartbeats among them.

With Python's own 5 ms, thirty such threads held up one heartbeat by more than a second.
"""


class Body(Protocol):
    """Executes tasks. It is opened before the first and closed after the last."""

    async def open(self) -> None: ...

    async def __call__(self, task: Task) -> Output | None:
        """Execute within the service's limits; the payload is still as it came.

        When it is cancelled, it stops what it can stop.
        """

    async def close(self) -> None: ...


class OnTheLoop:
    """`async def execute()`, among everything else that the loop does."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def open(self) -> None: ...

    async def __call__(self, task: Task) -> Output | None:
        service = self._service
        if service.payload_model is not None:
            task.payload = parse_payload(service.payload_model, task.payload)
        if service.time_limit is None:
            return await self._begun(task)
        return await within(service.time_limit, self._begun(task))

    def _begun(self, task: Task) -> Awaitable[Output | None]:
        return self._service.execute(task)  # type: ignore[return-value]

    async def close(self) -> None: ...


class InAThread(OnTheLoop):
    """`def execute()`. A thread cannot be stopped: one that is given up goes on, and reaches nothing.

    Each task has its own, so that none waits for another and none holds up the end of the process.
    """

    async def open(self) -> None:
        sys.setswitchinterval(min(sys.getswitchinterval(), TURN_SECONDS))

    def _begun(self, task: Task) -> Awaitable[Output | None]:
        return Thread(self._service, task).output()


class Thread:
    def __init__(self, service: Service, task: Task) -> None:
        self._service = service
        self._task = task
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._result: Any = None
        self._error: BaseException | None = None
        self._given_up = False

    async def output(self) -> Output | None:
        context, name = contextvars.copy_context(), f"execute {self._service.name}"
        threading.Thread(target=context.run, args=(self._run,), name=name, daemon=True).start()
        try:
            await self._ended
        finally:
            self._given_up = True
        if self._error is not None:
            raise step_failure(self._error)
        output: Output | None = self._result
        return output

    def _run(self) -> None:
        try:
            self._result = self._service.execute(SyncTask(self._task, self._wait))
        except BaseException as error:
            self._error = error
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        if self._given_up:
            work.close()
            raise LeaseExpiredError("the step was stopped: nothing more is read or staged for it")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


async def within(limit: timedelta, work: Awaitable[T]) -> T:
    try:
        async with asyncio.timeout(limit.total_seconds()) as timeout:
            return await work
    except TimeoutError as error:
        if not timeout.expired():
            raise
        raise TimeLimitError(f"not done within {limit}") from error
