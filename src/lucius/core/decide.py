"""The one function that moves a job: `decide(job, input, now)`. Pure, total, and checked by the table."""

from datetime import datetime

from lucius.core.effects import Decision, Effect, LinkRedrive, NotifyClient, Outcome
from lucius.core.evolve import evolve
from lucius.core.inputs import (
    AckReceived,
    BusRestarted,
    Callback,
    CancelRequested,
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
    ResultStatus,
    ResumeRequested,
    Ticked,
)
from lucius.core.job import Execution, Fault, Job, Owed, Step
from lucius.core.plan import Plan
from lucius.core.retry import EFFECT_ATTEMPTS, PUBLISH_GRACE, Track, backoff, effect_backoff
from lucius.core.states import (
    PRESUMED_DEAD,
    RUNNING_JOB,
    TERMINAL_JOB,
    TERMINAL_STEP,
    AbortReason,
    EntryState,
    ExecutionState,
    JobState,
    StepState,
)
from lucius.core.turn import MAX_NOTED, Turn, blank_step

ACK_TIMEOUT = Fault("ACK_TIMEOUT", "no service acknowledged the directive in time")
LEASE_EXPIRED = Fault("LEASE_EXPIRED", "the service fell silent: its lease ran out")
SLA_EXCEEDED = Fault("SLA_EXCEEDED", "the job took longer than it may")


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
        _start_stage(turn)
    else:
        _close(turn, JobState.SUCCEEDED, None)
    if plan.redrive_of is not None:
        link = Owed("redrive", "link_redrive", plan.redrive_of, 1, now + effect_backoff(1))
        turn.set_job(owed=(*turn.changes.get("owed", ()), link))
        turn.effects.append(_effect_of(link))
    return turn.decision(Outcome.APPLIED)


def decide(job: Job, received: Input, now: datetime) -> Decision:
    """Move a job by one input. Time never goes back; the answer is a value, nothing is performed."""
    now = max(now, job.updated_at)
    turn = Turn(job, received.kind, now)
    match received:
        case EntryReleased():
            return _entry_released(turn, received)
        case PublishConfirmed() | PublishRefused():
            return _published(turn, received)
        case AckReceived() | HeartbeatReceived() | LeaseReturned() | ResultReceived():
            return _callback(turn, received)
        case Ticked():
            return _tick(turn, received)
        case BusRestarted():
            return _bus_restarted(turn, received)
        case CancelRequested():
            return _cancel(turn, received)
        case PauseRequested():
            return _pause(turn)
        case ResumeRequested():
            return _resume(turn)
        case EffectSettled():
            return _effect_settled(turn, received)
        case Dismissed():
            return _dismissed(turn)
        case Redriven():
            return _redriven(turn, received)


# -- dispatch --------------------------------------------------------------------------------


def _entry_released(turn: Turn, received: EntryReleased) -> Decision:
    index = turn.job.plan.index_of(received.step_id)
    if index is None or turn.state not in RUNNING_JOB or _doomed(turn):
        return rejected(turn.job, "NOT_RELEASABLE")
    if not turn.steps[index].ready:
        return rejected(turn.job, "NOT_RELEASABLE")
    turn.release(index, received.lease_id)
    _about(turn, received.step_id, turn.steps[index].execution)
    return turn.decision(Outcome.APPLIED)


def _published(turn: Turn, received: PublishConfirmed | PublishRefused) -> Decision:
    index = turn.job.plan.index_of(received.step_id)
    step = turn.steps[index] if index is not None else None
    execution = step.execution if step is not None else None
    waiting = step is not None and step.out and step.state is StepState.DISPATCHING
    if index is None or not waiting or not _matches(execution, received):
        return Decision(turn.job, Outcome.ALREADY, changed=False)
    _about(turn, received.step_id, execution)
    if isinstance(received, PublishConfirmed):
        turn.sent(index)
    else:
        _refused(turn, index, received.fault)
        _settle(turn)
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
        turn.set_step(index, used=used, fault=fault, updated_at=turn.now)


# -- callbacks -------------------------------------------------------------------------------


def _callback(turn: Turn, received: Callback) -> Decision:
    index = turn.job.plan.index_of(received.step_id)
    if index is None:
        return rejected(turn.job, "UNKNOWN_STEP")
    _about(turn, received.step_id, None, received.attempt_no, received.lease_id)
    standing = _standing(turn, turn.steps[index], received)
    if standing is not Outcome.APPLIED:
        return _noted(turn, received, standing)
    if isinstance(received, HeartbeatReceived):
        return _heartbeat(turn, index, received)
    if turn.steps[index].unacked:
        turn.started(index, received.worker_id)
    if isinstance(received, ResultReceived):
        _result(turn, index, received)
        _settle(turn)
    elif isinstance(received, LeaseReturned):
        _returned(turn, index)
        _settle(turn)
    return turn.decision(Outcome.APPLIED)


