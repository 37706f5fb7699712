"""The one function that moves a job: `decide(job, input, now)`. Pure, total, and checked by the table."""

from datetime import datetime

from lucius.core import callbacks, control, sequence, ticks
from lucius.core.effects import Decision, Outcome
from lucius.core.inputs import (
    AckReceived,
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
    ResultReceived,
    ResumeRequested,
    Ticked,
)
from lucius.core.job import Fault, Job, Owed
from lucius.core.plan import Plan
from lucius.core.record import evolve
from lucius.core.retry import Track, backoff, effect_backoff
from lucius.core.states import RUNNING_JOB, AbortReason, EntryState, JobState, StepState
from lucius.core.turn import Turn, about, blank_step, matches, rejected


def submit(plan: Plan, now: datetime) -> Decision:
    """A new job, with the directives of its first stage held in the outbox."""
    steps = tuple(blank_step(step.step_id in plan.carried, now) for step in plan.steps)
    steps = tuple(
        evolve(step, result_ref=plan.carried[planned.step_id].result_ref)
        if planned.step_id in plan.carried
        else step
        for planned, step in zip(plan.steps, steps, strict=True)
    )
    job = Job(plan, JobState.QUEUED, steps, updated_at=now, sla_at=now + plan.sla.job)
    turn = Turn(job, Kind.SUBMITTED, now)
    if any(step.state is StepState.PENDING for step in steps):
        turn.move_job(JobState.DISPATCHING)
        sequence.start_stage(turn)
    else:
        sequence.close(turn, JobState.SUCCEEDED, None)
    if plan.redrive_of is not None:
        link = Owed("redrive", "link_redrive", plan.redrive_of, 1, now + effect_backoff(1))
        turn.set_job(owed=(*turn.changes.get("owed", ()), link))
        turn.effects.append(sequence.effect_of(link))
    return turn.decision(Outcome.APPLIED)


def decide(job: Job, received: Input, now: datetime) -> Decision:
    """Move a job by one input. Time never goes back; the answer is a value, nothing is performed."""
    now = max(now, job.updated_at)
    turn = Turn(job, received.kind, now)
    match received:
        case AckReceived() | ResultReceived() | HeartbeatReceived() | LeaseReturned():
            return callbacks.callback(turn, received)
        case EntryReleased():
            return _entry_released(turn, received)
        case PublishConfirmed() | PublishRefused():
            return _published(turn, received)
        case DirectiveUnclaimed():
            return _unclaimed(turn, received)
        case Ticked():
            return ticks.tick(turn, received)
        case BusRestarted():
            return ticks.bus_restarted(turn, received)
        case CancelRequested():
            return control.cancel(turn, received)
        case PauseRequested():
            return control.pause(turn)
        case ResumeRequested():
            return control.resume(turn)
        case EffectSettled():
            return control.effect_settled(turn, received)
        case Dismissed():
            return control.dismissed(turn)
        case Redriven():
            return control.redriven(turn, received)


# -- dispatch --------------------------------------------------------------------------------


def _entry_released(turn: Turn, received: EntryReleased) -> Decision:
    index = turn.job.plan.index_of(received.step_id)
    if index is None or turn.state not in RUNNING_JOB or sequence.doomed(turn):
        return rejected(turn.job, "NOT_RELEASABLE")
    if not turn.steps[index].ready:
        return rejected(turn.job, "NOT_RELEASABLE")
    turn.release(index, received.lease_id)
    about(turn, received.step_id, turn.steps[index].execution)
    return turn.decision(Outcome.APPLIED)


def _published(turn: Turn, received: PublishConfirmed | PublishRefused) -> Decision:
    index = turn.job.plan.index_of(received.step_id)
    step = turn.steps[index] if index is not None else None
    execution = step.execution if step is not None else None
    waiting = step is not None and step.out and step.state is StepState.DISPATCHING
    if index is None or not waiting or not matches(execution, received):
        return Decision(turn.job, Outcome.ALREADY, changed=False)
    about(turn, received.step_id, execution)
    if isinstance(received, PublishConfirmed):
        turn.sent(index)
    else:
        _refused(turn, index, received.fault)
        sequence.settle(turn)
    return turn.decision(Outcome.APPLIED)


def _refused(turn: Turn, index: int, fault: Fault) -> None:
    """The attempt is used up; the entry stays pending and is leased anew when it is next released."""
    turn.data = {"fault": fault.code, "message": fault.message}
    used = turn.steps[index].used + 1
    policy = turn.plan(index).policy
    last = used >= policy.max_attempts
    turn.abort(index, AbortReason.PUBLISH_REFUSED, final=last)
    if last:
        turn.give_up(index, fault, used)
    elif turn.state is JobState.CANCELLING:
        turn.drop(index, used=used, fault=fault)
    else:
        wait = backoff(policy, Track.PUBLISH, used)
        turn.move_entry(
            index,
            EntryState.HELD,
            attempt_no=used + 1,
            lease_id=None,
            released_at=None,
            asked_at=None,
            ready_at=turn.now + wait,
        )
        step = turn.own_step(index)
        step.used, step.fault, step.updated_at = used, fault, turn.now


def _unclaimed(turn: Turn, received: DirectiveUnclaimed) -> Decision:
    """Written down for people, once an attempt. A service may be starting: the ACK clock still rules."""
    index = turn.job.plan.index_of(received.step_id)
    if index is None:
        return rejected(turn.job, "UNKNOWN_STEP")
    step = turn.steps[index]
    if not step.unacked or not matches(step.execution, received):
        return Decision(turn.job, Outcome.ALREADY, changed=False)
    if step.executions[-1].unclaimed_at is not None:
        return Decision(turn.job, Outcome.DUPLICATE, changed=False)
    about(turn, received.step_id, step.execution)
    turn.data = {"service": turn.plan(index).service, "topic": turn.job.plan.routing.topic}
    turn.own_execution(index).unclaimed_at = turn.now
    return turn.decision(Outcome.APPLIED)
