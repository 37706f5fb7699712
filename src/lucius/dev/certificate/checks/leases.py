"""Leases, heartbeats and cancelling"""

import asyncio
from itertools import pairwise

from lucius.dev.certificate.exam import (
    ACK,
    APPLIED,
    CANCEL,
    HEARTBEAT,
    RESULT,
    STALE,
    UNAVAILABLE,
    BrokenError,
)
from lucius.dev.certificate.trial import Trial, check


@check(
    "heartbeats-while-working",
    promise="Between ACK, heartbeats and RESULT there is never more time than `lease_seconds`.",
    remedy="Send heartbeats three times a lease, from a task or thread that the work does not hold up. Work"
    " that computes belongs in a plain `def execute()` or in a process.",
    slow=True,
)
async def heartbeats_while_working(trial: Trial) -> None:
    exam = trial.hand_slow()
    await exam.wait_for_reply(ACK, trial.pace.ack)
    await trial.beat(exam)
    await trial.result(exam, more=trial.pace.slow)
    times = [reply.at for reply in exam.replies]
    gap = max(later - earlier for earlier, later in pairwise(times))
    if gap > trial.pace.lease:
        raise BrokenError(
            f"{gap:.1f} s without a heartbeat, under a lease of {trial.pace.lease:g} s"
        )


@check(
    "stale-lease-commits-nothing",
    promise="A worker whose heartbeat was refused with 409 STALE_ATTEMPT applies no effect any more.",
    remedy="Stop the work at 409, and look at the lease once more right before the effect.",
    slow=True,
)
async def stale_lease_commits_nothing(trial: Trial) -> None:
    exam = trial.hand_slow(verdicts={HEARTBEAT: (STALE,)})
    await trial.beat(exam)
    await asyncio.sleep(trial.pace.slow + trial.pace.quiet)
    await trial.expect_no_effect(exam, "though the lease had been replaced")


@check(
    "expired-lease-commits-nothing",
    promise="A worker that could not renew its lease until it ran out applies no effect any more.",
    remedy="Count the lease from before the ACK or the heartbeat was sent, on a clock that does not jump,"
    " and compare right before the effect.",
    slow=True,
)
async def expired_lease_commits_nothing(trial: Trial) -> None:
    exam = trial.hand_slow(verdicts={HEARTBEAT: (UNAVAILABLE,)})
    await exam.wait_for_reply(ACK, trial.pace.ack)
    await exam.until(lambda: bool(exam.of(RESULT)), trial.pace.slow + trial.pace.ack)
    trial.expect_slow(exam, trial.pace.lease)
    await asyncio.sleep(trial.pace.quiet)
    await trial.expect_no_effect(exam, "after the lease had run out")


@check(
    "cancel-is-answered",
    promise="After a heartbeat was answered with `cancel_requested`, the attempt still ends with a RESULT or"
    " a RELEASE, before its work would have to be done twice.",
    remedy="Look at `task.cancel_requested` (or call `check_cancelled()`) between pieces of work. Stopping"
    " without a word leaves the job hanging until the lease runs out.",
    slow=True,
)
async def cancel_is_answered(trial: Trial) -> None:
    exam = trial.hand_slow(verdicts={HEARTBEAT: (CANCEL,)})
    await trial.beat(exam)
    within = trial.pace.slow + trial.pace.ack
    if not await exam.until(lambda: bool(exam.of(RESULT) or exam.of("RELEASE")), within):
        raise BrokenError(f"neither RESULT nor RELEASE came within {within:g} s of the cancel")


@check(
    "cancelled-work-is-not-retried",
    promise="A RESULT that follows a cancel is SUCCEEDED or FAILED_FINAL, not FAILED_RETRY.",
    remedy="Raise StepCancelledError (`check_cancelled()` does), or report FAILED_FINAL with the code"
    " CANCELLED.",
    slow=True,
)
async def cancelled_work_is_not_retried(trial: Trial) -> None:
    exam = trial.hand_slow(verdicts={HEARTBEAT: (APPLIED, CANCEL)})
    result = await trial.result(exam, more=trial.pace.slow)
    if len(exam.of(HEARTBEAT)) > 1 and result.status == "FAILED_RETRY":
        raise BrokenError(f"saw {result.told()} after the cancel")
