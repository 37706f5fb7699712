"""Results"""

import asyncio
import json
from typing import Any

from lucius.certificate.checks.registry import check
from lucius.certificate.exam import APPLIED, RESULT, STALE, UNAVAILABLE, BrokenError
from lucius.certificate.trial import Trial

UNKNOWN: dict[str, Any] = {"a_field_of_tomorrow": {"deep": [1, 2, {"er": None}]}, "another": "text"}
OPTIONAL = ("doc_id", "correlation_id", "traceparent", "routing_key_used", "redrive_no", "previous")
JOBS = 6
MOST_REPEATS = 3


@check(
    "work-succeeds",
    promise="The sample that works ends with RESULT SUCCEEDED.",
    remedy="See the error of the RESULT. If the service needs another document or payload, name them in"
    " certificate.yaml (`input`, `payload`).",
)
async def work_succeeds(trial: Trial) -> None:
    await trial.success(trial.hand())


@check(
    "one-result",
    promise="An attempt has one RESULT. It is sent again only if it got no answer.",
    remedy="Send RESULT in one place, after everything else, and stop when it was answered.",
)
async def one_result(trial: Trial) -> None:
    exam = trial.hand()
    await trial.result(exam)
    await trial.quiet()
    if (count := len(exam.of(RESULT))) != 1:
        raise BrokenError(f"{count} RESULTs came, and the first one was answered")


@check(
    "result-sent-again",
    promise="A RESULT that was answered with 503 is sent again until it is taken.",
    remedy="Keep the result and repeat it, with a pause that grows. It is the only trace of the work.",
)
async def result_sent_again(trial: Trial) -> None:
    exam = trial.hand(verdicts={RESULT: (UNAVAILABLE, UNAVAILABLE, APPLIED)})
    await trial.result(exam, count=3)


@check(
    "repeated-result-is-the-same",
    promise="A RESULT that is sent again says the same as the first time.",
    remedy="Do not execute again because a RESULT was not taken: send the one that there is.",
)
async def repeated_result_is_the_same(trial: Trial) -> None:
    exam = trial.hand(verdicts={RESULT: (UNAVAILABLE, APPLIED)})
    second = await trial.result(exam, count=2)
    first = exam.of(RESULT)[0]
    if (first.status, first.output) != (second.status, second.output):
        raise BrokenError(
            f"first {first.told()} {json.dumps(first.output)[:200]},"
            f" then {second.told()} {json.dumps(second.output)[:200]}"
        )


@check(
    "stale-result-is-dropped",
    promise="A RESULT that was refused with 409 STALE_ATTEMPT is not sent for ever, and the service goes on.",
    remedy="Take 409 as an answer: the result no longer counts.",
)
async def stale_result_is_dropped(trial: Trial) -> None:
    exam = trial.hand(verdicts={RESULT: (STALE,)})
    await trial.result(exam)
    await trial.quiet()
    await asyncio.sleep(trial.pace.quiet)
    if (count := len(exam.of(RESULT))) > MOST_REPEATS:
        raise BrokenError(f"it was sent {count} times, though every time it was refused")


@check(
    "unknown-fields-tolerated",
    promise="Fields of a directive and of a payload that the service does not know are no error.",
    remedy="Read the fields you know and ignore the others: contracts only grow. A payload model must not"
    " forbid extra fields.",
)
async def unknown_fields_tolerated(trial: Trial) -> None:
    payload = trial.samples.works.payload
    more = {**payload, **UNKNOWN} if isinstance(payload, dict) else payload
    await trial.success(trial.hand(payload=more, **UNKNOWN))


@check(
    "optional-fields-tolerated",
    promise=f"A directive may come without {', '.join(f'`{name}`' for name in OPTIONAL)}.",
    remedy="Read optional fields with a default.",
)
async def optional_fields_tolerated(trial: Trial) -> None:
    exam = trial.hand()
    await trial.result(exam)
    kept = {k: v for k, v in exam.directive.items() if k not in OPTIONAL or _needed(trial, k)}
    bare = trial.bare(kept)
    await trial.success(bare)


def _needed(trial: Trial, name: str) -> bool:
    return name == "previous" and bool(trial.samples.works.previous)


@check(
    "jobs-do-not-mix",
    promise=f"{JOBS} jobs at once each get their own result.",
    remedy="Keep nothing of one step in the service's attributes or in module variables.",
)
async def jobs_do_not_mix(trial: Trial) -> None:
    exams = [trial.hand() for _ in range(JOBS)]
    results = [await trial.success(exam) for exam in exams]
    for exam, result in zip(exams, results, strict=True):
        others = {each.directive["jobId"] for each in exams} - {exam.directive["jobId"]}
        named = [job_id for job_id in others if job_id in json.dumps(result.output)]
        if named:
            raise BrokenError(
                f"the output of {exam.directive['jobId']} lies with another job: {result.output}"
            )
