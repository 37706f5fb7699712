"""What time alone does: timeouts, retries, escalation; and what a restarted bus has lost."""

from dataclasses import replace
from datetime import datetime

from lucius.core import callbacks, sequence
from lucius.core.effects import Decision, Outcome
from lucius.core.inputs import BusRestarted, Ticked
from lucius.core.job import (
    PAUSED_JOB,
    RUNNING_JOB,
    TERMINAL_JOB,
    AbortReason,
    Fault,
    JobState,
    Owed,
    Step,
    StepState,
)
from lucius.core.plan import StepPlan
from lucius.core.retry import OVERDUE, PUBLISH_GRACE, effect_backoff, timer_at
from lucius.core.turn import WAKE, Turn

ACK_TIMEOUT = Fault("ACK_TIMEOUT", "no service acknowledged the directive in time")
STOPPABLE = (*RUNNING_JOB, *PAUSED_JOB)
"""States in which a job fails at its limit. One that is being cancelled ends as cancelled."""
PATIENCE = 4
"""Leases for which a directive may wait behind others: the window lets few more out at the start."""
LEASE_EXPIRED = Fault("LEASE_EXPIRED", "the service fell silent: its lease ran out")


def tick(turn: Turn, received: Ticked) -> Decision:
    for owed in turn.job.owed:
        if owed.next_at <= turn.now:
            turn.perform(owed)
            _postpone(turn, owed)
    if turn.job.terminal:
        return turn.decision(Outcome.APPLIED)
    if turn.job.plan.on_temporal and not received.asked:
        return _remind(turn)
    if received.asked:
        turn.has_workflow(answered=received.told)
        turn.told = received.told
    if turn.state is not JobState.PAUSED:
        for index in range(len(turn.steps)):
            _tick_step(turn, index, received)
        sequence.advance(turn)
    limit_at = turn.job.plan.limit_at
    if limit_at is not None and limit_at <= turn.now and turn.state in STOPPABLE:
        _fail(turn, sequence.WORKFLOW_TIMEOUT)
    if turn.job.sla_at <= turn.now and turn.state not in TERMINAL_JOB:
        _escalate(turn)
    return turn.decision(Outcome.APPLIED)


def _remind(turn: Turn) -> Decision:
    """Time is the workflow's. Only what another process left is taken up, and a late timer is told of."""
    for index, step in enumerate(turn.steps):
        if step.asked_for and turn.entry(index).ready_at is not None:
            turn.own_entry(index).ready_at = None
    starting = any(owed.kind == "start_workflow" for owed in turn.job.owed)
    late = max(timer_at(turn.job), turn.job.updated_at) + OVERDUE <= turn.now
    if late and not starting:
        turn.signal(WAKE)
    return turn.decision(Outcome.APPLIED)


def _tick_step(turn: Turn, index: int, received: Ticked) -> None:
    step, now, publish_now = turn.steps[index], turn.now, received.publish_now
    plan = turn.plan(index)
    if step.state is StepState.DISPATCHING and turn.job.plan.on_temporal:
        return  # its workflow publishes it, or asks for it
    if step.out and step.state is StepState.DISPATCHING:
        asked_at = turn.entry(index).asked_at
        if asked_at is None or publish_now or asked_at + PUBLISH_GRACE <= now:
            turn.ask_publish_again(index)
    elif step.out and _lease_over(step, now) and _excused(step, plan, received, now):
        waiting = step.state is StepState.AWAITING_ACK
        again = plan.policy.ack_timeout if waiting else plan.policy.lease
        turn.own_execution(index).lease_expires_at = now + again
    elif step.out and _lease_over(step, now):
        waiting = step.state is StepState.AWAITING_ACK
        reason = AbortReason.ACK_TIMEOUT if waiting else AbortReason.LEASE_EXPIRED
        turn.about(index)
        turn.fail_attempt(index, reason, ACK_TIMEOUT if waiting else LEASE_EXPIRED)
    elif turn.state not in RUNNING_JOB or sequence.doomed(turn) or turn.job.plan.on_temporal:
        return
    elif step.state is StepState.FAILED_RETRY and (step.retry_at or now) <= now:
        turn.subject = (plan.step_id, None, None)
        turn.hold(index)
    elif step.held and _refusal_over(turn.entry(index).ready_at, now, publish_now):
        turn.own_entry(index).ready_at = None