def _standing(turn: Turn, step: Step, received: Callback) -> Outcome:
    """Whether a callback speaks for the current attempt, repeats it, or comes too late for it."""
    spoken_for = next((e for e in step.executions if _matches(e, received)), None)
    if spoken_for is not None and _answered(spoken_for, received):
        return Outcome.DUPLICATE
    if turn.job.terminal:
        return Outcome.LATE
    if spoken_for is None or spoken_for is not step.execution:
        return Outcome.STALE
    if step.out:
        return Outcome.APPLIED
    revives = (
        isinstance(received, ResultReceived)
        and received.status is ResultStatus.SUCCEEDED
        and spoken_for.reason in PRESUMED_DEAD
        and (step.state is StepState.FAILED_RETRY or step.held)
    )
    if revives:
        return Outcome.APPLIED
    return Outcome.LATE


def _answered(execution: Execution, received: Callback) -> bool:
    """The same has been heard from this lease before."""
    if isinstance(received, AckReceived):
        return execution.started_at is not None
    if isinstance(received, ResultReceived):
        return (
            execution.state in (ExecutionState.COMMITTED, ExecutionState.DONE)
            or execution.reason is AbortReason.RESULT_FAILED
        )
    if isinstance(received, LeaseReturned):
        return execution.reason is AbortReason.RETURNED
    return False


def _noted(turn: Turn, received: Callback, outcome: Outcome) -> Decision:
    """Recorded, never applied; a flood of them stops being recorded."""
    if isinstance(received, HeartbeatReceived) or turn.job.noted >= MAX_NOTED:
        return Decision(turn.job, outcome, changed=False)
    turn.data = {"outcome": outcome.value}
    turn.set_job(noted=turn.job.noted + 1)
    return turn.decision(outcome)


def _heartbeat(turn: Turn, index: int, received: HeartbeatReceived) -> Decision:
    if turn.steps[index].unacked:
        turn.started(index, received.worker_id)
    turn.set_execution(index, lease_expires_at=turn.now + turn.plan(index).policy.lease)
    return turn.decision(Outcome.APPLIED)


def _result(turn: Turn, index: int, received: ResultReceived) -> None:
    if received.status is ResultStatus.SUCCEEDED:
        _succeeded(turn, index, received)
        return
    fault = received.fault or Fault("STEP_FAILED", "the service reported a failure without a code")
    turn.data = {"fault": fault.code, "message": fault.message}
    if received.status is ResultStatus.FAILED_RETRY:
        turn.fail_attempt(index, Track.EXECUTION, AbortReason.RESULT_FAILED, fault)
    else:
        turn.abort(index, AbortReason.RESULT_FAILED, final=True)
        turn.give_up(index, fault, turn.steps[index].used + 1)


def _succeeded(turn: Turn, index: int, received: ResultReceived) -> None:
    """The result is durable. From an attempt that was given up for silent it proves the ACK too."""
    step, execution = turn.steps[index], turn.steps[index].executions[-1]
    if step.held:
        turn.move_entry(index, EntryState.FAILED_FINAL, ready_at=None)
    turn.move_execution(
        index,
        ExecutionState.COMMITTED,
        started_at=execution.started_at or turn.now,
        lease_owner=execution.lease_owner or received.worker_id,
        finished_at=turn.now,
        reason=None,
        final=False,
    )
    turn.move_step(
        index,
        StepState.SUCCEEDED,
        result_ref=received.result_ref,
        retry_at=None,
        fault=None,
        completed_at=turn.now,
    )
    turn.acknowledged()


def _returned(turn: Turn, index: int) -> None:
    """The attempt is not used up: the same number is dispatched again under a new lease."""
    turn.abort(index, AbortReason.RETURNED)
    if turn.state is JobState.CANCELLING or _doomed(turn):
        turn.drop(index)
    elif turn.state is JobState.PAUSING:
        turn.put_back(index, turn.now)
    else:
        turn.hold(index)


# -- time ------------------------------------------------------------------------------------


def _tick(turn: Turn, received: Ticked) -> Decision:
    for owed in turn.job.owed:
        if owed.next_at <= turn.now:
            turn.effects.append(_effect_of(owed))
            _postpone(turn, owed)
    if turn.job.terminal:
        return turn.decision(Outcome.APPLIED)
    if turn.state is not JobState.PAUSED:
        for index in range(len(turn.steps)):
            _tick_step(turn, index, received.publish_now)
        _settle(turn)
    if turn.job.sla_at <= turn.now and turn.state not in TERMINAL_JOB:
        _escalate(turn)
    return turn.decision(Outcome.APPLIED)


