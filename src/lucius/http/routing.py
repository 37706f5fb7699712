"""What every route has in common: who may call it, its limits, its metrics, and how it answers with errors.

A route is declared as anywhere in FastAPI, in a router whose route class is `ApiRoute`, with `needs(...)`
among its dependencies. What must happen before a body is read is done by the route class, because FastAPI
reads the body before it asks dependencies.
"""

import logging
import warnings
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Annotated, Any, ClassVar, Final, Self, get_args, get_origin

import orjson
from fastapi import Depends
from fastapi._compat import ModelField
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.params import Depends as Dependency
from fastapi.routing import APIRoute
from prometheus_client import CollectorRegistry
from pydantic import BaseModel
from pydantic.warnings import UnsupportedFieldAttributeWarning
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from lucius.core.errors import LuciusError
from lucius.http.body import object_in, read
from lucius.http.context import ANYONE, ApiContext, Caller, Role
from lucius.http.limits import RESERVE_CODE, RateLimit, client_of
from lucius.http.problems import (
    Problem,
    Responses,
    RouteKind,
    all_codes,
    documented,
    named_in,
    parameter_problem,
    problem_response,
    successes_in,
    unfit,
    without_texts,
)
from lucius.http.tracing import span_of
from lucius.system import tracing
from lucius.system.instruments import Count, Distribution, Instruments

# Metrics of the HTTP surface: requests by route and status, and how long they took.

_BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60)
UNROUTED: Final = "(unrouted)"
"""The route of requests that none takes. What they ask for is no label: anyone may ask for anything."""
_METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
_TEXTS: Final = {status: str(status) for status in range(100, 600)}


class HttpInstruments(Instruments):
    def __init__(self) -> None:
        route = ("method", "route")
        self.requests = Count(
            "lucius_http_requests_total", "HTTP requests answered", (*route, "status")
        )
        self.seconds = Distribution(
            "lucius_http_request_seconds", "Time to answer an HTTP request", route, _BOUNDS
        )


class HttpMetrics(HttpInstruments):
    """Counts even where nobody scrapes: that is cheaper than asking."""

    def __init__(self, registry: CollectorRegistry | None) -> None:
        super().__init__()
        if registry is not None:
            self.register(registry)

    def unrouted(self, method: str, status: int) -> None:
        """An answer that no operation gave."""
        self.requests.add(method if method in _METHODS else "OTHER", UNROUTED, _TEXTS[status])

    def observe(self, method: str, route: str, status: int, elapsed: float) -> None:
        self.requests.add(method, route, _TEXTS[status])
        self.seconds.add(elapsed, method, route)


