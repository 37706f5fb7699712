"""Callbacks: ACK, RESULT, HEARTBEAT and RELEASE of the attempt that the token is bound to."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from fastapi import APIRouter, Depends
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from lucius.contract.models.base import JsonObject
from lucius.contract.models.messages import (
    AckMessage,
    CallbackView,
    HeartbeatMessage,
    HeartbeatView,
    ReleaseMessage,
    ReplyMessage,
    ResultMessage,
)
from lucius.core.effects import Outcome
from lucius.core.inputs import Callback, HeartbeatReceived
from lucius.core.wire import parse_reply
from lucius.http.body import json_object
from lucius.http.context import ApiContext
from lucius.http.parameters import bearer
from lucius.http.problems import Problem, problems, read_as
from lucius.http.routing import (
    JSON,
    Context,
    KnownCaller,
    ShortRoute,
    charge_stranger,
    json_response,
    needs,
)
from lucius.http.tokens import Binding
from lucius.http.tracing import applying_here
from lucius.http.views import instant
from lucius.ports.engine import Applied

# Replies of services over HTTP: bound to their attempt by a token, then the same input as on the bus.

_MODELS: Final[dict[str, type[ReplyMessage]]] = {
    "ACK": AckMessage,
    "RESULT": ResultMessage,
    "HEARTBEAT": HeartbeatMessage,
    "RELEASE": ReleaseMessage,
}
"""The core reads what it needs of a reply, and lets the rest be; over HTTP all that is published holds."""


def proven(context: ApiContext, token: str | None) -> Binding:
    """What a token opens. Raises where LUCIUS did not make it: nothing else of the reply is looked at."""
    if not token:
        raise _refused("CALLBACK_TOKEN_REQUIRED")
    bound = context.tokens.opened(token)
    if bound is None:
        raise _refused("CALLBACK_TOKEN_INVALID")
    return bound


async def take_reply(
    context: ApiContext, body: Mapping[str, Any], bound: Binding, kind: str | None
) -> tuple[Callback, Applied]:
    """Hold the reply against its token, then move the job. Raises a problem where nothing was recorded."""
    job_id, received = parse_reply(body, kind)
    read_as(_MODELS[str(body.get("type") or kind).upper()], body, "INVALID_CALLBACK")
    attempt = (job_id, received.step_id, received.attempt_no, received.lease_id)
    tenant_id = bound.tenant_id
    if attempt != bound[1:] or body.get("tenant_id", tenant_id) != tenant_id:
        raise _refused("CALLBACK_TOKEN_INVALID")
    job = await context.engine.job(job_id)
    if job is not None and job.tenant_id != tenant_id:
        raise _refused("CALLBACK_TOKEN_INVALID")
    if job is None:
        raise Problem("JOB_NOT_FOUND")
    with applying_here(body, received, job, alone=kind is not None):
        applied = await context.engine.apply(job_id, received)
    if applied is None:
        raise Problem("JOB_NOT_FOUND")
    if applied.outcome is Outcome.STALE:
        raise Problem("STALE_ATTEMPT")
    if applied.outcome is Outcome.REJECTED:
        raise Problem("UNKNOWN_STEP")
    return received, applied


def answer(received: Callback, applied: Applied) -> JsonObject:
    """`applied`, `duplicate` or `late`; a heartbeat also learns of its lease and of a cancel."""
    content: JsonObject = {"outcome": applied.outcome.value}
    if isinstance(received, HeartbeatReceived):
        job = applied.job
        index = job.plan.index_of(received.step_id)
        execution = job.steps[index].execution if index is not None else None
        expires_at = execution.lease_expires_at if execution is not None else None
        content["lease_expires_at"] = instant(expires_at) if expires_at is not None else None
        content["cancel_requested"] = job.cancel_requested_at is not None or job.terminal
    return content


def _refused(code: str) -> Problem:
    return Problem(code, headers={"www-authenticate": 'Bearer realm="callbacks"'})


router = APIRouter(route_class=ShortRoute, tags=["callbacks"])
_PLAIN: Final = {
    outcome: json_response({"outcome": outcome.value}).body
    for outcome in (Outcome.APPLIED, Outcome.DUPLICATE, Outcome.LATE)
}


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


async def _taken(context: ApiContext, request: Request, kind: str) -> tuple[Callback, Applied]:
    """The token before the body: nothing is read of a reply that no token proves."""
    bound = _bound(context, request)
    body = await json_object(request, context.options.max_body_bytes)
    return await take_reply(context, body, bound, kind)


def _declared(
    summary: str,
    asked: Callable[..., Any],
    view: type[BaseModel] = CallbackView,
) -> dict[str, Any]:
    """`asked` declares the body, which the core reads (`core/wire.py`), from the bus and over HTTP alike."""
    return {
        "summary": summary,
        "dependencies": [needs(None, callback_token=True), Depends(asked)],
        "response_model": view,
        "response_description": "`outcome` is `applied`, `duplicate` or `late`",
        "responses": problems("ORCHESTRATION_UNAVAILABLE"),
    }


async def _ack(body: AckMessage) -> None: ...


async def _result(body: ResultMessage) -> None: ...


async def _heartbeat(body: HeartbeatMessage) -> None: ...


async def _release(body: ReleaseMessage) -> None: ...


@router.post("/v1/callbacks/ack", **_declared("A service has taken a slot for the directive", _ack))
async def callback_ack(context: Context, request: Request, caller: KnownCaller) -> Response:
    _, applied = await _taken(context, request, "ACK")
    return Response(_PLAIN[applied.outcome], media_type=JSON)


@router.post("/v1/callbacks/result", **_declared("How the attempt ended", _result))
async def callback_result(context: Context, request: Request, caller: KnownCaller) -> Response:
    _, applied = await _taken(context, request, "RESULT")
    return Response(_PLAIN[applied.outcome], media_type=JSON)


@router.post(
    "/v1/callbacks/heartbeat",
    **_declared("The attempt is alive: extend its lease", _heartbeat, HeartbeatView),
)
async def callback_heartbeat(context: Context, request: Request, caller: KnownCaller) -> Response:
    return json_response(answer(*await _taken(context, request, "HEARTBEAT")))


@router.post(
    "/v1/callbacks/release",
    **_declared("Give the lease back without using up the attempt", _release),
)
async def callback_release(context: Context, request: Request, caller: KnownCaller) -> Response:
    _, applied = await _taken(context, request, "RELEASE")
    return Response(_PLAIN[applied.outcome], media_type=JSON)
