"""The messages on the bus and over HTTP: directives out, replies in. One JSON for both ways."""

import hmac
import json
import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, Final

from lucius.contract import words
from lucius.core.addresses import SECRET_NAMES, may_carry, without_credentials
from lucius.core.errors import RequestError
from lucius.core.idempotency import canonical_json
from lucius.core.ids import new_lease_id
from lucius.core.inputs import (
    AckReceived,
    Callback,
    HeartbeatReceived,
    LeaseReturned,
    ResultReceived,
    ResultStatus,
)
from lucius.core.job import Fault, Job
from lucius.core.limits import ATTEMPT_NO, MESSAGE_ID_CHARACTERS, SLOTS, json_faults
from lucius.core.plan import Plan, output_folders

MAX_STRING: Final = 4096
"""Strings from workers are cut here, with a mark."""
CUT_MARK: Final = "...[cut]"
MAX_REF: Final = 2048
LARGE_REF: Final = 8 * MAX_REF
"""A reference beyond it is not looked through: without its credentials it would still be too large."""
_PLAIN: Final = 300
"""Characters: even if each is escaped as six, the text stays below MAX_REF."""
MAX_SAID: Final = 256
"""Characters of each text that a worker says of itself; longer ones are cut."""
ERROR_CODE: Final = re.compile(words.ERROR_CODE)
UNCLASSIFIED: Final = words.UNCLASSIFIED
STATUSES: Final = {status.value: status for status in ResultStatus}


def message_id(job_id: str, step_id: str, attempt_no: int, lease_id: str, kind: str) -> str:
    """The same for the same arguments, and short enough for every bus: a long one ends with its hash.

    It begins with the job id in both forms.
    """
    name = f"{job_id}:{step_id}:{attempt_no}:{lease_id}:{kind}"
    if len(name) <= MESSAGE_ID_CHARACTERS:
        return name
    digest = sha256(name.encode("utf-8", "replace")).hexdigest()
    return f"{name[: MESSAGE_ID_CHARACTERS - len(digest) - 1]}:{digest}"


def directive(job: Job, step_id: str, attempt_no: int, lease_id: str) -> dict[str, Any]:
    """The directive of one attempt, rendered from pinned fields alone, so it is the same each time."""
    plan = job.plan
    index = plan.index_of(step_id)
    assert index is not None, "a directive is for a step of its job"
    planned, routing = plan.steps[index], plan.routing
    payload = plan.payload_of(step_id)
    return {
        **{key: value for key, value in plan.extra.items() if key not in _RESERVED},
        "type": "DIRECTIVE",
        "jobId": plan.job_id,
        "tenant_id": plan.tenant_id,
        "stepId": step_id,
        "protocol_id": plan.protocol_id,
        "request_type": plan.request_type,
        "step_type": planned.step_type,
        "service": planned.service,
        "attempt_no": attempt_no,
        "lease_id": lease_id,
        "input_ref": reference(plan.input_ref),
        "workspace_ref": reference(plan.workspace_ref),
        "output_folder": output_folders(plan.steps)[index],
        "output_ref": reference(plan.output_ref),
        "payload": payload,
        "previous": _previous(job, index),
        "final_step": index == len(plan.steps) - 1,
        "redrive_no": plan.redrive_no,
        "effect_key": effect_of(plan, step_id, payload),
        "ack_timeout_seconds": planned.policy.ack_timeout.total_seconds(),
        "lease_seconds": planned.policy.lease.total_seconds(),
        "mode": routing.resolved_mode.value,
        "lane": routing.lane,
        "routing_key_used": routing.routing_key_used,
        "reply_topic": routing.reply_topic,
        "schema_version": plan.schema_version,
        "doc_id": plan.doc_id,
        "correlation_id": plan.correlation_id or plan.job_id,
        "traceparent": plan.traceparent or _traceparent(plan.job_id),
        **({"pool": planned.pool} if planned.pool is not None else {}),
    }


