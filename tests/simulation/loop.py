"""An event loop for many simulated processes in one thread: virtual time, and one order of steps a seed.

Every handle belongs to the process in whose context it was made. A process that is killed runs none of its
handles any more, not even `finally` blocks; one that is frozen runs them later.
"""

import asyncio
import gc
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any, Final, TypeVar, cast

T = TypeVar("T")
PROCESS: Final[ContextVar["Process"]] = ContextVar("PROCESS")
MOST_STEPS: Final = 300_000
"""Steps of one run: twenty times as many as most take."""
SPINNING: Final = 100_000
"""Steps at one moment of virtual time: more than this is a program that never waits."""


class SpinError(AssertionError):
    """The program under test runs for ever without letting time pass."""


class Process:
    """What dies together: its tasks, its timers and its memory."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.frozen = False
        self.ready: deque[Step] = deque()
        self.steps = 0
        self.dies_at: int | None = None
        self.on_death: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return self.name


class Step(asyncio.TimerHandle):
    """A callback that is ready to run, or a timer."""

    __slots__ = ("process",)
    process: Process
    _args: tuple[Any, ...]
    _callback: Callable[..., object]
    _cancelled: bool
    _context: Context
    _scheduled: bool


class SimTask(asyncio.Task[Any]):
    """Its hash is its number, so that sets of tasks have the same order in every run."""

    serial = 0
    _log_destroy_pending: bool

    def __hash__(self) -> int:
        return self.serial


class SimFuture(asyncio.Future[Any]):
    """As `SimTask`."""

    serial = 0

    def __hash__(self) -> int:
        return self.serial


class SimLoop:
    """What asyncio needs of a loop, as far as the program under test uses it.

    `random` orders the processes. Within one process, what became ready first runs first.
    """

    def __init__(self, random: Random) -> None:
        self.world = Process("world")
        self.processes: list[Process] = [self.world]
        self.failures: list[dict[str, Any]] = []
        """What the exception handler was called with."""
        self._random = random
        self._time = 0.0
        self._timers: list[tuple[float, int, Step]] = []
        self._serial = count(1)
        self._tasks: list[SimTask] = []
        self._graveyard: list[Step] = []
        """Steps of dead processes. Kept, so that nothing of theirs is collected while the run lasts."""
        self._closed = False
        self.stopped = False
        self.steps = 0

    # -- processes ---------------------------------------------------------------------------

    def process(self, name: str) -> Process:
        made = Process(name)
        self.processes.append(made)
        return made

    def spawn(
        self, process: Process, work: Coroutine[Any, Any, T], name: str | None = None
    ) -> "asyncio.Task[T]":
        context = copy_context()
        context.run(PROCESS.set, process)
        return self.create_task(work, name=name, context=context)

    def in_process(self, process: Process, callback: Callable[..., object], *args: Any) -> None:
        """Run it soon, as a step of that process."""
        self.call_soon(callback, *args, context=context_of(process))

    def kill(self, process: Process) -> None:
        if not process.alive:
            return
        process.alive = process.frozen = False
        self._graveyard += process.ready
        process.ready.clear()
        self.processes.remove(process)
        for hook in process.on_death:
            hook()

    def freeze(self, process: Process, seconds: float) -> None:
        if process.alive and not process.frozen:
            process.frozen = True
            self.call_later(seconds, self._thaw, process, context=context_of(self.world))

    def _thaw(self, process: Process) -> None:
        process.frozen = False

    # -- the loop ----------------------------------------------------------------------------

    def run(self, done: Callable[[], bool]) -> None:
        """Run until it is done, asked whenever time goes on, or until someone sets `stopped`."""
        before, spun = -1.0, 0
        events._set_running_loop(cast(Any, self))
        try:
            while not self.stopped:
                if self._time != before:
                    before, spun = self._time, 0
                    if done():
                        break
                spun += 1
                self.steps += 1
                if self.steps > MOST_STEPS:
                    raise SpinError(f"it does not come to rest in {MOST_STEPS} steps")
                if spun > SPINNING:
                    raise SpinError(f"nothing waits at {self._time}: {self._spinners()}")
                self._run_one()
        finally:
            events._set_running_loop(None)

    def _spinners(self) -> list[str]:
        return [f"{p.name}: {p.ready[0]!r}"[:300] for p in self.processes if p.ready]

    def _run_one(self) -> None:
        runnable = [p for p in self.processes if p.ready and not p.frozen]
        if not runnable:
            self._advance()
            return
        process = runnable[0]
        if len(runnable) > 1:
            process = runnable[int(self._random.random() * len(runnable))]
        step = process.ready.popleft()
        if step._cancelled:
            return
        process.steps += 1
        try:
            step._context.run(step._callback, *step._args)
        except Exception as error:
            self.call_exception_handler({"message": "a callback failed", "exception": error})
        if process.dies_at is not None and process.steps >= process.dies_at:
            self.kill(process)

    def _advance(self) -> None:
        """Nothing is ready: go to the next timer, and make ready all that are due by then."""
        timers = self._timers
        while timers and (timers[0][2]._cancelled or not timers[0][2].process.alive):
            self._graveyard.append(heappop(timers)[2])
        if not timers:
            raise SpinError("no timer is set and nothing is ready to run")
        self._time = max(self._time, timers[0][0])
        while timers and timers[0][0] <= self._time:
            step = heappop(timers)[2]
            if step.process.alive and not step._cancelled:
                step.process.ready.append(step)
            else:
                self._graveyard.append(step)

    def end(self) -> None:
        """Throw everything away. What still runs is closed here, where it can do nothing any more."""
        self._closed = True
        for task in self._tasks:
            if not task.done():
                task._log_destroy_pending = False
                for _ in range(9):
                    with suppress(BaseException):
                        cast(Any, task.get_coro()).close()
                        break
        for kept in (self._tasks, self._graveyard, self._timers, self.processes):
            kept.clear()

    # -- what asyncio asks of a loop -----------------------------------------------------------

    def time(self) -> float:
        return self._time

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self._closed

    def is_closed(self) -> bool:
        return self._closed

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Step:
        return self._made(0.0, callback, args, context, soon=True)

    call_soon_threadsafe = call_soon

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> Step:
        return self.call_at(self._time + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> Step:
        return self._made(when, callback, args, context, soon=False)

    def _made(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context | None,
        *,
        soon: bool,
    ) -> Step:
        step = Step(
            when, callback, args, cast(Any, self), copy_context() if context is None else context
        )
        step.process = process = step._context.get(PROCESS, self.world)
        if self._closed or not process.alive:
            self._graveyard.append(step)
        elif soon:
            process.ready.append(step)
        else:
            step._scheduled = True
            heappush(self._timers, (when, next(self._serial), step))
        return step

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is left out when its time comes."""

    def create_future(self) -> "asyncio.Future[Any]":
        future = SimFuture(loop=cast(Any, self))
        future.serial = next(self._serial)
        return future

    def create_task(
        self,
        coro: Any,
        *,
        name: str | None = None,
        context: Context | None = None,
        **options: Any,
    ) -> "asyncio.Task[Any]":
        number = next(self._serial)
        SimTask.serial = number  # it is hashed while it is made
        task = SimTask(coro, loop=cast(Any, self), name=name or f"task {number}", context=context)
        task.serial = number
        self._tasks.append(task)
        return task

    def run_in_executor(
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        """There is one thread: it runs as a step of its own."""
        future = self.create_future()
        self.call_soon(_answer, future, func, args)
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.failures.append(context)


def context_of(process: Process) -> Context:
    context = copy_context()
    context.run(PROCESS.set, process)
    return context


def _answer(future: "asyncio.Future[Any]", func: Callable[..., Any], args: tuple[Any, ...]) -> None:
    if future.cancelled():
        return
    try:
        future.set_result(func(*args))
    except Exception as error:
        future.set_exception(error)


class NoGarbage:
    """While it lasts nothing is collected: a coroutine of a dead process must not be closed halfway."""

    def __enter__(self) -> None:
        self._was = gc.isenabled()
        gc.disable()

    def __exit__(self, *error: object) -> None:
        if self._was:
            gc.enable()
