"""What services say: ACK, RESULT, HEARTBEAT and RELEASE, and whether they may still say it."""

from typing import Final
from zlib import crc32

from lucius.core import sequence
from lucius.core.effects import Decision, Outcome
from lucius.core.inputs import (
    AckReceived,
    Callback,
    HeartbeatReceived,
    LeaseReturned,
    ReplyRefused,
    ResultReceived,
    ResultStatus,
)
from lucius.core.job import (
    COMMITTED_EXECUTION,
    PRESUMED_DEAD,
    AbortReason,
    EntryState,
    Execution,
    ExecutionState,
    Fault,
    JobState,
    Step,
    StepState,
)
from lucius.core.plan import EMPTY, Json
from lucius.core.turn import Turn, speaks_for
from lucius.core.wire import bounded

# Leases that end without a result: given back by a service, or lost when their process died.
#
# A few are free: a rolling restart or one crash is nobody's fault. From then on each uses up the attempt,
# so that no step goes round for ever.

FREE_RETURNS: Final = 2
"""How often the lease of a step may be given back before it costs an attempt."""
FREE_DEATHS: Final = 1
"""How often a process may die at work on a step before it costs an attempt."""


def returned(turn: Turn, index: int) -> None:
    """A service gave the lease back, as one that drains does."""
    step = turn.own_step(index)
    step.returns += 1
    if step.returns <= FREE_RETURNS:
        _repeat(turn, index, AbortReason.RETURNED)
        return
    said = f"the lease of this step was given back {step.returns} times; {FREE_RETURNS} are free"
    _charge(turn, index, AbortReason.RETURNED, Fault("LEASE_RETURNED", said))


def died(turn: Turn, index: int) -> None:
    """The process in which the step was at work ended without a word.

    All that was at work then died with it, whoever was the cause. The waits differ, so that they do not
    all meet the cause again.
    """
    step = turn.own_step(index)
    step.deaths += 1
    if step.deaths <= FREE_DEATHS:
        _repeat(turn, index, AbortReason.PROCESS_DIED)
        return
    said = (
        f"its process died {step.deaths} times while this step was at work; {FREE_DEATHS} is free"
    )
    _charge(turn, index, AbortReason.PROCESS_DIED, Fault("PROCESS_DIED", said))
    if step.retry_at is not None:
        step.retry_at += _share(step.executions[-1].exec_id) * (step.retry_at - turn.now)


def _charge(turn: Turn, index: int, reason: AbortReason, fault: Fault) -> None:
    turn.explain(fault)
    turn.fail_attempt(index, reason, fault)


def _repeat(turn: Turn, index: int, reason: AbortReason) -> None:
    """The attempt is not used up: the same number is dispatched again under a new lease."""
    turn.abort(index, reason)
    if turn.state is JobState.CANCELLING or sequence.doomed(turn):
        turn.drop(index)
    elif turn.state is JobState.PAUSING or turn.job.plan.on_temporal:
        turn.put_back(index, turn.now)
    else:
        turn.hold(index)


def _share(lease_id: str) -> float:
    """A number from 0 to 1 that follows from the lease id: random, but the same for every look."""
    return crc32(lease_id.encode()) / 2**32


BAD_TOKEN: Final = "BAD_TOKEN"
"""Why a reply is refused: its callback token is missing where it is required, or is another one."""
MAX_NOTED: Final = 20
"""How many late, stale, refused and duplicate callbacks a job records before it stops writing them down."""
MAX_NOTED_MESSAGE: Final = 512
"""Characters of the error message of such a callback."""


def callback(turn: Turn, received: Callback) -> Decision:
    index = turn.job.plan.index_of(received.step_id)
    if index is None:
        return turn.unchanged(Outcome.REJECTED, "UNKNOWN_STEP")
    turn.subject = (received.step_id, received.attempt_no, received.lease_id)
    standing = _standing(turn, turn.steps[index], received)
    if standing is not Outcome.APPLIED:
        return _noted(turn, received, standing, _said(received))
    if isinstance(received, HeartbeatReceived):
        return _heartbeat(turn, index, received)
    if turn.steps[index].unacked:
        turn.started(index, received.worker_id)
    if isinstance(received, ResultReceived):
        _result(turn, index, received)
        sequence.advance(turn)
    elif isinstance(received, LeaseReturned):
        returned(turn, index)
        if received.by is not None:
            ordered = {"by": received.by, "reason": received.reason, "worker": received.worker_id}
            said = {name: value for name, value in ordered.items() if value is not None}
            turn.data = {**(turn.data or EMPTY), **said}
        sequence.advance(turn)
    _stamp(turn, received)
    return turn.decision(Outcome.APPLIED)