_RESERVED: Final = frozenset(
    (
        "type",
        "jobId",
        "stepId",
        "service",
        "lease_id",
        "attempt_no",
        "pool",
        "callback_urls",
        "callback_token",
    )
)


def reference(given: Any) -> Any:
    """A reference as directives have them: an object with a `uri`, also where a text was given."""
    return {"uri": given} if isinstance(given, str) else given


def _traceparent(job_id: str) -> str:
    """Of a job that came without one: all its steps are one trace, whose root nobody has recorded."""
    digest = sha256(job_id.encode("utf-8", "replace")).hexdigest()
    return f"00-{digest[:32]}-{digest[32:48]}-01"


def _previous(job: Job, index: int) -> dict[str, Any]:
    """Results of the stages before this one, by step id."""
    stage = job.plan.steps[index].stage
    return {
        planned.step_id: reference(step.result_ref)
        for planned, step in zip(job.plan.steps, job.steps, strict=True)
        if planned.stage < stage
    }


def effect_key(root_job_id: str, step_id: str, *of: Any) -> str:
    """The name of the effect that all attempts of a step, also of redrives, may together apply once.

    `of`: its input and payload.
    """
    digest = sha256(canonical_json(list(of)).encode()).hexdigest()
    return f"{root_job_id}:{step_id}:{digest[:16]}"


def effect_of(plan: Plan, step_id: str, payload: Any) -> str:
    """An output that a redrive has given another place is another effect."""
    last = plan.steps[-1].step_id == step_id
    moved = [plan.output_ref] if plan.moved_output and last else []
    return effect_key(plan.root, step_id, plan.input_ref, payload, *moved)


def directive_properties(body: Mapping[str, Any]) -> dict[str, str | int]:
    return {
        "type": "DIRECTIVE",
        "step_type": body["step_type"],
        "service": body["service"],
        "mode": body["mode"],
        "lane": body["lane"],
        "tenant_id": body["tenant_id"],
        "jobId": body["jobId"],
        "stepId": body["stepId"],
        "attempt_no": body["attempt_no"],
        "lease_id": body["lease_id"],
        "message_key": body["routing_key_used"],
        **({"pool": body["pool"]} if "pool" in body else {}),
    }


# -- nudges ----------------------------------------------------------------------------------

ACK: Final = "ACK"
NUDGE: Final = "NUDGE"


def nudge(
    job_id: str, version: int, lane: int, *, timer: bool = False
) -> tuple[str, dict[str, Any], dict[str, str | int]]:
    """Id, body and properties of a message that tells the owner of a lane to look at a job.

    `timer`: because a timer of its workflow has fired. Such a message may come several times a version.
    """
    return (
        f"{job_id}:{version}:{NUDGE}" + (f":{new_lease_id()}" if timer else ""),
        {"type": NUDGE, "jobId": job_id, **({"timer": True} if timer else {})},
        {"type": NUDGE, "jobId": job_id, "lane": lane},
    )


# -- replies ---------------------------------------------------------------------------------


