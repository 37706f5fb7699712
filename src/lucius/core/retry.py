"""Retry policy as values: how long to wait after which failure, and when a job is next due."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from lucius.core.job import RUNNING_JOB, AbortReason, Job, Step, StepState
from lucius.core.plan import RetryPolicy

PUBLISH_GRACE: Final = timedelta(seconds=10)
"""How long a released entry may stay unsent before the engine is told to publish it again."""

WORKFLOW_EFFECTS: Final = ("start_workflow", "signal_workflow")
EFFECT_BACKOFF: Final = (
    timedelta(seconds=5),
    timedelta(seconds=30),
    timedelta(minutes=2),
    timedelta(minutes=10),
    timedelta(hours=1),
)
EFFECT_ATTEMPTS: Final = 12
WORKFLOW_BACKOFF: Final = (timedelta(seconds=5), timedelta(seconds=30))
"""Between two tries to start or signal a workflow. It is tried until it is done."""
OVERDUE: Final = timedelta(minutes=5)
"""How late the timer of a workflow may be before the workflow is reminded."""


class Track(StrEnum):
    """Its value and `_backoff` is the field of `RetryPolicy` that has its waits."""

    PUBLISH = "publish"
    ACK = "ack"
    EXECUTION = "execution"


TRACK_OF: Final = {
    AbortReason.PUBLISH_REFUSED: Track.PUBLISH,
    AbortReason.ACK_TIMEOUT: Track.ACK,
    AbortReason.LEASE_EXPIRED: Track.EXECUTION,
    AbortReason.RESULT_FAILED: Track.EXECUTION,
    AbortReason.RETURNED: Track.EXECUTION,
    AbortReason.PROCESS_DIED: Track.EXECUTION,
}
"""What an attempt that ends so waits for before the next one. The rest have no next one."""


def backoff(policy: RetryPolicy, track: Track, used: int) -> timedelta:
    """The wait after the `used`-th attempt has failed on this track."""
    waits: tuple[timedelta, ...] = getattr(policy, f"{track.value}_backoff")
    return waits[min(used, len(waits)) - 1]


def effect_backoff(attempts: int, kind: str = "") -> timedelta:
    waits = WORKFLOW_BACKOFF if kind in WORKFLOW_EFFECTS else EFFECT_BACKOFF
    return waits[min(attempts, len(waits)) - 1]


def due_at(job: Job) -> datetime | None:
    """The next moment at which something must have happened; none only where nothing is owed."""
    due = min((owed.next_at for owed in job.owed), default=None) if job.owed else None
    if job.terminal:
        return due
    timer = _reminder_at(job) if job.plan.on_temporal else timer_at(job)
    return timer if due is None or timer < due else due


def _reminder_at(job: Job) -> datetime:
    """The workflow has the timers: the ledger looks after it. What another process left is due at once."""
    left = (step.entry.ready_at for step in job.steps if step.asked_for and step.entry)
    late = max(timer_at(job), job.updated_at) + OVERDUE
    return min((at for at in left if at is not None), default=late)


def timer_at(job: Job) -> datetime:
    """The next moment at which time alone moves a job that has not ended."""
    limit_at = job.plan.limit_at
    due = job.sla_at if limit_at is None else min(job.sla_at, limit_at)
    starting = job.state in RUNNING_JOB
    for step in job.steps:
        rule = _RULES.get(step.state)
        moment = rule(step, starting) if rule is not None else None
        if moment is not None and moment < due:
            due = moment
    return due


def _dispatch_due(step: Step, starting: bool) -> datetime | None:
    """Publish again what was released; take up again what was refused."""
    entry = step.entry
    if entry is None:
        return None
    if entry.asked_at is not None:
        return entry.asked_at + PUBLISH_GRACE
    return entry.ready_at if starting else None


def _lease_due(step: Step, starting: bool) -> datetime | None:
    return step.executions[-1].lease_expires_at


def _retry_due(step: Step, starting: bool) -> datetime | None:
    """A job that pauses or is cancelled starts nothing, so a backoff that ends is not due there."""
    return step.retry_at if starting else None


_RULES: Final = {
    StepState.DISPATCHING: _dispatch_due,
    StepState.AWAITING_ACK: _lease_due,
    StepState.IN_PROGRESS: _lease_due,
    StepState.FAILED_RETRY: _retry_due,
}
