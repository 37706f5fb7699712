"""What the workflow of a job may ask for next, and what becomes of its asking.

A workflow owns sequence and time; which attempt is next, and whether it may begin, is decided here alone.
"""

from collections.abc import Iterator
from datetime import datetime

from lucius.core import sequence
from lucius.core.effects import Decision, Outcome
from lucius.core.inputs import AttemptRequested
from lucius.core.job import Job, Step
from lucius.core.record import record
from lucius.core.states import RUNNING_JOB, JobState, StepState
from lucius.core.turn import Turn, speaks_for


@record
class NextAttempt:
    """`at`: not before that moment; none: at once."""

    step_id: str
    attempt_no: int
    at: datetime | None = None


def next_attempts(job: Job) -> Iterator[NextAttempt]:
    """The attempts that may be asked for, now or when their backoff is over."""
    doomed = any(step.state is StepState.FAILED_FINAL for step in job.steps)
    if job.state not in RUNNING_JOB or doomed:
        return
    pending = sequence.next_stage(job.plan, job.steps)
    for index, (planned, step) in enumerate(zip(job.plan.steps, job.steps, strict=True)):
        if index in pending or _waits(step):
            yield NextAttempt(planned.step_id, step.used + 1, _not_before(step))


def _waits(step: Step) -> bool:
    """For its backoff: that of a failed attempt, or of a publish that was refused."""
    return step.state is StepState.FAILED_RETRY or (step.held and not step.asked_for)


def _not_before(step: Step) -> datetime | None:
    return step.entry.ready_at if step.held and step.entry is not None else step.retry_at


def attempt(turn: Turn, received: AttemptRequested) -> Decision:
    """Hold it for the window. Asking again changes nothing; what is not next is stale."""
    index = turn.job.plan.index_of(received.step_id)
    if index is None:
        return turn.unchanged(Outcome.REJECTED, "UNKNOWN_STEP")
    step = turn.steps[index]
    proposed = step.asked_for and turn.entry(index).lease_id == received.lease_id
    if proposed or any(speaks_for(received, execution) for execution in step.executions):
        return turn.unchanged(Outcome.ALREADY)
    asked = (received.step_id, received.attempt_no)
    due = (n for n in next_attempts(turn.job) if n.at is None or n.at <= turn.now)
    if not turn.job.plan.on_temporal or asked not in ((n.step_id, n.attempt_no) for n in due):
        return turn.unchanged(Outcome.STALE)
    turn.has_workflow(answered=True)
    if turn.state is JobState.QUEUED:
        turn.move_job(JobState.DISPATCHING)
    turn.subject = (received.step_id, received.attempt_no, received.lease_id)
    if not step.held:
        turn.hold(index)
    entry = turn.own_entry(index)
    entry.ready_at, entry.lease_id = None, received.lease_id
    return turn.decision(Outcome.APPLIED)
