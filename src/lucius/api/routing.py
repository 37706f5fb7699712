"""What every route has in common: who may call it, its limits, its metrics, and how it answers with errors.

A route is declared as anywhere in FastAPI, in a router whose route class is `ApiRoute`, with `needs(...)`
among its dependencies. What must happen before a body is read is done by the route class, because FastAPI
reads the body before it asks dependencies.
"""

import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Annotated, Any, ClassVar, Final

import orjson
from fastapi import Depends
from fastapi.params import Depends as Dependency
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from lucius.api.context import ANYONE, ApiContext, Caller, Role
from lucius.api.limits import RESERVE_CODE, RateLimit, client_of
from lucius.api.metrics import HttpMetrics
from lucius.api.problems import Problem, problem_response, without_texts
from lucius.api.tracing import span_of
from lucius.core.errors import LuciusError
from lucius.telemetry import tracing

Refuse = Callable[[Request, Exception], Response]
Endpoint = Callable[[Request], Coroutine[Any, Any, Response]]
OPERATORS: Final = frozenset((Role.OPERATE, Role.ADMIN))
ON_RESERVE: Final = OPERATORS | {Role.MONITOR}
"""Routes of these roles are answered when every other connection is taken."""
JSON: Final = "application/json"
SYSTEM: Final = "system"
"""The tag of what monitors ask: no span is opened for it."""
_CONTEXT: Final = "lucius.context"
_CALLER: Final = "lucius.caller"
log = logging.getLogger("lucius.api")


def api_context(request: Request) -> ApiContext:
    context: ApiContext = request.scope[_CONTEXT]
    return context


def known_caller(request: Request) -> Caller:
    """Who calls: the route has found out before anything of the request was read."""
    caller: Caller = request.scope[_CALLER]
    return caller


async def _context(request: Request) -> ApiContext:
    return api_context(request)


async def _caller(request: Request) -> Caller:
    return known_caller(request)


Context = Annotated[ApiContext, Depends(_context)]
KnownCaller = Annotated[Caller, Depends(_caller)]


@dataclass(frozen=True, slots=True)
class Access:
    """Who may call a route, and whose limits it is charged to."""

    role: Role | None = None
    """None: open to everyone, or guarded by a callback token."""
    also: tuple[Role, ...] = ()
    """Roles that may call it besides `role`."""
    worker: bool = False
    """Workers call it: it is charged to their limit."""
    monitor: bool = False
    """For monitors: anyone is answered, uncounted, and on the reserve of connections too."""
    every_tenant: bool = False
    """It shows or moves what belongs to all tenants: not for a caller that is bound to some."""
    callback_token: bool = False
    """It looks at the token of the request itself, and charges the tenant of that."""

    async def __call__(self) -> None:
        """A dependency that has nothing to do when FastAPI asks it: the route has asked it before."""

    @property
    def roles(self) -> tuple[Role, ...]:
        """One of them is enough."""
        return self.also if self.role is None else (self.role, *self.also)

    def is_open_to(self, caller: Caller) -> bool:
        """Whether the caller has one of its roles. Tenants are another question."""
        return not caller.roles.isdisjoint(self.roles)

    def check(self, caller: Caller) -> None:
        """Raises the 403 for a caller without the role, or bound to tenants where all are concerned."""
        if not self.is_open_to(caller):
            names = " or ".join(role.value for role in self.roles)
            raise Problem("FORBIDDEN", f"this needs the role {names}")
        if self.every_tenant and caller.tenants is not None:
            raise Problem("TENANT_FORBIDDEN", "this is for callers that are bound to no tenant")

    async def caller(self, context: ApiContext, request: Request) -> Caller:
        """Who calls, charged for the request. Raises where it may not be served."""
        role, caller = self.role, ANYONE
        if self.monitor:
            return caller
        rate = context.worker_rate if self.worker else context.rate
        if role is None:
            if not self.callback_token:
                charge_stranger(context, request)
        elif context.authenticate is not None or rate is not None:
            caller = await _known(context, request, rate)
            self.check(caller)
        no_room = request.scope.get(RESERVE_CODE)
        if no_room is not None and role not in ON_RESERVE and not is_operator(caller):
            raise Problem(no_room)
        return caller


def needs(role: Role | None, *also: Role, **more: bool) -> Any:
    """The dependency that says who may call a route."""
    return Depends(Access(role, also, **more))


