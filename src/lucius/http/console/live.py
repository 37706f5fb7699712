"""What keeps open pages up to date: a stream that tells each of them when to look again.

Nothing runs while nobody looks. All pages together take at most a small share of the process's time:
the more of them there are, and the dearer they are to render, the longer is the pause.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from time import perf_counter
from typing import Any, Final, Generic, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from lucius.core.errors import LuciusError
from lucius.core.job import Job
from lucius.http.context import ApiContext, Caller, Stands
from lucius.http.problems import Problem
from lucius.http.routes.reads import EventStream
from lucius.http.routing import place_to_wait

T = TypeVar("T")
SHORTEST: Final = 2.0
SHORTEST_OF_A_JOB: Final = 0.5
LONGEST: Final = 60.0
SHARE: Final = 0.02
"""Of the process's time, for all pages that are open."""
_SMOOTHING: Final = 0.2
LOOK: Final = b"event: look\ndata: \n\n"
END: Final = b"event: end\ndata: \n\n"
SILENCE: Final = b": nothing new\n\n"


class Timed(Generic[T]):
    """Some work, and how long the loop was busy with it: not how long it took, which others share.

    By the clock, not by the CPU: where other processes take most of the machine, the loop's time is what
    jobs and pages share.
    """

    def __init__(self, work: Coroutine[Any, Any, T], clock: Callable[[], float]) -> None:
        self._work = work
        self._clock = clock
        self.seconds = 0.0

    def __await__(self) -> Generator[Any, Any, T]:
        step: Callable[[], Any] = partial(self._work.send, None)
        while True:
            began = self._clock()
            try:
                awaited = step()
            except StopIteration as done:
                result: T = done.value
                return result
            finally:
                self.seconds += self._clock() - began
            try:
                yield awaited
            except BaseException as error:
                step = partial(self._work.throw, error)
            else:
                step = partial(self._work.send, None)


class Pulse:
    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self.listeners = 0
        self._seconds = 0.0
        """Of the loop's time that one page takes, on the average of the last ones."""
        self._shared = 0.0
        """What was worked out for several pages since the last one."""

    def pause(self, shortest: float = SHORTEST) -> float:
        """Until a page should look again."""
        together = self.listeners * self._seconds
        return min(max(shortest, together / SHARE), LONGEST)

    async def page(self, made: Coroutine[Any, Any, T]) -> T:
        """A page that somebody may look at again."""
        work = Timed(made, self._clock)
        try:
            return await work
        finally:
            seconds, self._shared = work.seconds + self._shared, 0.0
            self._seconds += (seconds - self._seconds) * _SMOOTHING

    async def shared(self, made: Coroutine[Any, Any, T]) -> T:
        """What the next page shows, and others with it."""
        work = Timed(made, self._clock)
        try:
            return await work
        finally:
            self._shared += work.seconds

    @contextmanager
    def listening(self) -> Iterator[None]:
        self.listeners += 1
        try:
            yield
        finally:
            self.listeners -= 1


async def looks(pulse: Pulse, context: ApiContext, stands: Stands) -> AsyncIterator[bytes]:
    """Now and then, until the caller may look no longer, or the process ends."""
    with pulse.listening(), suppress(Problem):
        yield SILENCE
        while stands():
            async with context.watch.while_it(stands):
                await asyncio.sleep(pulse.pause())
            yield LOOK


async def looks_at(
    pulse: Pulse, context: ApiContext, job: Job, stands: Stands
) -> AsyncIterator[bytes]:
    """When the job has moved; what moves it quickly is one look. Ends with the job."""
    with pulse.listening(), suppress(LuciusError):
        yield SILENCE
        while stands() and not job.terminal:
            async with context.watch.while_it(stands):
                seconds = context.options.keep_alive_seconds
                newer = await context.engine.wait(job.job_id, job.version, seconds)
            if newer is None:
                break
            moved, job = newer.version > job.version, newer
            yield LOOK if moved else SILENCE
            if moved and not job.terminal:
                async with context.watch.while_it(stands):
                    await asyncio.sleep(pulse.pause(SHORTEST_OF_A_JOB))
        if job.terminal:
            yield END


def streamed(
    context: ApiContext,
    request: Request,
    caller: Caller,
    chunks: Callable[[Stands], AsyncIterator[bytes]],
) -> Response:
    """Holds a place among the requests that wait, as any event stream does."""

    def stands() -> bool:
        return caller.stands() and not context.stopping()

    return EventStream(chunks(stands), place_to_wait(context, request, caller))
