"""Live aggregates of the owned lanes, as last committed, and one lock a job.

Readers see a job only after its commit: a decision that is still being saved is nowhere here.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from lucius.core.job import Job

CAPACITY: Final = 20_000


class JobCache:
    def __init__(self, capacity: int = CAPACITY) -> None:
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._capacity = capacity
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    def get(self, job_id: str) -> Job | None:
        return self._jobs.get(job_id)

    def put(self, job: Job) -> None:
        jobs = self._jobs
        jobs[job.job_id] = job
        jobs.move_to_end(job.job_id)
        if len(jobs) > self._capacity:
            jobs.popitem(last=False)

    def drop(self, job_id: str) -> None:
        self._jobs.pop(job_id, None)

    def __len__(self) -> int:
        return len(self._jobs)

    @asynccontextmanager
    async def lock(self, job_id: str) -> AsyncIterator[None]:
        """Decisions about one job follow one another; those about different jobs do not wait."""
        lock, users = self._locks.get(job_id) or (asyncio.Lock(), 0)
        self._locks[job_id] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks[job_id]
            if users == 1:
                del self._locks[job_id]
            else:
                self._locks[job_id] = (lock, users - 1)
