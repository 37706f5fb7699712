"""What this process last saw of each job's rows, so that a save needs no reading; and whose turn it is."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Final

from lucius.core.job import Job, Step
from lucius.core.record import record
from lucius.ledgers.azure.heads import StepsHead
from lucius.ledgers.stored.json_form import micros

MOST: Final = 20_000


@record
class Sight:
    version: int
    etag: str
    head: StepsHead
    steps: Sequence[Step]
    due_at: datetime | None
    terminal: bool
    in_dlq: bool
    settled: bool
    """Whether the tenant's rows are known to say that it has ended."""


def sight_of(job: Job, head: StepsHead, etag: str, *, settled: bool = False) -> Sight:
    return Sight(job.version, etag, head, job.steps, job.due_at, job.terminal, job.in_dlq, settled)


class Sights:
    """The latest are kept. Nobody relies on them: an ETag guards every save."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, Sight] = OrderedDict()

    def get(self, job_id: str) -> Sight | None:
        return self._jobs.get(job_id)

    def put(self, job_id: str, sight: Sight) -> None:
        self._jobs[job_id] = sight
        self._jobs.move_to_end(job_id)
        if len(self._jobs) > MOST:
            self._jobs.popitem(last=False)

    def forget(self, job_id: str) -> None:
        self._jobs.pop(job_id, None)


class JobTurns:
    """Those who write to one job go one after another, in the order in which they came."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def of(self, job_id: str) -> AsyncIterator[None]:
        lock, waiting = self._locks.get(job_id, (asyncio.Lock(), 0))
        self._locks[job_id] = (lock, waiting + 1)
        try:
            async with lock:
                yield
        finally:
            lock, waiting = self._locks[job_id]
            if waiting == 1:
                del self._locks[job_id]
            else:
                self._locks[job_id] = (lock, waiting - 1)


class Stamps:
    """Microseconds that never repeat in this process: they order what comes at one instant."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._last = 0

    def next(self) -> int:
        self._last = max(self._last + 1, micros(self._now()))
        return self._last
