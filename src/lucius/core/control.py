"""What people ask for: cancel, pause, resume, dismiss, redrive; and effects that are settled."""

from lucius.core import sequence
from lucius.core.effects import Decision, Outcome
from lucius.core.inputs import CancelRequested, EffectSettled, Redriven
from lucius.core.retry import EFFECT_ATTEMPTS
from lucius.core.states import TERMINAL_STEP, JobState
from lucius.core.turn import Turn, rejected


def cancel(turn: Turn, received: CancelRequested) -> Decision:
    if turn.state is JobState.CANCELLED:
        return Decision(turn.job, Outcome.ALREADY, changed=False)
    if turn.job.terminal:
        return rejected(turn.job, "JOB_TERMINAL")
    if turn.state is JobState.CANCELLING and not received.immediate:
        return Decision(turn.job, Outcome.ALREADY, changed=False)
    turn.set_job(cancel_requested_at=turn.job.cancel_requested_at or turn.now)
    for index, step in enumerate(turn.steps):
        stoppable = received.immediate or not step.out
        if stoppable and step.state not in TERMINAL_STEP:
            turn.drop(index)
    if any(step.out for step in turn.steps):
        turn.move_job(JobState.CANCELLING)
    else:
        sequence.close(turn, JobState.CANCELLED, None)
    return turn.decision(Outcome.APPLIED)


def pause(turn: Turn) -> Decision:
    if turn.job.terminal:
        return rejected(turn.job, "JOB_TERMINAL")
    if turn.state is JobState.CANCELLING:
        return rejected(turn.job, "JOB_CANCELLING")
    if turn.state in (JobState.PAUSING, JobState.PAUSED):
        return Decision(turn.job, Outcome.ALREADY, changed=False)
    for index, step in enumerate(turn.steps):
        if step.held:
            turn.withdraw(index)
    turn.set_job(paused_at=turn.now, sla_at=turn.now + turn.job.plan.sla.pause)
    out = any(step.out for step in turn.steps)
    turn.move_job(JobState.PAUSING if out else JobState.PAUSED)
    return turn.decision(Outcome.APPLIED)


def resume(turn: Turn) -> Decision:
    if turn.job.terminal:
        return rejected(turn.job, "JOB_TERMINAL")
    if turn.state is JobState.CANCELLING:
        return rejected(turn.job, "JOB_CANCELLING")
    if turn.state not in (JobState.PAUSING, JobState.PAUSED):
        return Decision(turn.job, Outcome.ALREADY, changed=False)
    paused = turn.state is JobState.PAUSED
    turn.set_job(paused_at=None, sla_at=turn.now + turn.job.plan.sla.job)
    if turn.job.first_ack_at is not None:
        turn.move_job(JobState.IN_PROGRESS)
    else:
        if paused:
            turn.move_job(JobState.QUEUED)
        turn.move_job(JobState.DISPATCHING)
    sequence.settle(turn)
    return turn.decision(Outcome.APPLIED)


def dismissed(turn: Turn) -> Decision:
    if turn.state is not JobState.FAILED_FINAL:
        return rejected(turn.job, "NOT_IN_DLQ")
    if not turn.job.in_dlq:
        return Decision(turn.job, Outcome.ALREADY, changed=False)
    turn.data = {"dismissed": True}
    turn.set_job(dismissed_at=turn.now)
    return turn.decision(Outcome.APPLIED)


def redriven(turn: Turn, received: Redriven) -> Decision:
    if turn.state not in (JobState.FAILED_FINAL, JobState.CANCELLED):
        return rejected(turn.job, "NOT_REDRIVABLE")
    if turn.job.redriven_by is not None:
        return Decision(turn.job, Outcome.ALREADY, changed=False)
    turn.data = {"redriven_by": received.job_id}
    turn.set_job(redriven_by=received.job_id)
    return turn.decision(Outcome.APPLIED)


def effect_settled(turn: Turn, received: EffectSettled) -> Decision:
    owed = next((o for o in turn.job.owed if o.owed_id == received.owed_id), None)
    if owed is None:
        return Decision(turn.job, Outcome.ALREADY, changed=False)
    given_up = received.final or owed.attempts >= EFFECT_ATTEMPTS
    if not received.performed and not given_up:
        return Decision(turn.job, Outcome.APPLIED, changed=False)
    turn.data = {"effect": owed.kind, "owed_id": owed.owed_id, "performed": received.performed}
    if received.reason is not None:
        turn.data["reason"] = received.reason
    turn.set_job(owed=tuple(o for o in turn.job.owed if o.owed_id != received.owed_id))
    return turn.decision(Outcome.APPLIED)