def _tick_step(turn: Turn, index: int, publish_now: bool) -> None:
    step, now = turn.steps[index], turn.now
    plan = turn.plan(index)
    if step.out and step.state is StepState.DISPATCHING:
        asked_at = turn.entry(index).asked_at
        if asked_at is None or publish_now or asked_at + PUBLISH_GRACE <= now:
            turn.ask_publish_again(index)
    elif step.out and _lease_over(step, now):
        waiting = step.state is StepState.AWAITING_ACK
        track = Track.ACK if waiting else Track.EXECUTION
        reason = AbortReason.ACK_TIMEOUT if waiting else AbortReason.LEASE_EXPIRED
        _about(turn, plan.step_id, step.execution)
        turn.fail_attempt(index, track, reason, ACK_TIMEOUT if waiting else LEASE_EXPIRED)
    elif turn.state not in RUNNING_JOB or _doomed(turn):
        return
    elif step.state is StepState.FAILED_RETRY and (step.retry_at or now) <= now:
        _about(turn, plan.step_id, None)
        turn.hold(index)
    elif step.held and _refusal_over(turn.entry(index).ready_at, now, publish_now):
        turn.set_entry(index, ready_at=None)


def _refusal_over(ready_at: datetime | None, now: datetime, publish_now: bool) -> bool:
    """Whether a held entry has waited out its refused publish, or need not."""
    return ready_at is not None and (publish_now or ready_at <= now)


def _lease_over(step: Step, now: datetime) -> bool:
    expires_at = step.executions[-1].lease_expires_at
    return expires_at is not None and expires_at <= now


def _escalate(turn: Turn) -> None:
    """Beyond its SLA: someone is told, again and again, or the job fails where so configured."""
    paused = turn.state in (JobState.PAUSING, JobState.PAUSED)
    sla = turn.job.plan.sla
    turn.data = {"escalated": "pause_sla" if paused else "job_sla"}
    turn.set_job(sla_at=turn.now + (sla.pause if paused else sla.job))
    if turn.state is JobState.CANCELLING:
        return
    if sla.fail_pause if paused else sla.fail_job:
        for index, step in enumerate(turn.steps):
            if step.out or step.held or step.state is StepState.FAILED_RETRY:
                turn.abort(index, AbortReason.SLA, final=True)
                turn.give_up(index, SLA_EXCEEDED, step.used)
        _close(turn, JobState.FAILED_FINAL, SLA_EXCEEDED)


def _bus_restarted(turn: Turn, received: BusRestarted) -> Decision:
    """What a volatile bus held is published again as the same attempt; dead services' leases end."""
    for index, step in enumerate(turn.steps):
        if not step.out:
            continue
        if step.state is StepState.IN_PROGRESS:
            owner = step.executions[-1].lease_owner
            if owner is not None and owner.startswith(received.lost_owner):
                _about(turn, turn.plan(index).step_id, step.execution)
                _returned(turn, index)
        elif step.state is StepState.AWAITING_ACK:
            expires_at = turn.now + turn.plan(index).policy.ack_timeout
            turn.set_execution(index, lease_expires_at=expires_at)
            turn.ask_publish(index)
        else:
            turn.ask_publish_again(index)
    if not turn.job.terminal:
        _settle(turn)
    return turn.decision(Outcome.APPLIED)


# -- control ---------------------------------------------------------------------------------


def _cancel(turn: Turn, received: CancelRequested) -> Decision:
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
        _close(turn, JobState.CANCELLED, None)
    return turn.decision(Outcome.APPLIED)


def _pause(turn: Turn) -> Decision:
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


def _resume(turn: Turn) -> Decision:
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
    _settle(turn)
    return turn.decision(Outcome.APPLIED)


def _dismissed(turn: Turn) -> Decision:
    if turn.state is not JobState.FAILED_FINAL:
        return rejected(turn.job, "NOT_IN_DLQ")
    if not turn.job.in_dlq:
        return Decision(turn.job, Outcome.ALREADY, changed=False)
    turn.data = {"dismissed": True}
    turn.set_job(dismissed_at=turn.now)
    return turn.decision(Outcome.APPLIED)


def _redriven(turn: Turn, received: Redriven) -> Decision:
    if turn.state not in (JobState.FAILED_FINAL, JobState.CANCELLED):
        return rejected(turn.job, "NOT_REDRIVABLE")
    if turn.job.redriven_by is not None:
        return Decision(turn.job, Outcome.ALREADY, changed=False)
    turn.data = {"redriven_by": received.job_id}
    turn.set_job(redriven_by=received.job_id)
    return turn.decision(Outcome.APPLIED)


# -- owed effects ----------------------------------------------------------------------------


