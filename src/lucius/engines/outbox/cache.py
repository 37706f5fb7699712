"""Live aggregates of the owned lanes, as last committed.

Readers see a job only after its commit: a decision that is still being saved is nowhere here.
"""

from collections import OrderedDict
from collections.abc import Collection
from typing import Final, NamedTuple

from lucius.core.job import Job
from lucius.engines.outbox.weight import growth, weight_of

ENDED_SHARE: Final = 16
"""One part in sixteen of the room is for jobs that have ended: whoever waited reads them once more."""


class _Kept(NamedTuple):
    job: Job
    bytes: int
    """Bytes of the job with its plan."""


class _Shelf:
    """Jobs up to a weight; the one that was moved longest ago makes room."""

    def __init__(self, capacity: int) -> None:
        self.bytes = 0
        self._capacity = capacity
        self._jobs: OrderedDict[str, _Kept] = OrderedDict()

    def get(self, job_id: str) -> Job | None:
        kept = self._jobs.get(job_id)
        return kept.job if kept is not None else None

    def add(self, kept: _Kept) -> None:
        self._jobs[kept.job.job_id] = kept
        self.bytes += kept.bytes
        while self.bytes > self._capacity:
            self.bytes -= self._jobs.popitem(last=False)[1].bytes

    def take(self, job_id: str) -> _Kept | None:
        kept = self._jobs.pop(job_id, None)
        if kept is not None:
            self.bytes -= kept.bytes
        return kept

    def of_lanes(self, lanes: Collection[int]) -> list[str]:
        return [i for i, kept in self._jobs.items() if kept.job.plan.desk in lanes]

    def clear(self) -> None:
        self._jobs.clear()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._jobs)


class JobCache:
    """What does not fit is read from the ledger again when it is needed."""

    def __init__(self, capacity: int) -> None:
        self._live = _Shelf(capacity - capacity // ENDED_SHARE)
        self._ended = _Shelf(capacity // ENDED_SHARE)

    def get(self, job_id: str) -> Job | None:
        return self._live.get(job_id) or self._ended.get(job_id)

    def put(self, job: Job) -> None:
        """The job as committed. Its plan stays the same, and is weighed once."""
        before = self._live.take(job.job_id) or self._ended.take(job.job_id)
        if before is not None and before.job.plan is job.plan:
            weight = before.bytes + growth(before.job, job)
        else:
            weight = weight_of(job)
        (self._ended if job.terminal else self._live).add(_Kept(job, weight))

    def drop(self, job_id: str) -> None:
        self._live.take(job_id)
        self._ended.take(job_id)

    def forget(self, lanes: Collection[int]) -> None:
        """Drop the jobs of these lanes: another process moves them, or has moved them."""
        for shelf in (self._live, self._ended):
            for job_id in shelf.of_lanes(lanes):
                shelf.take(job_id)

    def forget_ended(self) -> None:
        """Some of them were deleted."""
        self._ended.clear()

    @property
    def bytes(self) -> int:
        return self._live.bytes + self._ended.bytes

    def __len__(self) -> int:
        return len(self._live) + len(self._ended)
