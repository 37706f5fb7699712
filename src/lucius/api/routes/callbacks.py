"""Callbacks: ACK, RESULT, HEARTBEAT and RELEASE of the attempt that the token is bound to."""

from collections.abc import Callable
from typing import Any, Final

from fastapi import APIRouter, Depends
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from lucius.api.body import json_object
from lucius.api.context import ApiContext
from lucius.api.declared import problems
from lucius.api.problems import Problem
from lucius.api.replies import answer, proven, take_reply
from lucius.api.requests import bearer
from lucius.api.routing import (
    JSON,
    Context,
    KnownCaller,
    ShortRoute,
    charge_stranger,
    json_response,
    needs,
)
from lucius.api.tokens import Binding
from lucius.contract.models.messages import (
    AckMessage,
    CallbackView,
    HeartbeatMessage,
    HeartbeatView,
    ReleaseMessage,
    ResultMessage,
)
from lucius.core.effects import Outcome
from lucius.core.inputs import Callback
from lucius.ports.engine import Applied

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
