"""Results"""

import asyncio
import json
import re
from itertools import pairwise
from typing import Any

from lucius.dev.certificate.exam import (
    APPLIED,
    RESULT,
    STALE,
    UNAVAILABLE,
    BrokenError,
    Exam,
)
from lucius.dev.certificate.examinee import TEXT
from lucius.dev.certificate.trial import Trial, check, output_of

UNKNOWN: dict[str, Any] = {"a_field_of_tomorrow": {"deep": [1, 2, {"er": None}]}, "another": "text"}
OPTIONAL = ("doc_id", "correlation_id", "traceparent", "routing_key_used", "redrive_no", "previous")
JOB_ID = re.compile("job_[0-9a-f]{32}")
WORDS = ("one", "two", "three", "four", "five", "six")
JOBS = len(WORDS)
MOST_REPEATS = 3


@check(
    "work-succeeds",
    promise="The sample that works ends with RESULT SUCCEEDED.",
    remedy="See the error of the RESULT. If the service needs another document or payload, name them in"
    " certificate.yaml (`input`, `payload`). The other promises are looked at once this one is kept.",
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
    texts = _texts(trial)
    exams = [trial.hand(input_ref={"uri": uri}) for uri in texts]
    results = [await trial.result(exam) for exam in exams]
    if not all(result.status == "SUCCEEDED" for result in results) or not texts:
        exams = [trial.hand() for _ in range(JOBS)]
        results, texts = [await trial.success(exam) for exam in exams], []
    for exam, result in zip(exams, results, strict=True):
        job_id = exam.directive["jobId"]
        if set(JOB_ID.findall(json.dumps(result.output))) - {job_id}:
            raise BrokenError(f"the output of {job_id} lies with another job: {result.output}")
    alike = texts and len({_content(exam) for exam in exams}) < JOBS
    if alike and await _differ_alone(trial, texts):
        raise BrokenError(
            "documents that differ had the same output at once, and others when alone"
        )


def _texts(trial: Trial) -> list[str]:
    """A text of its own for each job, where the service takes texts and leaves outputs."""
    sample = trial.samples.works.input
    if not trial.examined.outputs or (sample is not None and sample.suffix != ".txt"):
        return []
    text = sample.read_text("utf-8") if sample else TEXT
    return [trial.folders.copied(None, f"{text}{word}\n") for word in WORDS]


async def _differ_alone(trial: Trial, texts: list[str]) -> bool:
    """Whether the output follows the document, where only other checks are under way."""
    for pair in pairwise(texts):
        exams = []
        for uri in pair:
            exams.append(trial.hand(input_ref={"uri": uri}))
            await trial.success(exams[-1])
        if _content(exams[0]) != _content(exams[1]):
            return True
    return False


def _content(exam: Exam) -> bytes:
    """What it made, without the name of its job."""
    path, _ = output_of(exam.of(RESULT)[0])
    return path.read_bytes().replace(exam.directive["jobId"].encode(), b"")