def parse_reply(body: Mapping[str, Any], kind: str | None = None) -> tuple[str, Callback]:
    """The job id and the input that a reply stands for, in any of its dialects."""
    faults: list[tuple[str, str]] = []
    given = str(body.get("type") or kind or "").upper()
    job_id = _text(body, "jobId", faults)
    step_id = _text(body, "stepId", faults)
    lease_id = _text(body, "lease_id", faults)
    attempt_no = ATTEMPT_NO.read(body.get("attempt_no"))
    if attempt_no is None:
        faults.append(("/attempt_no", ATTEMPT_NO.fault))
        attempt_no = 0
    if kind is not None and given != kind:
        faults.append(("/type", f"must be {kind}"))
    if given not in (ACK, "RESULT", "HEARTBEAT", "RELEASE"):
        faults.append(("/type", "must be ACK, RESULT, HEARTBEAT or RELEASE"))
    status = _status(body, faults) if given == "RESULT" else None
    output = body.get("output_ref")
    if output is None:
        output = body.get("artifact_refs")
    plain = output is None or plain_ref(output)
    note = None if plain else note_if_large(output)
    if not plain and note is None:
        faults += json_faults(output, "/output_ref")
    worker, slots, version = said_of_itself(body, faults)
    progress = _said(body, "progress", faults) if given == "HEARTBEAT" else None
    if faults:
        raise RequestError("INVALID_CALLBACK", "the reply is not valid", faults=tuple(faults))
    bound = (step_id, attempt_no, lease_id)
    stamp = bounded(str(body["timestamp"]), MAX_SAID) if body.get("timestamp") else None
    if status is not None:
        fault = _fault(body) if status is not ResultStatus.SUCCEEDED else None
        ref = output if plain else note or bounded_ref(without_credentials(output))
        return job_id, ResultReceived(*bound, status, ref, fault, worker, stamp)
    if given == ACK:
        return job_id, AckReceived(*bound, worker, stamp, slots, version if slots else None)
    if given == "HEARTBEAT":
        return job_id, HeartbeatReceived(*bound, worker, stamp, progress)
    return job_id, LeaseReturned(*bound, worker_id=worker, timestamp=stamp)


def said_of_itself(
    body: Mapping[str, Any], faults: list[tuple[str, str]]
) -> tuple[str | None, int | None, str | None]:
    """Worker id, slots and version, as pulls and replies carry them: bounded here and nowhere else."""
    slots, given = None, body.get("slots")
    if given is not None and (slots := SLOTS.read(given)) is None:
        faults.append(("/slots", SLOTS.fault))
    return _said(body, "worker_id", faults), slots, _said(body, "version", faults)


def _text(body: Mapping[str, Any], name: str, faults: list[tuple[str, str]]) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value or len(value) > 256 or bounded(value) != value:
        faults.append((f"/{name}", "must be a string of 1 to 256 characters"))
        return ""
    return value


def _said(body: Mapping[str, Any], name: str, faults: list[tuple[str, str]]) -> str | None:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        faults.append((f"/{name}", "must be a string"))
        return None
    return bounded(value, MAX_SAID) if value else None


def _status(body: Mapping[str, Any], faults: list[tuple[str, str]]) -> ResultStatus | None:
    """`FAILED` with a failure class, or the two words for it."""
    status = str(body.get("status", "")).upper()
    if status == "FAILED":
        failure = str(body.get("failure_class") or "RETRYABLE").upper().replace("-", "_")
        if failure == "RETRYABLE":
            return ResultStatus.FAILED_RETRY
        if failure == "NON_RETRYABLE":
            return ResultStatus.FAILED_FINAL
        faults.append(("/failure_class", "must be RETRYABLE or NON_RETRYABLE"))
        return None
    known = STATUSES.get(status)
    if known is not None:
        return known
    faults.append(("/status", "must be SUCCEEDED, FAILED, FAILED_RETRY or FAILED_FINAL"))
    return None


def _fault(body: Mapping[str, Any]) -> Fault:
    error = body.get("error")
    error = error if isinstance(error, Mapping) else {}
    code = str(error.get("code") or body.get("error_code") or UNCLASSIFIED)
    message = str(error.get("message") or body.get("reason") or body.get("error_message") or "")
    if ERROR_CODE.fullmatch(code) is None:
        code, message = UNCLASSIFIED, f"{code}: {message}" if message else code
    return Fault(code, bounded(message, MAX_STRING))


def bounded(text: str, limit: int = MAX_STRING) -> str:
    """Cut to the limit, and with a `?` for what no encoding can carry."""
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= limit else text[: limit - len(CUT_MARK)] + CUT_MARK


