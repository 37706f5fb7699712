"""Live aggregates of the owned lanes, as last committed, and one lock a job.

Readers see a job only after its commit: a decision that is still being saved is nowhere here.
"""

import asyncio
from collections import OrderedDict, deque
from typing import Final

from lucius.core.job import Job

LIVE: Final = 20_000
ENDED: Final = 1_000
"""Jobs that have ended are read once or twice more, by whoever waited for them."""


class JobCache:
    def __init__(self, live: int = LIVE, ended: int = ENDED) -> None:
        self._live: OrderedDict[str, Job] = OrderedDict()
        self._ended: OrderedDict[str, Job] = OrderedDict()
        self._capacity = (live, ended)
        self._locks: dict[str, deque[asyncio.Future[None]]] = {}

    def get(self, job_id: str) -> Job | None:
        return self._live.get(job_id) or self._ended.get(job_id)

    def put(self, job: Job) -> None:
        """The job as committed; the one that was moved longest ago makes room."""
        if job.terminal:
            self._live.pop(job.job_id, None)
            jobs, capacity = self._ended, self._capacity[1]
        else:
            jobs, capacity = self._live, self._capacity[0]
        jobs[job.job_id] = job
        jobs.move_to_end(job.job_id)
        if len(jobs) > capacity:
            jobs.popitem(last=False)

    def drop(self, job_id: str) -> None:
        self._live.pop(job_id, None)
        self._ended.pop(job_id, None)

    def forget_ended(self) -> None:
        """Some of them were deleted."""
        self._ended.clear()

    def __len__(self) -> int:
        return len(self._live) + len(self._ended)

    def lock(self, job_id: str) -> "JobLock":
        """Decisions about one job follow one another; those about different jobs do not wait."""
        return JobLock(self._locks, job_id)


class JobLock:
    """`async with`; a lock exists only while someone holds it or waits for it."""

    __slots__ = ("_job_id", "_locks")

    def __init__(self, locks: dict[str, deque[asyncio.Future[None]]], job_id: str) -> None:
        self._locks = locks
        self._job_id = job_id

    async def __aenter__(self) -> None:
        waiters = self._locks.get(self._job_id)
        if waiters is None:
            self._locks[self._job_id] = deque()
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiters.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._pass_on()
            raise

    async def __aexit__(self, *error: object) -> None:
        self._pass_on()

    def _pass_on(self) -> None:
        waiters = self._locks[self._job_id]
        while waiters:
            turn = waiters.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        del self._locks[self._job_id]
