"""The pull gateway: workers in any language take directives and answer them over plain HTTP."""

import asyncio
from contextlib import nullcontext, suppress
from typing import Any, Final, cast

from starlette.requests import Request
from starlette.responses import Response

from lucius.api.body import field_problem, json_object, number_in, optional_object, whole_in
from lucius.api.context import ApiContext, Role
from lucius.api.openapi import path_parameter
from lucius.api.operation import Answer, Operation
from lucius.api.problems import Problem, outcome_of, without_texts
from lucius.api.replies import answer, proven, take_reply
from lucius.api.routes.callbacks import reply_schema
from lucius.api.routing import Context, KnownCaller, json_response, waiting
from lucius.api.standing import check
from lucius.contract.shapes import DirectivesShape, RepliesShape, ReplyOutcomeShape
from lucius.core.bounds import SLOTS, Number, Whole
from lucius.core.errors import LuciusError
from lucius.core.wire import said_of_itself

_MAX: Final = Whole(1, 256)
_WAIT: Final = Number(0, 60)
MAX_REPLIES: Final = 256
_SERVICE: Final = path_parameter("service", "The service's name, as in the protocols")
_PULL: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "max": {
            **_MAX.schema,
            "default": 1,
            "description": "The worker's free slots: so many are handed out, if so many wait",
        },
        "wait_seconds": {**_WAIT.schema, "default": 0},
        "worker_id": {
            "type": "string",
            "description": "Who asks, for `GET /v1/services`; else the name of the caller",
        },
        "slots": {**SLOTS.schema, "description": "How many steps the worker takes at once"},
        "version": {"type": "string", "description": "Which release of the service it runs"},
    },
}
_UNPROVEN: Final = (401, 422)
"""Outcomes of replies that no token has shown to be genuine."""
_REPLY: Final = reply_schema(None)
_REPLIES: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["replies"],
    "properties": {
        "replies": {
            "type": "array",
            "maxItems": MAX_REPLIES,
            "items": {
                "anyOf": [
                    {
                        **_REPLY,
                        "title": "Reply",
                        "required": [*_REPLY["required"], "callback_token"],
                        "properties": {
                            **_REPLY["properties"],
                            "callback_token": {"type": "string"},
                        },
                    },
                    {
                        "title": "Anything else",
                        "description": "Refused by itself, with an outcome that says why",
                    },
                ]
            },
        }
    },
}


async def pull_directives(context: Context, request: Request, caller: KnownCaller) -> Response:
    body = await optional_object(request, context.options.max_body_bytes)
    limit = whole_in(body, "max", _MAX, 1)
    wait = number_in(body, "wait_seconds", Number(0, context.options.max_wait_seconds), 0)
    faults: list[tuple[str, str]] = []
    worker_id, slots, version = said_of_itself(body, faults)
    if faults:
        raise field_problem(*faults[0])
    if context.gateway is None:
        raise Problem("NOT_SUPPORTED")
    service: str = request.path_params["service"]
    await context.gateway.admit(service, caller.tenants)
    if context.services is not None:  # a worker that is refused is not registered
        context.services.pulled(service, worker_id or caller.name, slots, version)

    async def gone() -> None:
        with suppress(Problem):  # who may call no longer has gone, too
            async with context.watch.while_it(caller.stands):
                while (await request.receive())["type"] != "http.disconnect":
                    pass

    with waiting(context, request, caller) if wait else nullcontext():
        directives = await context.gateway.pull(
            service, limit, wait, caller.tenants, gone, caller.stands
        )
    if not directives:
        check(caller.stands)
    return json_response({"directives": list(directives)})


async def take_replies(context: Context, request: Request, caller: KnownCaller) -> Response:
    """Each reply is judged on its own; those of one job in order, those of several together.

    A service that no protocol names any more may still answer what it was given: its tokens prove it.
    """
    body = await json_object(request, context.options.max_body_bytes)
    replies = body.get("replies")
    if not isinstance(replies, list) or len(replies) > MAX_REPLIES:
        raise field_problem("/replies", f"must be a list of at most {MAX_REPLIES} replies")
    outcomes: list[ReplyOutcomeShape] = [{"status": 0}] * len(replies)
    by_job: dict[str, list[int]] = {}
    for at, reply in enumerate(replies):
        by_job.setdefault(str(reply.get("jobId")) if isinstance(reply, dict) else "", []).append(at)

    async def take(places: list[int]) -> None:
        for at in places:
            outcomes[at] = await _taken(context, replies[at])

    await asyncio.gather(*(take(places) for places in by_job.values()))
    service: str = request.path_params["service"]
    if context.gateway is not None and not context.gateway.knows(service):
        if all(outcome["status"] in _UNPROVEN for outcome in outcomes):
            raise Problem("SERVICE_NOT_FOUND", f"no protocol names the service {service[:128]!r}")
    return json_response({"outcomes": outcomes})


async def _taken(context: ApiContext, reply: Any) -> ReplyOutcomeShape:
    try:
        if not isinstance(reply, dict):
            raise Problem("INVALID_CALLBACK", "a reply must be an object")
        token = reply.get("callback_token")
        bound = proven(context, token if isinstance(token, str) else None)
        if context.worker_rate is not None:
            context.worker_rate.take(f"tenant {bound.tenant_id}")
        received, applied = await take_reply(context, reply, bound, None)
    except LuciusError as error:
        return outcome_of(without_texts(error))
    return cast(ReplyOutcomeShape, {"status": 200, **answer(received, applied)})


OPERATIONS: Final = (
    Operation(
        "POST",
        "/v1/services/{service}/directives:pull",
        pull_directives,
        "Take directives",
        "services",
        Role.SERVICE,
        {200: Answer("Directives, each with its `callback_token`", DirectivesShape)},
        parameters=(_SERVICE,),
        worker=True,
        body=_PULL,
        body_required=False,
        description="A directive that is not acknowledged in time is handed out again.",
    ),
    Operation(
        "POST",
        "/v1/services/{service}/replies",
        take_replies,
        "Answer many directives at once",
        "services",
        Role.SERVICE,
        {200: Answer("One outcome for each reply, in order", RepliesShape)},
        parameters=(_SERVICE,),
        worker=True,
        body=_REPLIES,
    ),
)
