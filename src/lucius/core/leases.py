"""Leases that end without a result: given back by a service, or lost when their process died.

A few are free: a rolling restart or one crash is nobody's fault. From then on each uses up the attempt,
so that no step goes round for ever.
"""

from typing import Final
from zlib import crc32

from lucius.core import sequence
from lucius.core.job import Fault
from lucius.core.states import AbortReason, JobState
from lucius.core.turn import Turn

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
