"""The pull gateway: workers in any language take directives and answer them over plain HTTP."""

import asyncio
import re
from contextlib import nullcontext, suppress
from difflib import get_close_matches
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Depends
from starlette.requests import Request
from starlette.responses import Response

from lucius.contract.models.base import JsonObject, MayMiss
from lucius.contract.models.messages import DirectivesView, PullBody, RepliesBody, RepliesView
from lucius.core.errors import LuciusError, RequestError
from lucius.core.wire import said_of_itself
from lucius.http.body import json_object, optional_object
from lucius.http.context import ApiContext, Role, check
from lucius.http.keys import id_of
from lucius.http.parameters import ServiceInPath, bearer
from lucius.http.problems import Problem, offered, outcome_of, problems, read_as, without_texts
from lucius.http.routes.callbacks import answer, proven, take_reply
from lucius.http.routing import (
    Context,
    KnownCaller,
    ShortRoute,
    api_context,
    json_response,
    needs,
    waiting,
)

_MAX_NAME: Final = 128
_REFUSED: Final = (401, 403)
_KEY_ID: Final = re.compile("[0-9a-f]{12}")
_UNPROVEN: Final = (401, 422)
"""Outcomes of replies that no token has shown to be genuine."""


async def _pull(
    service: ServiceInPath, body: Annotated[MayMiss[PullBody], Body()] = None
) -> None: ...


async def _replies(service: ServiceInPath, body: RepliesBody) -> None: ...


class PullRoute(ShortRoute):
    """Whoever asks why nobody works for a service hears that a worker was refused."""

    def refuse(self, request: Request, error: Exception) -> Response:
        response, service = super().refuse(request, error), request.path_params["service"]
        refusals = api_context(request).refusals
        if refusals is None or response.status_code not in _REFUSED:
            return response
        if service in _services(api_context(request)):  # strangers name anything
            key = id_of(request.headers.get("x-api-key") or bearer(request) or "")
            shown = key if _KEY_ID.fullmatch(key) else None
            refusals.pull_refused(service, response.status_code, shown)
        return response


router = APIRouter(route_class=PullRoute, tags=["services"])


@router.post(
    "/v1/services/{service}/directives:pull",
    summary="Take directives",
    description="A directive that is not acknowledged in time is handed out again.",
    dependencies=[needs(Role.SERVICE, worker=True), Depends(_pull)],
    response_model=DirectivesView,
    response_description="Directives, each with its `callback_token`",
    responses=problems(
        "SERVICE_NOT_FOUND",
        "TENANT_WITHOUT_POOL",
        "TOO_MANY_WAITING",
        "BUS_UNAVAILABLE",
        "NOT_SUPPORTED",
    ),
)
async def pull_directives(context: Context, request: Request, caller: KnownCaller) -> Response:
    given = await optional_object(request, context.options.max_body_bytes)
    body = read_as(PullBody, given)
    worker_id, slots, version = said_of_itself(given, [])
    gateway = offered(context.gateway)
    service: str = request.path_params["service"]
    try:
        await gateway.admit(service, caller.tenants)
    except RequestError as error:
        if error.code == "SERVICE_NOT_FOUND":
            raise _misnamed(context, service, error.detail) from None
        raise
    if context.services is not None:  # a worker that is refused is not registered
        context.services.pulled(service, worker_id or caller.name, slots, version)

    async def gone() -> None:
        with suppress(Problem):  # who may call no longer has gone, too
            async with context.watch.while_it(caller.stands):
                while (await request.receive())["type"] != "http.disconnect":
                    pass

    with waiting(context, request, caller) if body.wait_seconds else nullcontext():
        directives = await gateway.pull(
            service, body.max, body.wait_seconds, caller.tenants, gone, caller.stands
        )
    if not directives:
        check(caller.stands)
    return json_response({"directives": list(directives)})


def _services(context: ApiContext) -> set[str]:
    """Those that a protocol names."""
    protocols = context.config.catalog().protocols.values()
    return {step.service for protocol in protocols for step in protocol.steps}


def _misnamed(context: ApiContext, service: str, detail: str) -> Problem:
    """A name that is nearly that of a service is remembered, and answered with it."""
    close = get_close_matches(service, _services(context), 1)
    if close and context.refusals is not None and service.isprintable():
        context.refusals.misnamed(service[:_MAX_NAME])
    meant = f"; did you mean {close[0]}?" if close else ""
    return Problem("SERVICE_NOT_FOUND", f"{detail}{meant}")


@router.post(
    "/v1/services/{service}/replies",
    summary="Answer many directives at once",
    dependencies=[needs(Role.SERVICE, worker=True), Depends(_replies)],
    response_model=RepliesView,
    response_description="One outcome for each reply, in order",
    responses=problems("SERVICE_NOT_FOUND"),
)
async def take_replies(context: Context, request: Request, caller: KnownCaller) -> Response:
    """Each reply is judged on its own; those of one job in order, those of several together.

    A service that no protocol names any more may still answer what it was given: its tokens prove it.
    """
    body = await json_object(request, context.options.max_body_bytes)
    replies = read_as(RepliesBody, body).replies
    outcomes: list[JsonObject] = [{"status": 0}] * len(replies)
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


async def _taken(context: ApiContext, reply: Any) -> JsonObject:
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
    return {"status": 200, **answer(received, applied)}