def _effect_of(owed: Owed) -> Effect:
    if owed.kind == "link_redrive":
        return LinkRedrive(owed.owed_id, owed.target)
    return NotifyClient(owed.owed_id, owed.target)


def _postpone(turn: Turn, owed: Owed) -> None:
    attempts = owed.attempts + 1
    later = evolve(owed, attempts=attempts, next_at=turn.now + effect_backoff(attempts))
    current: tuple[Owed, ...] = turn.changes.get("owed", turn.job.owed)
    turn.set_job(owed=tuple(later if o.owed_id == owed.owed_id else o for o in current))


def _effect_settled(turn: Turn, received: EffectSettled) -> Decision:
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


# -- sequencing ------------------------------------------------------------------------------


def _doomed(turn: Turn) -> bool:
    """A step has failed for good: others may finish, nothing new starts."""
    return any(step.state is StepState.FAILED_FINAL for step in turn.steps)


def _settle(turn: Turn) -> None:
    """After steps have moved: close the job, complete a pause, or start the next stage."""
    out = any(step.out for step in turn.steps)
    if turn.state is JobState.CANCELLING:
        if not out:
            _close(turn, JobState.CANCELLED, None)
    elif _doomed(turn):
        for index, step in enumerate(turn.steps):
            if step.held or step.state is StepState.FAILED_RETRY:
                turn.drop(index)
        if not out:
            _close(turn, JobState.FAILED_FINAL, _first_fault(turn))
    elif all(step.state is StepState.SUCCEEDED for step in turn.steps):
        _close(turn, JobState.SUCCEEDED, None)
    elif turn.state is JobState.PAUSING:
        for index, step in enumerate(turn.steps):
            if step.held:
                turn.withdraw(index)
        if not out:
            turn.move_job(JobState.PAUSED)
    elif turn.state in (JobState.DISPATCHING, JobState.IN_PROGRESS):
        _start_stage(turn)


def _start_stage(turn: Turn) -> None:
    """Dispatch what is pending in the first stage that is not finished."""
    plan = turn.job.plan.steps
    unfinished = [i for i, s in enumerate(turn.steps) if s.state is not StepState.SUCCEEDED]
    stage = min(plan[i].stage for i in unfinished)
    for index in unfinished:
        if plan[index].stage == stage and turn.steps[index].state is StepState.PENDING:
            turn.hold(index)


def _first_fault(turn: Turn) -> Fault | None:
    failed = (step for step in turn.steps if step.state is StepState.FAILED_FINAL)
    return next((step.fault for step in failed), None)


def _close(turn: Turn, state: JobState, fault: Fault | None) -> None:
    """The job ends: what was committed is done, and the client's webhooks are owed."""
    turn.finish_committed()
    if state is not JobState.SUCCEEDED:
        _mark_unfinished(turn, fault)
    turn.move_job(state)
    turn.set_job(completed_at=turn.now, fault=fault, paused_at=None)
    if state is JobState.SUCCEEDED:
        last = turn.steps[-1].result_ref
        turn.set_job(final_output=last if last is not None else turn.job.plan.output_ref)
    for number, url in enumerate(turn.job.plan.callback_urls):
        owed = Owed(f"notify-{number}", "notify_client", url, 1, turn.now + effect_backoff(1))
        turn.set_job(owed=(*turn.changes.get("owed", turn.job.owed), owed))
        turn.effects.append(_effect_of(owed))


def _mark_unfinished(turn: Turn, fault: Fault | None) -> None:
    """`phase` reads executions alone, so a job that ends without success leaves a final one."""
    if any(execution.final for step in turn.steps for execution in step.executions):
        return
    at = next((i for i, s in enumerate(turn.steps) if s.state is not StepState.SUCCEEDED), -1)
    index = at % len(turn.steps)
    mark = Execution(
        exec_id=f"{turn.job.job_id}:closed",
        attempt_no=0,
        state=ExecutionState.ABORTED,
        leased_at=turn.now,
        finished_at=turn.now,
        reason=AbortReason.SLA if fault is SLA_EXCEEDED else AbortReason.CANCELLED,
        final=True,
    )
    turn.set_step(index, executions=(*turn.steps[index].executions, mark))


def rejected(job: Job, code: str) -> Decision:
    return Decision(job, Outcome.REJECTED, changed=False, code=code)


def _matches(execution: Execution | None, received: object) -> bool:
    return (
        execution is not None
        and execution.exec_id == getattr(received, "lease_id", None)
        and execution.attempt_no == getattr(received, "attempt_no", None)
    )


def _about(
    turn: Turn,
    step_id: str,
    execution: Execution | None,
    attempt_no: int | None = None,
    lease_id: str | None = None,
) -> None:
    if execution is not None:
        attempt_no, lease_id = execution.attempt_no, execution.exec_id
    turn.subject = (step_id, attempt_no, lease_id)
