"""One operation of the API: its handler, who may call it, and all that its documentation says.

A route cannot be added without a role, its answers and its error codes.
"""

import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Final

import orjson
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from lucius.api.context import ANYONE, ApiContext, Caller, Role
from lucius.api.limits import RateLimit, client_of
from lucius.api.metrics import Observe
from lucius.api.problems import Problem, problem_response
from lucius.core.errors import LuciusError

Json = dict[str, Any]
Handler = Callable[[ApiContext, Request, Caller], Awaitable[Response]]
Endpoint = Callable[[Request], Coroutine[Any, Any, Response]]
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answer:
    """A documented success. `shape` is a TypedDict of `shapes`; `media` an extra content type."""

    description: str
    shape: type[Any] | None = None
    media: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Operation:
    method: str
    path: str
    handler: Handler
    summary: str
    tag: str
    role: Role | None
    """None: open to everyone, or guarded by a callback token."""
    answers: Mapping[int, Answer]
    codes: tuple[str, ...] = ()
    parameters: tuple[Json, ...] = ()
    body: Json | None = None
    body_required: bool = True
    description: str = ""
    callback_token: bool = False
    deprecated: bool = False
    hidden: bool = False
    worker: bool = False
    """Workers call it: it is charged to their limit."""
    every_tenant: bool = False
    """It shows or moves what belongs to all tenants: not for a caller that is bound to some."""

    @property
    def operation_id(self) -> str:
        name = self.handler.__name__
        return f"{name}_alias" if self.deprecated else name


JSON: Final = "application/json"


def json_response(
    content: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(orjson.dumps(content), status, dict(headers) if headers else None, JSON)


class DirectRoute(APIRoute):
    """Calls its endpoint with the request and nothing else: no dependencies, no models.

    OpenAPI comes from the `Operation`, so nothing of FastAPI's per-request work is needed.
    """

    def get_route_handler(self) -> Endpoint:
        return self.endpoint


def endpoint(context: ApiContext, operation: Operation, observe: Observe) -> Endpoint:
    """The way into every operation: who calls, may they, and what comes out if it goes wrong."""
    handler = operation.handler
    rate = context.worker_rate if operation.worker else context.rate

    async def call(request: Request) -> Response:
        started = perf_counter()
        try:
            caller = await _caller(context, operation, request, rate)
            response = await handler(context, request, caller)
        except LuciusError as error:
            response = problem_response(error)
            if response.status_code >= 500:
                log.warning("%s %s: %r", operation.method, operation.path, error)
        except ClientDisconnect:
            response = Response(status_code=400)
        except Exception as error:
            log.exception("%s %s failed", operation.method, operation.path)
            response = problem_response(error)
        observe(response.status_code, perf_counter() - started)
        return response

    return call


async def _caller(
    context: ApiContext, operation: Operation, request: Request, rate: RateLimit | None
) -> Caller:
    role = operation.role
    if role is None or (context.authenticate is None and rate is None):
        return ANYONE
    caller = await _known(context, request, rate)
    if role not in caller.roles:
        raise Problem("FORBIDDEN", f"this needs the role {role.value}")
    if operation.every_tenant and caller.tenants is not None:
        raise Problem("TENANT_FORBIDDEN", "this is for callers that are bound to no tenant")
    return caller


async def _known(context: ApiContext, request: Request, rate: RateLimit | None) -> Caller:
    """The caller, charged for the request. Whoever cannot say who they are is charged by address."""
    if context.authenticate is None:
        caller, who = ANYONE, client_of(request)
    else:
        try:
            caller = await context.authenticate(request)
        except LuciusError:
            charge_stranger(context, request)
            raise
        who = caller.counted_as
    if rate is not None:
        rate.take(who)
    return caller


def charge_stranger(context: ApiContext, request: Request) -> None:
    """For a request that nobody answers for, whatever it was meant for."""
    rate = context.rate or context.worker_rate
    if rate is not None:
        rate.take(client_of(request))