def plain_ref(ref: Any) -> bool:
    """A short reference in ASCII, as almost all are: it needs no closer look, and no cutting.

    Nor can it carry credentials, which are looked for in all others.
    """
    if type(ref) is str:
        return len(ref) <= _PLAIN and ref.isascii() and not may_carry(ref)
    if type(ref) is not dict or len(ref) > 4:
        return False
    left = _PLAIN
    for name, value in ref.items():
        if type(value) is int and 0 <= value < 2**63:
            value = ""  # a size, as the kit's own references have one
        if type(name) is not str or type(value) is not str:
            return False
        left -= len(name) + len(value)
        if left < 0 or not name.isascii() or not value.isascii():
            return False
        if name.lower() in SECRET_NAMES or may_carry(value):
            return False
    return True


def bounded_ref(value: Any) -> Any:
    """A reference is kept whole or replaced by a note that it was too large."""
    if value is None or (isinstance(value, str) and len(value) <= MAX_REF):
        return value
    text = canonical_json(value)
    return value if len(text) <= MAX_REF else _note(text)


def note_if_large(value: Any) -> dict[str, Any] | None:
    """What is kept instead of a reference that is far too large. None: look closer.

    That takes longer by far than reading it did, and everything else would wait.
    """
    if not _longer_than(LARGE_REF, value):
        return None
    try:
        return _note(json.dumps(value, check_circular=False))
    except (TypeError, ValueError, RecursionError):  # it is not JSON: the closer look says where
        return None


def _note(text: str) -> dict[str, Any]:
    return {"cut": True, "sha256": sha256(text.encode()).hexdigest()}


def _longer_than(limit: int, value: Any) -> bool:
    """Whether its JSON has more characters. It looks at no more of it than that takes."""
    left = [value]
    while left and limit >= 0:
        item = left.pop()
        if isinstance(item, str):
            limit -= len(item) + 2
        elif isinstance(item, Mapping | list | tuple):
            limit -= len(item) + 1
            if limit >= 0:
                left.extend(item)
                left.extend(item.values() if isinstance(item, Mapping) else ())
        else:
            limit -= 1
    return limit < 0


# Notices: what LUCIUS tells the worker that holds a lease, without being asked.
#
# A notice carries proofs that its sender could have made the callback token of the attempt. It does not
# carry the token itself, so whoever reads a notice cannot answer for the worker.

CANCEL: Final = "CANCEL"
"""The job is being cancelled: stop when you can, and say how it ended."""
LEASE_ENDED: Final = "LEASE_ENDED"
"""The lease counts no more: stop, commit nothing, say nothing."""
NOTICES: Final = (CANCEL, LEASE_ENDED)
_BOUND: Final = ("jobId", "stepId", "attempt_no", "lease_id")
_MOST_PROOFS: Final = 16

Notice = tuple[str, dict[str, Any], dict[str, str | int]]
"""Id, body and properties of a message."""


def notice(kind: str, attempt: tuple[str, str, int, str], tokens: Iterable[str]) -> Notice:
    """`tokens`: the callback token of the attempt under every key that may have signed it.

    Each has an id of its own: one that is sent again is no duplicate of one that was lost.
    """
    bound: dict[str, Any] = dict(zip(_BOUND, attempt, strict=True))
    proofs = [proof(token, kind) for token in tokens]
    return (
        message_id(*attempt, f"{kind}:{new_lease_id()}"),
        {"type": kind, **bound, "proofs": proofs},
        {"type": kind, **bound},
    )


def proof(token: str, kind: str) -> str:
    return hmac.new(token.encode(), kind.encode(), "sha256").hexdigest()


def same_attempt(said: Mapping[str, Any], directive: Mapping[str, Any]) -> bool:
    return all(said.get(name) == directive.get(name) for name in _BOUND)


def proven(said: Mapping[str, Any], token: Any) -> bool:
    """Whether LUCIUS made the notice. An attempt without a token is known by its lease id alone."""
    if not isinstance(token, str):
        return True
    proofs, kind = said.get("proofs"), said.get("type")
    if not isinstance(proofs, list) or kind not in NOTICES:
        return False
    expected = proof(token, str(kind)).encode()
    return any(hmac.compare_digest(str(one).encode(), expected) for one in proofs[:_MOST_PROOFS])
