"""Taking a directive"""

import asyncio

from lucius.dev.certificate.exam import ACK, APPLIED, STALE, UNAVAILABLE, BrokenError
from lucius.dev.certificate.trial import Trial, check

FLOOD = 40


@check(
    "ack-in-time",
    promise="A directive is acknowledged within a few seconds of being handed out.",
    remedy="Send the ACK before the work begins. A call that blocks the event loop delays it: see how to"
    " write a service, on what holds up the loop.",
)
async def ack_in_time(trial: Trial) -> None:
    await trial.hand().acknowledged(trial.pace.ack)


@check(
    "ack-comes-first",
    promise="The ACK of an attempt comes before its heartbeats and its RESULT.",
    remedy="Send the ACK first, and wait for its answer before anything else is said about the attempt.",
)
async def ack_comes_first(trial: Trial) -> None:
    exam = trial.hand()
    await trial.result(exam)
    if exam.replies[0].kind != ACK:
        order = ", ".join(reply.kind for reply in exam.replies)
        raise BrokenError(f"the replies came in the order {order}")


@check(
    "ack-sent-again",
    promise="An ACK that was answered with 503 is sent again until the ACK timeout.",
    remedy="Repeat a reply that got no answer, with a pause that grows. The same reply twice does no harm.",
)
async def ack_sent_again(trial: Trial) -> None:
    exam = trial.hand(verdicts={ACK: (UNAVAILABLE, UNAVAILABLE, APPLIED)})
    await exam.wait_for_reply(ACK, trial.pace.ack * 2, count=3)
    await trial.success(exam)


@check(
    "no-work-without-ack",
    promise="Nothing starts before the ACK was taken: if it is never taken, nothing is done.",
    remedy="Begin to work only when the ACK was answered with 200. After the ACK timeout, drop the attempt.",
)
async def no_work_without_ack(trial: Trial) -> None:
    exam = trial.hand(verdicts={ACK: (UNAVAILABLE,)}, ack_timeout_seconds=1.5)
    await exam.wait_for_reply(ACK, trial.pace.ack)
    await asyncio.sleep(1.5)
    await trial.quiet()
    await trial.expect_no_effect(exam, "though no ACK was ever taken")


@check(
    "refused-ack-starts-nothing",
    promise="After an ACK that was refused with 409 STALE_ATTEMPT nothing is done.",
    remedy="Take 409 as the end of the attempt: another one is current.",
)
async def refused_ack_starts_nothing(trial: Trial) -> None:
    exam = trial.hand(verdicts={ACK: (STALE,)})
    await exam.wait_for_reply(ACK, trial.pace.ack)
    await trial.quiet()
    await trial.expect_no_effect(exam, "though its ACK was refused")


@check(
    "only-into-free-slots",
    promise=f"However many directives wait ({FLOOD} here), each that is pulled is acknowledged in time.",
    remedy="Pull only as many directives as there are free slots (`max`), and none while all are taken.",
    slow=True,
    apart=True,
)
async def only_into_free_slots(trial: Trial) -> None:
    async with trial.fresh() as own:
        exams = [own.hand_slow() for _ in range(FLOOD)]
        await exams[0].handed()
        await asyncio.sleep(own.pace.quiet)
        for exam in exams:
            if exam.handed_at:
                await exam.acknowledged(own.pace.ack)
