"""The process"""

import asyncio
from dataclasses import dataclass

from lucius.dev.certificate.checks.effects import same_output
from lucius.dev.certificate.exam import ACK, PULL_SECONDS, RELEASE, RESULT, BrokenError
from lucius.dev.certificate.trial import Trial, check

DRAIN_SECONDS = 1.0
"""What the certificate sets LUCIUS_DRAIN_SECONDS to."""
END_SECONDS = 15.0
OUTAGE = 3
"""So many pulls are answered with 503."""
ORDERLY = (0, 143, -15)


@check(
    "outage-is-survived",
    promise="A gateway that answers 503 for a while is asked again.",
    remedy="Repeat the pull with a pause that grows, without end.",
    apart=True,
)
async def outage_is_survived(trial: Trial) -> None:
    async with trial.fresh() as own:
        own.gateway.fail_pulls(OUTAGE)
        exam = own.hand()
        await exam.until(lambda: bool(exam.handed_at), PULL_SECONDS)
        if own.gateway.down:
            raise BrokenError(f"it did not ask again within {PULL_SECONDS:g} s of a 503")
        await own.success(exam, more=own.pace.slow)


@check(
    "crash-is-made-good",
    promise="If the process is killed in the middle of a step, the next attempt does the work, once.",
    remedy="Leave nothing behind in the middle that stops the next attempt; a lock of a dead process must"
    " expire with its lease.",
    slow=True,
    apart=True,
)
async def crash_is_made_good(trial: Trial) -> None:
    async with trial.fresh() as own:
        exam = own.hand_slow()
        await exam.wait_for_reply(ACK, own.pace.ack)
        await own.examinee.kill()
        await own.expect_no_effect(exam, "though the process was killed in the middle")
        await own.examinee.start()
        following = own.again(exam)
        await own.success(following, more=own.pace.slow)
        if not await own.effect(following):
            raise BrokenError("there is no effect after the second attempt")
        third = own.again(following)
        await own.success(third, more=own.pace.slow)
        same_output(following, third)


@dataclass(frozen=True, slots=True)
class Drained:
    """What happened after SIGTERM in the middle of a step."""

    released: bool
    finished: bool
    pulled_late: int
    exit_code: int | None


async def drained(trial: Trial) -> Drained:
    async with trial.fresh() as own:
        exam = own.hand_slow()
        await exam.wait_for_reply(ACK, own.pace.ack)
        own.examinee.terminate()
        await asyncio.sleep(own.pace.quiet)
        late = own.hand()
        code = await _ended(own)
        return Drained(
            bool(exam.of(RELEASE)),
            bool(exam.of(RESULT)),
            len(late.handed_at),
            code,
        )


async def _ended(trial: Trial) -> int | None:
    try:
        async with asyncio.timeout(END_SECONDS):
            return await trial.examinee.ended()
    except TimeoutError:
        return None


@check(
    "drain-gives-leases-back",
    promise="After SIGTERM a running step is finished (RESULT) or its lease is given back (RELEASE).",
    remedy="Handle SIGTERM: send RELEASE for what cannot be finished in time.",
    slow=True,
    apart=True,
)
async def drain_gives_leases_back(trial: Trial) -> None:
    found = await trial.once("drain", drained)
    if not (found.released or found.finished):
        raise BrokenError("the process ended without RESULT and without RELEASE")


@check(
    "drain-takes-no-more",
    promise="After SIGTERM no further directive is taken.",
    remedy="Stop pulling first of all.",
    slow=True,
    apart=True,
)
async def drain_takes_no_more(trial: Trial) -> None:
    found = await trial.once("drain", drained)
    if found.pulled_late:
        raise BrokenError("a directive was pulled after SIGTERM")


@check(
    "drain-ends-in-order",
    promise=f"After SIGTERM the process ends in time ({END_SECONDS:g} s here, where LUCIUS_DRAIN_SECONDS is"
    f" {DRAIN_SECONDS:g}), with exit code 0.",
    remedy="Do not wait for work for longer than LUCIUS_DRAIN_SECONDS, and leave no thread behind.",
    slow=True,
    apart=True,
)
async def drain_ends_in_order(trial: Trial) -> None:
    found = await trial.once("drain", drained)
    _expect_ended(found.exit_code)


@check(
    "idle-stop-is-quick",
    promise="A process without work ends soon after SIGTERM, with exit code 0.",
    remedy="A pull that waits must end with the process.",
    apart=True,
)
async def idle_stop_is_quick(trial: Trial) -> None:
    async with trial.fresh() as own:
        own.examinee.terminate()
        _expect_ended(await _ended(own))


def _expect_ended(code: int | None) -> None:
    if code is None:
        raise BrokenError(f"the process still ran {END_SECONDS:g} s after SIGTERM")
    if code not in ORDERLY:
        raise BrokenError(f"the process ended with exit code {code}")
