"""What replies look like"""

import json
from collections.abc import Iterator
from datetime import datetime

from lucius.core.errors import RequestError
from lucius.core.wire import MAX_REF, MAX_STRING, parse_reply
from lucius.dev.certificate.exam import RESULT, BrokenError, Exam, ReceivedReply
from lucius.dev.certificate.trial import TRACE_ID, Trial, check

NAMED = ("jobId", "stepId", "attempt_no", "lease_id")
MOST_BYTES = 64 * 1024


async def answered(trial: Trial, exam: Exam | None = None) -> list[ReceivedReply]:
    """What a whole attempt was answered with; at least one reply."""
    exam = exam or trial.hand()
    await exam.handed()
    await exam.until(lambda: bool(exam.of(RESULT)), trial.pace.result)
    if not exam.replies:
        raise BrokenError("no reply named the attempt or carried its token")
    return exam.replies


@check(
    "replies-name-their-attempt",
    promise="Every reply names `jobId`, `stepId`, `attempt_no` and `lease_id` of its directive.",
    remedy="Copy the four fields from the directive as they are, with their JSON types.",
)
async def replies_name_their_attempt(trial: Trial) -> None:
    exam = trial.hand()
    for reply in await answered(trial, exam):
        for name in NAMED:
            if reply.body.get(name) != exam.directive[name]:
                raise BrokenError(
                    f"the {reply.kind} has {name} {reply.body.get(name)!r},"
                    f" and the directive {exam.directive[name]!r}"
                )


@check(
    "replies-carry-their-token",
    promise="Every reply carries the `callback_token` of its directive.",
    remedy="Send it as `Authorization: Bearer` to the callback URLs, or as the field `callback_token` in a"
    " batch.",
)
async def replies_carry_their_token(trial: Trial) -> None:
    for reply in await answered(trial):
        if not reply.proven:
            raise BrokenError(f"the {reply.kind} carried no token, or another one")


@check(
    "replies-can-be-read",
    promise="Every reply is one of ACK, HEARTBEAT, RESULT and RELEASE, with the fields of its kind.",
    remedy="See docs/reference/messages.md for the fields and their spellings.",
)
async def replies_can_be_read(trial: Trial) -> None:
    for reply in await answered(trial):
        try:
            parse_reply(reply.body, reply.kind or None)
        except RequestError as error:
            faults = "; ".join(f"{at}: {reason}" for at, reason in error.faults)
            raise BrokenError(f"a reply {json.dumps(reply.body)[:200]}: {faults}") from None


@check(
    "correlation-id-echoed",
    promise="ACK and RESULT carry the `correlation_id` of the directive.",
    remedy="Copy `correlation_id` from the directive into every reply.",
)
async def correlation_id_echoed(trial: Trial) -> None:
    exam = trial.hand()
    for reply in await answered(trial, exam):
        if reply.body.get("correlation_id") != exam.directive["correlation_id"]:
            raise BrokenError(
                f"the {reply.kind} has correlation_id {reply.body.get('correlation_id')!r},"
                f" and the directive {exam.directive['correlation_id']!r}"
            )


@check(
    "trace-continued",
    promise="ACK and RESULT carry a `traceparent` of the directive's trace.",
    remedy="Copy `traceparent`, or continue its trace: the second part of it stays the same.",
)
async def trace_continued(trial: Trial) -> None:
    for reply in await answered(trial):
        parts = str(reply.body.get("traceparent")).split("-")
        if len(parts) != 4 or parts[1] != TRACE_ID:
            raise BrokenError(
                f"the {reply.kind} has traceparent {reply.body.get('traceparent')!r}, which is not of"
                f" the trace {TRACE_ID}"
            )


@check(
    "tenant-kept",
    promise="A reply that names a `tenant_id` names that of its directive.",
    remedy="Copy `tenant_id` from the directive, or leave it out.",
)
async def tenant_kept(trial: Trial) -> None:
    exam = trial.hand()
    for reply in await answered(trial, exam):
        named = reply.body.get("tenant_id", exam.directive["tenant_id"])
        if named != exam.directive["tenant_id"]:
            raise BrokenError(f"the {reply.kind} names the tenant {named!r}")


@check(
    "timestamps-are-instants",
    promise="A `timestamp` is an instant with its zone, as in ISO 8601.",
    remedy="Write it like 2026-01-27T10:00:03Z, or leave it out.",
)
async def timestamps_are_instants(trial: Trial) -> None:
    for reply in await answered(trial):
        given = reply.body.get("timestamp")
        if given is not None and not _instant(given):
            raise BrokenError(f"the {reply.kind} has the timestamp {given!r}")


def _instant(text: object) -> bool:
    try:
        return datetime.fromisoformat(str(text)).tzinfo is not None
    except ValueError:
        return False


@check(
    "result-is-small",
    promise=f"A RESULT refers to its output and does not contain it: `output_ref` has up to {MAX_REF}"
    f" characters, a message up to {MAX_STRING}.",
    remedy="Write the output to the workspace and give its URI. Name a large one under `large` in the"
    " samples.",
)
async def result_is_small(trial: Trial) -> None:
    exam = trial.hand(trial.samples.large)
    result = await trial.result(exam)
    size = len(json.dumps(result.body))
    if len(json.dumps(result.output)) > MAX_REF:
        raise BrokenError(f"output_ref has {len(json.dumps(result.output))} characters")
    if len(result.message) > MAX_STRING or size > MOST_BYTES:
        raise BrokenError(
            f"the RESULT has {size} bytes, its message {len(result.message)} characters"
        )


@check(
    "no-secrets-in-replies",
    promise="Outputs, messages and names in replies do not contain the token.",
    remedy="Do not put the directive into an error message or a reference: it holds the token.",
)
async def no_secrets_in_replies(trial: Trial) -> None:
    for sample in (trial.samples.works, trial.samples.poison, trial.samples.retryable):
        if sample is None:
            continue
        exam = trial.hand(sample)
        token = exam.directive["callback_token"]
        for reply in await answered(trial, exam):
            for name, text in _shown(reply):
                if token in text:
                    raise BrokenError(f"{name} of the {reply.kind} contains the callback_token")


def _shown(reply: ReceivedReply) -> Iterator[tuple[str, str]]:
    """What other people get to see."""
    for name, value in reply.body.items():
        if name != "callback_token":
            yield name, json.dumps(value)
