"""Retry policy as values: how long to wait after which failure, and when a job is next due."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from lucius.core.job import Job, Step
from lucius.core.plan import RetryPolicy
from lucius.core.states import RUNNING_JOB, StepState

PUBLISH_GRACE: Final = timedelta(seconds=10)
"""How long a released entry may stay unsent before the engine is told to publish it again."""

EFFECT_BACKOFF: Final = (
    timedelta(seconds=5),
    timedelta(seconds=30),
    timedelta(minutes=2),
    timedelta(minutes=10),
    timedelta(hours=1),
)
EFFECT_ATTEMPTS: Final = 12


class Track(StrEnum):
    PUBLISH = "publish"
    ACK = "ack"
    EXECUTION = "execution"


def backoff(policy: RetryPolicy, track: Track, used: int) -> timedelta:
    """The wait after the `used`-th attempt has failed on this track."""
    waits = {
        Track.PUBLISH: policy.publish_backoff,
        Track.ACK: policy.ack_backoff,
        Track.EXECUTION: policy.execution_backoff,
    }[track]
    return waits[min(used, len(waits)) - 1]


def effect_backoff(attempts: int) -> timedelta:
    return EFFECT_BACKOFF[min(attempts, len(EFFECT_BACKOFF)) - 1]


def due_at(job: Job) -> datetime | None:
    """The next moment at which something must have happened; none only where nothing is owed."""
    due = min((owed.next_at for owed in job.owed), default=None) if job.owed else None
    if job.terminal:
        return due
    due = job.sla_at if due is None or job.sla_at < due else due
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