Refuse = Callable[[Request, Exception], Response]
Endpoint = Callable[[Request], Coroutine[Any, Any, Response]]
OPERATORS: Final = frozenset((Role.OPERATE, Role.ADMIN))
ON_RESERVE: Final = OPERATORS | {Role.MONITOR}
"""Routes of these roles are answered when every other connection is taken."""
JSON: Final = "application/json"
SYSTEM: Final = "system"
"""The tag of what monitors ask: no span is opened for it."""
NO_TELEMETRY: Final[Any] = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "auto_configure": False,
}
"""FastAPI's own: spans and metrics of requests are ours (`http/tracing.py`, `http/routing.py`)."""
_MAX_NAME: Final = 64
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
    access: Access
    answer: Endpoint
    """What a request goes through once its caller is known."""
    handle_request: Endpoint
    """What FastAPI asks: `answer`, with what comes before and after it."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **given: Any) -> None:
        responses: Responses = given.pop("responses", None) or {}
        given["operation_id"] = given.get("operation_id") or endpoint.__name__
        given["strict_content_type"] = (
            False  # who names no type may send JSON: what others name was checked
        )
        super().__init__(path, endpoint, **{**given, "responses": successes_in(responses)})
        if self.body_field is not None:
            build(self.body_field)
        self.own_codes = named_in(responses)
        self.codes = all_codes(self.own_codes, self.kinds)
        self.responses |= documented(self.codes, responses)

    def get_route_handler(self) -> Endpoint:
        """Called once, by the constructor, when all is known that is declared."""
        self.method = next(iter(self.methods or ()))
        self.access = access = _access_of(self.dependencies)
        self.queried = _queried(self.dependant)
        self.answer = answer = self.answering()

        async def handle(request: Request) -> Response:
            started, scope, caller = perf_counter(), request.scope, ANYONE
            state = scope["app"].state
            context: ApiContext = self.context or state.context
            scope[_CONTEXT] = context
            span = span_of(self.method, self.path, scope) if self._is_traced() else None
            try:
                scope[_CALLER] = caller = await access.caller(context, request)
                if scope["query_string"]:
                    self._check_query(request)
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

        self.handle_request = handle
        return handle

    def answering(self) -> Endpoint:
        """FastAPI's own way, with a body that is read strictly."""
        inner, body = super().get_route_handler(), self.body_field

        async def answer(request: Request) -> Response:
            if body is not None:
                limit = api_context(request).options.max_body_bytes
                must = body.field_info.is_required()
                request = await StrictRequest.read(request, limit, required=must)
            try:
                return await inner(request)
            except RequestValidationError as error:
                raise unfit(error) from None

        return answer

    async def answer_inside(self, request: Request, context: ApiContext, caller: Caller) -> Any:
        """What it answers to someone in this process, whose caller is known. Raises what it raises."""
        request.scope[_CONTEXT], request.scope[_CALLER] = context, caller
        return orjson.loads((await self.answer(request)).body)

    def refuse(self, request: Request, error: Exception) -> Response:
        """How it answers with an error."""
        return problem_response(error)

    @property
    def kinds(self) -> list[RouteKind]:
        """What it has in common with others, for the codes that they share."""
        access = self.access
        holds = {
            RouteKind.ALL: True,
            RouteKind.WITH_BODY: self.body_field is not None,
            RouteKind.WITH_QUERY: bool(self.queried),
            RouteKind.WITH_ROLE: access.role is not None,
            RouteKind.OF_A_JOB: "{jobId}" in self.path,
            RouteKind.CALLBACKS: access.callback_token,
            RouteKind.FOR_ALL_TENANTS: access.every_tenant,
            RouteKind.NOT_FOR_MONITORS: not access.monitor,
        }
        return [kind for kind, so in holds.items() if so]

    def _check_query(self, request: Request) -> None:
        """Raises the problem that names the first parameter which the route does not take so."""
        queried = self.queried
        given = Counter(name for name, _ in request.query_params.multi_items())
        for name, times in given.items():
            if name not in queried:
                takes = f"it takes {', '.join(queried)}" if queried else "it takes none"
                detail = f"this route has no such parameter; {takes}"
                raise parameter_problem(name[:_MAX_NAME], detail, "UNKNOWN_PARAMETER")
            if times > 1 and not queried[name]:
                raise parameter_problem(name, f"must be given once, not {times} times")

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

    What it reads is declared by a dependency that nobody calls. FastAPI's own way costs a request 55 to
    100 us of CPU more; docs/decisions/0055 has the numbers.
    """

    def answering(self) -> Endpoint:
        endpoint = self.endpoint

        async def answer(request: Request) -> Response:
            scope = request.scope
            response: Response = await endpoint(scope[_CONTEXT], request, scope[_CALLER])
            return response

        return answer


class StrictRequest(Request):
    """A request whose body was read within bounds and has one meaning, before FastAPI asks for it."""

    def __init__(self, request: Request, content: bytes, value: Any) -> None:
        super().__init__(request.scope, request.receive)
        self._content = content
        self._value = value

    @classmethod
    async def read(cls, request: Request, limit: int, *, required: bool) -> Self:
        content = await read(request, limit)
        if not required and not content.strip():
            return cls(request, b"", None)
        return cls(request, content, object_in(content))

    async def body(self) -> bytes:
        return self._content

    async def json(self) -> Any:
        return self._value


def build(field: ModelField) -> None:
    """Now, and not with the first request. FastAPI hides this warning, but our models are built later."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnsupportedFieldAttributeWarning)
        field.validate({}, {}, loc=("body",))


def _queried(dependant: Dependant) -> dict[str, bool]:
    """The query parameters of a route by name, and whether each may be given several times."""
    found: dict[str, bool] = {}
    for field in dependant.query_params:
        model = field.field_info.annotation
        if isinstance(model, type) and issubclass(model, BaseModel):
            for name, each in model.model_fields.items():
                found[name] = is_list(each.annotation)
        else:
            found[field.alias] = is_list(model)
    for inner in dependant.dependencies:
        found |= _queried(inner)
    return found


def is_list(annotation: Any) -> bool:
    """Whether a value of it may be given several times."""
    inner = get_args(annotation)
    return get_origin(annotation) is list or any(is_list(each) for each in inner)


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
    """Moments are written as RFC 3339 in UTC, with Z."""
    data = orjson.dumps(content, option=orjson.OPT_UTC_Z)
    return Response(data, status, dict(headers) if headers else None, JSON)