class ApiRoute(APIRoute):
    """A route of the API. What is declared of it is FastAPI's; this adds what comes before and after."""

    context: ClassVar[ApiContext | None] = None
    """None: that of the application. Rooms beside the API know their callers in another way."""
    takes: Callable[[Request], None]
    """Raises the problem of a query parameter that the route does not take so."""

    def get_route_handler(self) -> Endpoint:
        """Called once, at the end of the constructor."""
        self.access = _access_of(self.dependencies)
        self.method = next(iter(self.methods or ()))
        answer, access = self.answering(), self.access

        async def handle(request: Request) -> Response:
            started, scope, caller = perf_counter(), request.scope, ANYONE
            state = scope["app"].state
            context: ApiContext = self.context or state.context
            scope[_CONTEXT] = context
            span = span_of(self.method, self.path, scope) if self._is_traced() else None
            try:
                scope[_CALLER] = caller = await access.caller(context, request)
                if scope["query_string"]:
                    self.takes(request)
                response = await answer(request)
            except ClientDisconnect:
                response = Response(status_code=400)
            except Exception as error:
                response = self._failed(context, request, caller, error)
            except BaseException:
                if span is not None:
                    span.answered(500)
                raise
            metrics: HttpMetrics = state.metrics
            metrics.observe(self.method, self.path, response.status_code, perf_counter() - started)
            if span is not None:
                span.answered(response.status_code)
            return response

        return handle

    def answering(self) -> Endpoint:
        """What a request goes through once its caller is known."""
        return super().get_route_handler()

    def refuse(self, request: Request, error: Exception) -> Response:
        """How it answers with an error."""
        return problem_response(error)

    def _is_traced(self) -> bool:
        return tracing.active() and SYSTEM not in self.tags

    def _failed(
        self, context: ApiContext, request: Request, caller: Caller, error: Exception
    ) -> Response:
        if not isinstance(error, LuciusError):
            log.exception("%s %s failed", self.method, self.path)
            return self.refuse(request, error)
        full = context.authenticate is None or is_operator(caller)
        response = self.refuse(request, error if full else without_texts(error))
        if response.status_code >= 500:
            log.warning("%s %s: %r", self.method, self.path, error)
        return response


class ShortRoute(ApiRoute):
    """The short way of the busiest routes: the endpoint is handed the request and reads it itself.

    FastAPI's own way costs a read of a job 80 us of CPU more; docs/decisions/0025 has the numbers.
    """

    def answering(self) -> Endpoint:
        endpoint = self.endpoint

        async def answer(request: Request) -> Response:
            scope = request.scope
            response: Response = await endpoint(scope[_CONTEXT], request, scope[_CALLER])
            return response

        return answer


def _access_of(dependencies: list[Dependency]) -> Access:
    for each in dependencies:
        if isinstance(each.dependency, Access):
            return each.dependency
    raise TypeError("a route says who may call it: dependencies=[needs(...)]")


def is_operator(caller: Caller) -> bool:
    """Whether the caller has shown to be one. Where nobody needs to say who they are, nobody has."""
    return caller is not ANYONE and not caller.roles.isdisjoint(OPERATORS)


async def _known(context: ApiContext, request: Request, rate: RateLimit | None) -> Caller:
    """The caller, charged for the request. Whoever cannot say who they are is charged by address."""
    if context.authenticate is None:
        caller = ANYONE
    else:
        try:
            caller = await context.authenticate(request)
        except LuciusError:
            charge_stranger(context, request)
            raise
    if rate is not None:
        rate.take(charged_as(context, request, caller))
    return caller


def charged_as(context: ApiContext, request: Request, caller: Caller) -> str:
    """Whose limits a request counts for: the caller's, or its address's where callers are not known."""
    return client_of(request) if context.authenticate is None else caller.counted_as


def charge_stranger(context: ApiContext, request: Request) -> None:
    """For a request that nobody answers for, whatever it was meant for."""
    rate = context.rate or context.worker_rate
    if rate is not None:
        rate.take(client_of(request))


def place_to_wait(context: ApiContext, request: Request, caller: Caller) -> Callable[[], None]:
    """Count a request that waits. Call what is returned when it waits no more."""
    no_room = request.scope.get(RESERVE_CODE)
    if no_room is not None:
        raise Problem(no_room)
    if context.waits is None:
        return _nothing
    return context.waits.take(charged_as(context, request, caller))


@contextmanager
def waiting(context: ApiContext, request: Request, caller: Caller) -> Iterator[None]:
    leave = place_to_wait(context, request, caller)
    try:
        yield
    finally:
        leave()


def _nothing() -> None: ...


def json_response(
    content: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(orjson.dumps(content), status, dict(headers) if headers else None, JSON)
