"""Callbacks: ACK, RESULT, HEARTBEAT and RELEASE of the attempt that the token is bound to."""

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from lucius.api.body import json_object
from lucius.api.context import ApiContext
from lucius.api.operation import Answer, Handler, Operation
from lucius.api.problems import Problem
from lucius.api.replies import answer, proven, take_reply
from lucius.api.routing import JSON, Context, KnownCaller, charge_stranger, json_response
from lucius.api.tokens import Binding
from lucius.contract.shapes import CallbackShape, HeartbeatShape
from lucius.core.bounds import ATTEMPT_NO, SLOTS
from lucius.core.effects import Outcome
from lucius.core.wire import ERROR_CODE, UNCLASSIFIED

_ID: Final = {"type": "string", "minLength": 1, "maxLength": 256}
_BOUND: Final[dict[str, Any]] = {
    "jobId": _ID,
    "stepId": _ID,
    "attempt_no": ATTEMPT_NO.schema,
    "lease_id": _ID,
    "tenant_id": {"type": "string"},
    "worker_id": {"type": "string"},
    "timestamp": {"type": "string"},
    "correlation_id": {"type": "string"},
}
_ACK: Final[dict[str, Any]] = {
    "slots": {**SLOTS.schema, "description": "How many steps the worker takes at once"},
    "version": {"type": "string", "description": "Which release of the service it runs"},
}
_HEARTBEAT: Final[dict[str, Any]] = {
    "progress": {
        "type": "string",
        "description": "How far the work is, in the worker's own words: `lucius why` shows the last",
    },
}
_REQUIRED: Final = ["jobId", "stepId", "attempt_no", "lease_id"]
_ANY: Final[dict[str, Any]] = {}
_CODE: Final[dict[str, Any]] = {
    "type": "string",
    "description": f"Matches `^{ERROR_CODE.pattern}$`; any other text is put before the message, and the"
    f" code is `{UNCLASSIFIED}`",
}
_RESULT: Final[dict[str, Any]] = {
    "status": {"type": "string", "enum": ["SUCCEEDED", "FAILED", "FAILED_RETRY", "FAILED_FINAL"]},
    "failure_class": {
        "type": "string",
        "enum": ["RETRYABLE", "NON_RETRYABLE"],
        "description": "With `FAILED`",
    },
    "output_ref": _ANY,
    "artifact_refs": _ANY,
    "error": {
        "type": "object",
        "properties": {"code": _CODE, "message": {"type": "string"}},
    },
    "reason": {"type": "string"},
}


def reply_schema(kind: str | None) -> dict[str, Any]:
    fields = {"RESULT": _RESULT, "ACK": _ACK, "HEARTBEAT": _HEARTBEAT}
    more = {n: f for name, each in fields.items() if kind in (name, None) for n, f in each.items()}
    types = [kind] if kind else ["ACK", "RESULT", "HEARTBEAT", "RELEASE"]
    required = [*_REQUIRED, "status"] if kind == "RESULT" else _REQUIRED
    return {
        "type": "object",
        "required": required if kind else [*required, "type"],
        "properties": {"type": {"type": "string", "enum": types}, **_BOUND, **more},
    }


_PLAIN: Final = {
    outcome: json_response({"outcome": outcome.value}).body
    for outcome in (Outcome.APPLIED, Outcome.DUPLICATE, Outcome.LATE)
}


def bearer(request: Request) -> str | None:
    for name, value in request.scope["headers"]:
        if name == b"authorization":
            scheme, _, token = value.decode("latin-1").partition(" ")
            return token.strip() if scheme.lower() == "bearer" else None
    return None


def _bound(context: ApiContext, request: Request) -> Binding:
    """What the token opens, charged to its tenant; a false token is charged to the address."""
    try:
        bound = proven(context, bearer(request))
    except Problem:
        charge_stranger(context, request)
        raise
    if context.worker_rate is not None:
        context.worker_rate.take(f"tenant {bound.tenant_id}")
    return bound


def _handler(kind: str) -> Handler:
    async def handle(context: Context, request: Request, caller: KnownCaller) -> Response:
        bound = _bound(context, request)
        body = await json_object(request, context.options.max_body_bytes)
        received, applied = await take_reply(context, body, bound, kind)
        if kind == "HEARTBEAT":
            return json_response(answer(received, applied))
        return Response(_PLAIN[applied.outcome], media_type=JSON)

    handle.__name__ = f"callback_{kind.lower()}"
    return handle


def _operation(kind: str, summary: str) -> Operation:
    shape = HeartbeatShape if kind == "HEARTBEAT" else CallbackShape
    return Operation(
        "POST",
        f"/v1/callbacks/{kind.lower()}",
        _handler(kind),
        summary,
        "callbacks",
        None,
        {200: Answer("`outcome` is `applied`, `duplicate` or `late`", shape)},
        body=reply_schema(kind),
        callback_token=True,
    )


OPERATIONS: Final = (
    _operation("ACK", "A service has taken a slot for the directive"),
    _operation("RESULT", "How the attempt ended"),
    _operation("HEARTBEAT", "The attempt is alive: extend its lease"),
    _operation("RELEASE", "Give the lease back without using up the attempt"),
)
