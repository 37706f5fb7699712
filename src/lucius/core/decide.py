"""The one function that moves a job: `decide(job, input, now)`. Pure, total, and led by the table."""

from datetime import datetime

from lucius.core import attempts, callbacks, control, dispatch, sequence, ticks
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
    ResultReceived,
    ResumeRequested,
    RetryRequested,
    Ticked,
)
from lucius.core.job import Job, Owed, Step
from lucius.core.plan import Carried, Json, Plan
from lucius.core.retry import effect_backoff
from lucius.core.states import JobState, StepState
from lucius.core.table import JOB
from lucius.core.turn import Turn


def submit(plan: Plan, now: datetime, said: Json | None = None) -> Decision:
    """A new job, with the directives of its first stage held in the outbox, or its workflow to be started.

    `said`: who redrove it, and what it was warned about.
    """
    steps = tuple(_new_step(plan.carried.get(step.step_id), now) for step in plan.steps)
    job = Job(plan, JobState.QUEUED, steps, updated_at=now, sla_at=now + plan.sla.job)
    turn = Turn(job, Kind.SUBMITTED, now)
    turn.data = said
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
            return attempts.attempt(turn, received)
        case EntryReleased():
            return dispatch.released(turn, received)
        case PublishConfirmed() | PublishRefused():
            return dispatch.published(turn, received)
        case DirectiveUnclaimed():
            return dispatch.unclaimed(turn, received)
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