def _refusal_over(ready_at: datetime | None, now: datetime, publish_now: bool) -> bool:
    """Whether a held entry has waited out its refused publish, or need not."""
    return ready_at is not None and (publish_now or ready_at <= now)


def _lease_over(step: Step, now: datetime) -> bool:
    expires_at = step.executions[-1].lease_expires_at
    return expires_at is not None and expires_at <= now


def _excused(step: Step, plan: StepPlan, received: Ticked, now: datetime) -> bool:
    """Whether silence proves nothing: the service is paused, nobody could hear it, or it is busy."""
    if step.executions[-1].exec_id in received.on_hold:
        return True
    deaf = received.deaf_until is not None and _lease_over(step, received.deaf_until)
    return deaf or _queued(step, plan, received, now)


def _queued(step: Step, plan: StepPlan, received: Ticked, now: datetime) -> bool:
    """Overload is not failure. But nothing waits for ever: some of those before it might be lost, too."""
    execution = step.executions[-1]
    waits = step.state is StepState.AWAITING_ACK and execution.exec_id in received.queued
    return waits and now < execution.leased_at + PATIENCE * plan.policy.lease


def _escalate(turn: Turn) -> None:
    """Beyond its SLA: someone is told, again and again, or the job fails where so configured."""
    paused = turn.state in PAUSED_JOB
    sla = turn.job.plan.sla
    turn.data = {"escalated": "pause_sla" if paused else "job_sla"}
    turn.own_job().sla_at = turn.now + (sla.pause if paused else sla.job)
    if turn.state is JobState.CANCELLING:
        return
    if sla.fail_pause if paused else sla.fail_job:
        _fail(turn, sequence.SLA_EXCEEDED)


def _fail(turn: Turn, fault: Fault) -> None:
    """Fail the job: its time is over."""
    for index, step in enumerate(turn.steps):
        if step.out or step.held or step.state is StepState.FAILED_RETRY:
            turn.abort(index, AbortReason.SLA, final=True)
            turn.give_up(index, fault)
    sequence.end_job(turn, JobState.FAILED_FINAL, fault)


def bus_restarted(turn: Turn, received: BusRestarted) -> Decision:
    """What a volatile bus held is published again as the same attempt; leases of dead services end.

    Only the second death at work costs an attempt: see `leases.died`. Who died before comes first: it may
    fail the job, and then nothing of it starts again.
    """
    for index in sorted(range(len(turn.steps)), key=lambda index: -turn.steps[index].deaths):
        step = turn.steps[index]
        if not step.out:
            continue
        if step.state is StepState.IN_PROGRESS:
            owner = step.executions[-1].lease_owner
            if owner is not None and owner.startswith(received.lost_owner):
                turn.about(index)
                callbacks.died(turn, index)
        elif received.kept:
            continue
        elif step.state is StepState.AWAITING_ACK:
            expires_at = turn.now + turn.plan(index).policy.ack_timeout
            turn.own_execution(index).lease_expires_at = expires_at
            turn.ask_publish(index)
        elif not turn.job.plan.on_temporal:
            turn.ask_publish_again(index)
    if not turn.job.terminal:
        sequence.advance(turn)
    return turn.decision(Outcome.APPLIED)


def _postpone(turn: Turn, owed: Owed) -> None:
    attempts = owed.attempts + 1
    later = replace(owed, attempts=attempts, next_at=turn.now + effect_backoff(attempts, owed.kind))
    job = turn.own_job()
    job.owed = tuple(later if o.owed_id == owed.owed_id else o for o in job.owed)
