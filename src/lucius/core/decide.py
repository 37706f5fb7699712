"""The one function that moves a job: `decide(job, input, now)`. Pure, total, and led by the table."""

from collections.abc import Iterator
from datetime import datetime

from lucius.core import callbacks, control, sequence, ticks
from lucius.core.effects import Decision, Outcome
from lucius.core.inputs import (
    AckReceived,
    AttemptRequested,
    BusRestarted,
    CancelRequested,
    DirectiveUnclaimed,
    Dismissed,
    EffectSettled,
    EntryReleased,
    HeartbeatReceived,
    Input,
    Kind,
    LeaseReturned,
    PauseRequested,
    PublishConfirmed,
    PublishRefused,
    Redriven,
    ReplyRefused,
    ResendRequested,
    ResultReceived,
    ResumeRequested,
    RetryRequested,
    Ticked,
)
from lucius.core.job import RUNNING_JOB, AbortReason, Job, JobState, Owed, Step, StepState
from lucius.core.plan import Carried, Json, Plan
from lucius.core.record import record
from lucius.core.retry import effect_backoff
from lucius.core.table import JOB
from lucius.core.turn import Turn, speaks_for

# A directive on its way: there is room for it, the bus has it or refused it, nobody takes it.


def released(turn: Turn, received: EntryReleased) -> Decision:
    index = turn.job.plan.index_of(received.step_id)
    if index is None or not turn.steps[index].ready or sequence.doomed(turn):
        return turn.unchanged(Outcome.REJECTED, "NOT_RELEASABLE")
    turn.release(index, turn.entry(index).lease_id or received.lease_id)
    turn.about(index)
    turn.told = received.told
    return turn.decision(Outcome.APPLIED)


def published(turn: Turn, received: PublishConfirmed | PublishRefused) -> Decision:
    index = turn.job.plan.index_of(received.step_id)
    if index is None or not _unsent(turn.steps[index], received):
        return turn.unchanged(Outcome.ALREADY)
    turn.about(index)
    if isinstance(received, PublishConfirmed):
        turn.sent(index)
    else:
        turn.explain(received.fault)
        turn.fail_attempt(index, AbortReason.PUBLISH_REFUSED, received.fault)
        sequence.advance(turn)
    return turn.decision(Outcome.APPLIED)


def _unsent(step: Step, received: PublishConfirmed | PublishRefused) -> bool:
    dispatching = step.state is StepState.DISPATCHING
    return dispatching and step.out and speaks_for(received, step.execution)


def unclaimed(turn: Turn, received: DirectiveUnclaimed) -> Decision:
    """Written down for people, once an attempt. A service may be starting: the ACK clock still rules."""
    index = turn.job.plan.index_of(received.step_id)
    if index is None:
        return turn.unchanged(Outcome.REJECTED, "UNKNOWN_STEP")
    step = turn.steps[index]
    if not step.unacked or not speaks_for(received, step.execution):
        return turn.unchanged(Outcome.ALREADY)
    if step.executions[-1].unclaimed_at is not None:
        return turn.unchanged(Outcome.DUPLICATE)
    turn.about(index)
    turn.data = {"service": turn.plan(index).service, "topic": turn.job.plan.routing.topic}
    turn.own_execution(index).unclaimed_at = turn.now
    return turn.decision(Outcome.APPLIED)


# What the workflow of a job may ask for next, and what becomes of its asking.
#
# A workflow owns sequence and time; which attempt is next, and whether it may begin, is decided here alone.


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


def submit(plan: Plan, now: datetime, audit: Json | None = None) -> Decision:
    """A new job, with the directives of its first stage held in the outbox, or its workflow to be started.

    `audit`: who redrove it, and what it was warned about.
    """
    steps = tuple(_new_step(plan.carried.get(step.step_id), now) for step in plan.steps)
    job = Job(plan, JobState.QUEUED, steps, updated_at=now, sla_at=now + plan.sla.job)
    turn = Turn(job, Kind.SUBMITTED, now)
    turn.data = audit
    if any(step.state is StepState.PENDING for step in steps) and plan.on_temporal:
        kind = "start_workflow"
        turn.owe(Owed("start", kind, plan.job_id, 1, now + effect_backoff(1, kind)))
    elif any(step.state is StepState.PENDING for step in steps):
        turn.move_job(JobState.DISPATCHING)
        sequence.start_stage(turn)
    else:
        sequence.end_job(turn, JobState.SUCCEEDED, None)
    if plan.redrive_of is not None:
        turn.owe(Owed("redrive", "link_redrive", plan.redrive_of, 1, now + effect_backoff(1)))
    return turn.decision(Outcome.APPLIED)


def _new_step(carried: Carried | None, now: datetime) -> Step:
    if carried is None:
        return Step(StepState.PENDING, updated_at=now)
    done = StepState.SUCCEEDED
    return Step(done, result_ref=carried.result_ref, updated_at=now, completed_at=now)


def decide(job: Job, received: Input, now: datetime) -> Decision:
    """Move a job by one input. Time never goes back; the answer is a value, nothing is performed.

    What the state of the job alone decides, its table answers. Everything else has a handler.
    """
    cell = JOB[job.state][received.kind]
    if cell.outcome is not None:
        return Decision(job, cell.outcome, changed=False, code=cell.code)
    turn = Turn(job, received.kind, max(now, job.updated_at))
    match received:
        case AckReceived() | ResultReceived() | HeartbeatReceived() | LeaseReturned():
            return callbacks.callback(turn, received)
        case ReplyRefused():
            return callbacks.refused(turn, received)
        case AttemptRequested():
            return attempt(turn, received)
        case EntryReleased():
            return released(turn, received)
        case PublishConfirmed() | PublishRefused():
            return published(turn, received)
        case DirectiveUnclaimed():
            return unclaimed(turn, received)
        case Ticked():
            return ticks.tick(turn, received)
        case BusRestarted():
            return ticks.bus_restarted(turn, received)
        case CancelRequested():
            return control.cancel(turn, received)
        case PauseRequested():
            return control.pause(turn, received)
        case ResumeRequested():
            return control.resume(turn, received)
        case RetryRequested():
            return control.retry(turn, received)
        case EffectSettled():
            return control.effect_settled(turn, received)
        case Dismissed():
            return control.dismissed(turn, received)
        case Redriven():
            return control.redriven(turn, received)
        case ResendRequested():
            return control.resend(turn, received)
