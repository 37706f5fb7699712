"""What people ask for: cancel, pause, resume, retry, dismiss, redrive; and effects that are settled.

Each is called only where the job's table does not answer by itself.
"""

from dataclasses import replace

from lucius.core import sequence
from lucius.core.effects import Decision, Outcome
from lucius.core.inputs import (
    CancelRequested,
    Dismissed,
    EffectSettled,
    OrderInput,
    Redriven,
    ResendRequested,
)
from lucius.core.job import NOTIFY, TERMINAL_STEP, JobState, Owed, StepState, notices_of
from lucius.core.plan import Json
from lucius.core.retry import EFFECT_ATTEMPTS, WORKFLOW_EFFECTS, effect_backoff
from lucius.core.sequence import notices
from lucius.core.turn import WAKE, Turn


def audit_of(order: OrderInput) -> Json | None:
    """What an event says about its order: who gave it, and why."""
    given = {"by": order.by, "reason": order.reason}
    return {name: value for name, value in given.items() if value is not None} or None


def cancel(turn: Turn, received: CancelRequested) -> Decision:
    if turn.state is JobState.CANCELLING and not received.immediate:
        return turn.unchanged(Outcome.ALREADY)
    turn.data = audit_of(received)
    turn.own_job().cancel_requested_at = turn.job.cancel_requested_at or turn.now
    for index, step in enumerate(turn.steps):
        stoppable = received.immediate or not step.out
        if stoppable and step.state not in TERMINAL_STEP:
            turn.drop(index)
    if turn.out:
        turn.move_job(JobState.CANCELLING)
    else:
        sequence.end_job(turn, JobState.CANCELLED, None)
    return turn.decision(Outcome.APPLIED)


def pause(turn: Turn, received: OrderInput) -> Decision:
    turn.data = audit_of(received)
    for index, step in enumerate(turn.steps):
        if step.held:
            turn.withdraw(index)
    job = turn.move_job(JobState.PAUSING if turn.out else JobState.PAUSED)
    job.paused_at, job.sla_at = turn.now, turn.now + turn.job.plan.sla.pause
    return turn.decision(Outcome.APPLIED)


def resume(turn: Turn, received: OrderInput) -> Decision:
    if turn.state is JobState.QUEUED:
        return turn.unchanged(Outcome.ALREADY)
    turn.data = audit_of(received)
    if turn.job.first_ack_at is not None:
        turn.move_job(JobState.IN_PROGRESS)
    else:
        if turn.state is JobState.PAUSED:
            turn.move_job(JobState.QUEUED)
        turn.move_job(JobState.DISPATCHING)
    job = turn.own_job()
    job.paused_at, job.sla_at = None, turn.now + turn.job.plan.sla.job
    _end_backoffs(turn)
    sequence.advance(turn)
    return turn.decision(Outcome.APPLIED)


def retry(turn: Turn, received: OrderInput) -> Decision:
    """ALREADY: nothing of the job waits for a backoff."""
    _end_backoffs(turn)
    if not turn.changed:
        return turn.unchanged(Outcome.ALREADY)
    turn.data = audit_of(received)
    if turn.job.plan.on_temporal:
        turn.signal(WAKE)
    return turn.decision(Outcome.APPLIED)


def _end_backoffs(turn: Turn) -> None:
    """What waits to be tried or published again is wanted now. A job that has failed has nothing such.

    A workflow asks for its attempts itself: it may do so at once.
    """
    for index, step in enumerate(turn.steps):
        if step.state is StepState.FAILED_RETRY and turn.job.plan.on_temporal:
            turn.own_step(index).retry_at = turn.now
        elif step.state is StepState.FAILED_RETRY:
            turn.hold(index)
        elif step.held and turn.entry(index).ready_at is not None:
            turn.own_entry(index).ready_at = None


def dismissed(turn: Turn, received: Dismissed) -> Decision:
    if not turn.job.in_dlq:
        return turn.unchanged(Outcome.ALREADY)
    turn.data = {"dismissed": True, **(audit_of(received) or {})}
    turn.own_job().dismissed_at = turn.now
    return turn.decision(Outcome.APPLIED)


def redriven(turn: Turn, received: Redriven) -> Decision:
    if turn.job.redriven_by is not None:
        return turn.unchanged(Outcome.ALREADY)
    turn.data = {"redriven_by": received.job_id}
    turn.own_job().redriven_by = received.job_id
    return turn.decision(Outcome.APPLIED)


def resend(turn: Turn, received: ResendRequested) -> Decision:
    """Those that are still owed; where none is, all of them: receivers know a notice by its id."""
    if not turn.job.plan.callback_urls:
        return turn.unchanged(Outcome.REJECTED, "NOTHING_TO_SEND")
    turn.data = audit_of(received)
    again = notices_of(turn.job) or notices(turn.job.plan.callback_urls, turn.now)
    kept = tuple(owed for owed in turn.job.owed if owed.kind != NOTIFY)
    turn.own_job().owed = kept
    for owed in again:
        turn.owe(replace(owed, next_at=turn.now + effect_backoff(owed.attempts, owed.kind)))
    return turn.decision(Outcome.APPLIED)


def _failed_try(turn: Turn, owed: Owed, reason: str | None) -> Decision:
    """It is tried again. Why a client could not be told is kept for whoever asks."""
    if reason is None or reason == owed.fault or owed.kind in WORKFLOW_EFFECTS:
        return turn.unchanged(Outcome.APPLIED)
    failed = replace(owed, fault=reason)
    turn.own_job().owed = tuple(failed if o is owed else o for o in turn.job.owed)
    return turn.decision(Outcome.APPLIED)


def effect_settled(turn: Turn, received: EffectSettled) -> Decision:
    owed = next((o for o in turn.job.owed if o.owed_id == received.owed_id), None)
    if owed is None:
        return turn.unchanged(Outcome.ALREADY)
    endless = owed.kind in WORKFLOW_EFFECTS
    given_up = received.final or (owed.attempts >= EFFECT_ATTEMPTS and not endless)
    if not received.performed and not given_up:
        return _failed_try(turn, owed, received.reason)
    if not endless:
        turn.data = {"effect": owed.kind, "owed_id": owed.owed_id, "performed": received.performed}
        if received.reason is not None:
            turn.data["reason"] = received.reason
    turn.own_job().owed = tuple(o for o in turn.job.owed if o.owed_id != received.owed_id)
    return turn.decision(Outcome.APPLIED)
