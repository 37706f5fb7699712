"""Live aggregates of the owned lanes, as last committed.

Readers see a job only after its commit: a decision that is still being saved is nowhere here.
"""

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import replace
from datetime import datetime
from sys import getsizeof
from typing import Any, Final, NamedTuple

from lucius.core.effects import Decision, PublishDirective, StartWorkflow
from lucius.core.job import Job, Owed, Step
from lucius.core.record import Packed
from lucius.core.retry import PUBLISH_GRACE, due_at

# What a process saves of a job whose lane it does not own: whatever is owed falls to the owner, at once.


def left_to_owner(before: Job | None, decision: Decision) -> Decision:
    """The same decision with nothing to perform. The owner's next tick performs it.

    An entry that has become ready waits for that tick, so the owner takes it into its queue.
    """
    if not decision.changed:
        return replace(decision, effects=())
    job, now = decision.job, decision.job.updated_at
    publish = {
        effect.step_id for effect in decision.effects if isinstance(effect, PublishDirective)
    }
    owed_by = (e for e in decision.effects if not isinstance(e, PublishDirective | StartWorkflow))
    others = {effect.owed_id for effect in owed_by}
    earlier = before.steps if before is not None else (None,) * len(job.steps)
    steps = tuple(
        _unpublished(step, now) if planned.step_id in publish else _held(was, step, now)
        for planned, was, step in zip(job.plan.steps, earlier, job.steps, strict=True)
    )
    owed = tuple(_due(each, now) if each.owed_id in others else each for each in job.owed)
    left = replace(job, steps=steps, owed=owed)
    return replace(decision, job=replace(left, due_at=due_at(left)), effects=())


def _held(was: Step | None, step: Step, now: datetime) -> Step:
    if not step.ready or step.entry is None or (was is not None and was.ready):
        return step
    return replace(step, entry=replace(step.entry, ready_at=now))


def _unpublished(step: Step, now: datetime) -> Step:
    """The entry as if its publish was asked for long ago, so that the owner's tick asks for it again."""
    if step.entry is None or step.entry.asked_at is None:
        return step
    return replace(step, entry=replace(step.entry, asked_at=now - PUBLISH_GRACE))


def _due(owed: Owed, now: datetime) -> Owed:
    """The owed effect as due now, without the try that nobody made."""
    return replace(owed, attempts=max(0, owed.attempts - 1), next_at=now)


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
        return [i for i, kept in self._jobs.items() if kept.job.plan.shard in lanes]

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


OF_PLAN: Final = 4_000
"""Bytes of a plan and its job without their steps, references and payloads."""
OF_STEP: Final = 1_500
OF_EXECUTION: Final = 700


def weight_of(job: Job) -> int:
    plan = job.plan
    given = (plan.payload, plan.extra, plan.input_ref, plan.output_ref, plan.callback_urls)
    carried = sum(_weight(each.result_ref) for each in plan.carried.values())
    weight = OF_PLAN + OF_STEP * len(plan.steps) + sum(map(_weight, given)) + carried
    for step in job.steps:
        weight += OF_EXECUTION * len(step.executions)
        weight += _weight(step.result_ref) if step.result_ref is not None else 0
    return weight


def growth(before: Job, job: Job) -> int:
    """How much heavier the job became from one commit to the next. Of its steps, one or two have changed."""
    grown = 0
    for was, step in zip(before.steps, job.steps, strict=True):
        if step is not was:
            if step.executions is not was.executions:
                grown += OF_EXECUTION * (len(step.executions) - len(was.executions))
            if step.result_ref is not was.result_ref:
                grown += _weight(step.result_ref) - _weight(was.result_ref)
    return grown


def _weight(value: Any) -> int:
    """Bytes of a JSON value with all that is in it."""
    if type(value) is Packed:
        return getsizeof(value.text)
    size = getsizeof(value)
    if isinstance(value, dict):
        return size + sum(map(getsizeof, value)) + sum(map(_weight, value.values()))
    if isinstance(value, list | tuple):
        return size + sum(map(_weight, value))
    return size
