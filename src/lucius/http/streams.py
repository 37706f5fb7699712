"""Server-sent events: one reader a job, however many listen. A listener that lags reads the ledger itself."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import orjson

from lucius.core.effects import Event
from lucius.core.errors import LuciusError
from lucius.core.job import Job
from lucius.http.context import ANYONE, ApiContext, Caller, Stands
from lucius.http.problems import Problem
from lucius.http.views import event_view

PAGE: Final = 100
"""Events that are read at once."""
PORTION: Final = 16
"""Events that are written at once."""
AT_ONCE: Final = 4
"""Streams that read or write at once. The others wait their turn, and requests come in between."""
_TAIL: Final = 1000
_WAIT_SECONDS: Final = 30.0
KEEP_ALIVE: Final = b": alive\n\n"


class Feed:
    """The newest events of one job. It is read while someone listens, and until the job has ended."""

    def __init__(self, context: ApiContext, job: Job) -> None:
        self._context = context
        self.job = job
        self.listeners = 0
        self.ended = False
        self.reads = 0
        self._start = self._position = job.seq
        self._tail: deque[Event] = deque(maxlen=_TAIL)
        self._changed = asyncio.Event()
        self.task = asyncio.create_task(self._run())

    async def page(self, after: int) -> Sequence[Event]:
        """What follows `after`: from memory if it is recent, else from the ledger."""
        if after >= self._start:
            return [event for event in self._tail if event.seq > after]
        return await self._context.engine.events(self.job.job_id, after, PAGE)

    async def changed(self, after: int, seconds: float) -> bool:
        """Wait for news past `after`. False: nothing for so long."""
        if self.ended or self._position > after:
            return True
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def _run(self) -> None:
        try:
            while True:
                await self._read()
                if self.job.terminal:
                    break
                newer = await self._context.engine.wait(
                    self.job.job_id, self.job.version, _WAIT_SECONDS
                )
                if newer is None:
                    break
                self.job = newer
        except LuciusError:
            pass  # Listeners are cut off; they come back with the id of the last event they saw.
        finally:
            self.ended = True
            self._announce()

    async def _read(self) -> None:
        while self._position < self.job.seq:
            self.reads += 1
            events = await self._context.engine.events(self.job.job_id, self._position, PAGE)
            if not events:
                break
            for event in events:
                if len(self._tail) == _TAIL:
                    self._start = self._tail[0].seq
                self._tail.append(event)
            self._position = events[-1].seq
            self._announce()

    def _announce(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class Feeds:
    def __init__(self, context: ApiContext) -> None:
        self._context = context
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._feeds: dict[str, Feed] = {}
        self._closed = False

    async def stream(self, job: Job, after: int, caller: Caller = ANYONE) -> AsyncIterator[bytes]:
        """The events past `after` as they happen, until the job has ended, or the caller's rights."""
        if self._closed:
            return
        feed = self._feeds.get(job.job_id)
        if feed is None or feed.ended:
            feed = self._feeds[job.job_id] = Feed(self._context, job)
        feed.listeners += 1
        try:
            async for chunk in self._chunks(feed, after, caller.stands):
                if not caller.stands():
                    break
                yield chunk
        finally:
            feed.listeners -= 1
            if feed.listeners == 0:
                await self._drop(feed)

    async def _chunks(self, feed: Feed, after: int, stands: Stands) -> AsyncIterator[bytes]:
        silence = self._context.options.keep_alive_seconds
        while True:
            ended = feed.ended
            try:
                async with self._turn():
                    events = await feed.page(after)
            except LuciusError:
                return
            for start in range(0, len(events), PORTION):
                async with self._turn():
                    portion = events[start : start + PORTION]
                    chunk = b"".join(rendered(feed.job.job_id, event) for event in portion)
                yield chunk
            if events:
                after = events[-1].seq
                continue
            if ended:
                break
            try:
                async with self._context.watch.while_it(stands):
                    news = await feed.changed(after, silence)
            except Problem:
                return
            if not news:
                yield KEEP_ALIVE
        if feed.job.terminal:
            state = orjson.dumps({"jobId": feed.job.job_id, "state": feed.job.state.value})
            yield b"event: end\ndata: " + state + b"\n\n"

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Held until the loop has turned, and never while a client takes what it is sent."""
        async with self._turns:
            yield
            await asyncio.sleep(0)

    async def _drop(self, feed: Feed) -> None:
        if self._feeds.get(feed.job.job_id) is feed:
            del self._feeds[feed.job.job_id]
        feed.task.cancel()
        await asyncio.gather(feed.task, return_exceptions=True)

    async def close(self) -> None:
        """End every stream, now and from now on: its listener comes back to another process."""
        self._closed = True
        for feed in list(self._feeds.values()):
            await self._drop(feed)

    def feed(self, job_id: str) -> Feed | None:
        return self._feeds.get(job_id)


def rendered(job_id: str, event: Event) -> bytes:
    """One event on the wire; its id is what a client sends back as Last-Event-ID."""
    data = orjson.dumps(event_view(job_id, event))
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.seq, event.type.encode(), data)
