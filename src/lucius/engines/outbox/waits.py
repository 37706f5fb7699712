"""Who waits for a job to move or to end: woken by the commit where it happens in this process.

Where another process commits, one poller for each job reads the ledger, however many wait.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final

from lucius.core.effects import Committed
from lucius.core.errors import LedgerError
from lucius.core.job import Job
from lucius.engines.outbox.observer import Observer

Waiters = dict[str, set[asyncio.Future[None]]]
Read = Callable[[str], Awaitable[Job | None]]

FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 1.0
"""Seconds between two looks at a job that another process moves."""
SLOWER: Final = 1.5


class Waits(Observer):
    def __init__(self, woken: Callable[[Job], bool]) -> None:
        """`woken`: whether the commits of a job happen here."""
        self._wakes = woken
        self._watchers: Waiters = {}
        self._enders: Waiters = {}
        self._pollers: dict[str, asyncio.Task[None]] = {}
        self._over = False

    async def for_move(self, read: Read, job_id: str, version: int, seconds: float) -> Job | None:
        """Wait until the job's version is past that one, and return the job."""
        moved = lambda job: job.version > version or job.terminal  # noqa: E731
        return await self._until(self._watchers, read, job_id, seconds, moved)

    async def for_end(self, read: Read, job_id: str, seconds: float) -> Job | None:
        return await self._until(self._enders, read, job_id, seconds, lambda job: job.terminal)

    def listen(self, commit: Committed) -> None:
        self.took_up(commit.job)

    def took_up(self, job: Job) -> None:
        """Wake whoever waits for this job: it was committed, here or elsewhere."""
        if job.job_id in self._watchers:
            _wake(self._watchers, job.job_id)
        if job.terminal and job.job_id in self._enders:
            _wake(self._enders, job.job_id)

    def wake(self) -> None:
        """Have everyone who waits look again: the process that commits a job may have changed."""
        for waiting in (self._watchers, self._enders):
            for job_id in tuple(waiting):
                _wake(waiting, job_id)

    def end(self) -> None:
        """The process is about to end: whoever waits is answered with the job as it is."""
        self._over = True
        self.wake()

    async def _until(
        self,
        waiting: Waiters,
        read: Read,
        job_id: str,
        seconds: float,
        enough: Callable[[Job], bool],
    ) -> Job | None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while True:
            with _awaited(
                waiting, job_id
            ) as woken:  # before it is read: a commit meanwhile wakes, too
                job = await read(job_id)
                left = deadline - loop.time()
                if job is None or enough(job) or self._over or left <= 0:
                    return job
                if not self._wakes(job):
                    self._poll(read, job)
                timer = loop.call_later(left, _resolve, woken)
                try:
                    await woken
                finally:
                    timer.cancel()

    # -- polling -----------------------------------------------------------------------------

    def _poll(self, read: Read, job: Job) -> None:
        if job.job_id not in self._pollers:
            self._pollers[job.job_id] = asyncio.create_task(self._look(read, job))

    async def _look(self, read: Read, known: Job) -> None:
        """Poll the job until nobody waits for it any more, or its commits happen in this process."""
        job_id, pause = known.job_id, FIRST_PAUSE
        try:
            while self._is_awaited(job_id):
                await asyncio.sleep(pause)
                job = await read(job_id)
                if job is None or job.version != known.version or self._wakes(job):
                    return
                pause = min(pause * SLOWER, LONGEST_PAUSE)
        except LedgerError:
            return  # whoever waits reads it and says so
        finally:
            del self._pollers[job_id]
            _wake(self._watchers, job_id)
            _wake(self._enders, job_id)

    def _is_awaited(self, job_id: str) -> bool:
        return job_id in self._watchers or job_id in self._enders


@contextmanager
def _awaited(waiting: Waiters, job_id: str) -> "Iterator[asyncio.Future[None]]":
    """A future that `_wake` resolves from here on."""
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting.setdefault(job_id, set()).add(waiter)
    try:
        yield waiter
    finally:
        waiters = waiting.get(job_id)
        if waiters is not None:
            waiters.discard(waiter)
            if not waiters:
                del waiting[job_id]


def _wake(waiting: Waiters, job_id: str) -> None:
    for waiter in waiting.pop(job_id, ()):
        _resolve(waiter)


def _resolve(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