def refused(turn: Turn, received: ReplyRefused) -> Decision:
    """Recorded as a stale one is, whatever the attempt is that it speaks for."""
    reply = received.reply
    if turn.job.plan.index_of(reply.step_id) is None:
        return turn.unchanged(Outcome.REJECTED, "UNKNOWN_STEP")
    turn.subject = (reply.step_id, reply.attempt_no, reply.lease_id)
    said = {"fault": BAD_TOKEN, "message": received.message}
    return _noted(turn, reply, Outcome.REFUSED, said)


def _standing(turn: Turn, step: Step, received: Callback) -> Outcome:
    """Whether a callback speaks for the current attempt, repeats it, or comes too late for it."""
    spoken_for = _spoken_for(step, received)
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


def _spoken_for(step: Step, received: Callback) -> Execution | None:
    for execution in step.executions:
        if speaks_for(received, execution):
            return execution
    return None


def _answered(execution: Execution, received: Callback) -> bool:
    """Whether this lease has said the same before."""
    if isinstance(received, AckReceived):
        return execution.started_at is not None
    if isinstance(received, ResultReceived):
        failed = execution.reason is AbortReason.RESULT_FAILED
        return failed or execution.state in COMMITTED_EXECUTION
    if isinstance(received, LeaseReturned):
        return execution.reason is AbortReason.RETURNED
    return False


def _noted(turn: Turn, received: Callback, outcome: Outcome, said: Json) -> Decision:
    """Recorded, never applied; a flood of them stops being recorded."""
    if isinstance(received, HeartbeatReceived) or turn.job.noted >= MAX_NOTED:
        return turn.unchanged(outcome)
    turn.data = {"outcome": outcome.value, **said}
    _stamp(turn, received)
    turn.own_job().noted += 1
    return turn.decision(outcome)


def _said(received: Callback) -> Json:
    """How the work ended by a result that no longer counts. Bounded: there may be MAX_NOTED of them."""
    if not isinstance(received, ResultReceived):
        return EMPTY
    said = {"status": received.status.value}
    if received.fault is None:
        return said
    message = bounded(received.fault.message, MAX_NOTED_MESSAGE)
    return {**said, "fault": received.fault.code, "message": message}


def _stamp(turn: Turn, received: Callback) -> None:
    """The worker's own time, recorded and never compared."""
    if received.timestamp is not None:
        turn.data = {**(turn.data or EMPTY), "timestamp": received.timestamp}


def _heartbeat(turn: Turn, index: int, received: HeartbeatReceived) -> Decision:
    if turn.steps[index].unacked:
        turn.started(index, received.worker_id)
    turn.own_execution(index).lease_expires_at = turn.now + turn.plan(index).policy.lease
    return turn.decision(Outcome.APPLIED)


def _result(turn: Turn, index: int, received: ResultReceived) -> None:
    if received.status is ResultStatus.SUCCEEDED:
        _succeeded(turn, index, received)
        return
    fault = received.fault or Fault("STEP_FAILED", "the service reported a failure without a code")
    turn.explain(fault)
    if received.status is ResultStatus.FAILED_RETRY:
        turn.fail_attempt(index, AbortReason.RESULT_FAILED, fault)
    else:
        turn.own_step(index).used += 1
        turn.abort(index, AbortReason.RESULT_FAILED, final=True)
        turn.give_up(index, fault)


def _succeeded(turn: Turn, index: int, received: ResultReceived) -> None:
    """The result is durable. From an attempt that was given up for silent it proves the ACK too."""
    if turn.steps[index].held:
        turn.move_entry(index, EntryState.FAILED_FINAL).ready_at = None
    execution = turn.move_execution(index, ExecutionState.COMMITTED)
    execution.started_at = execution.started_at or turn.now
    execution.lease_owner = execution.lease_owner or received.worker_id
    execution.finished_at, execution.reason, execution.final = turn.now, None, False
    step = turn.move_step(index, StepState.SUCCEEDED)
    step.result_ref, step.completed_at = received.result_ref, turn.now
    step.retry_at = step.fault = None
    turn.acknowledged()
