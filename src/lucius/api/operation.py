"""One operation of the API: its handler, who may call it, and all that its documentation says.

A route cannot be added without a role and its answers. Which error codes it answers with, the registry
of the codes says (`contract/codes`).
"""

import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Final

import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from lucius.api.context import ANYONE, ApiContext, Caller, Role
from lucius.api.limits import RESERVE_CODE, RateLimit, client_of
from lucius.api.metrics import Observe
from lucius.api.problems import Problem, problem_response, without_texts
from lucius.api.queries import query_check
from lucius.contract.codes import CODES, Operations, ProblemCode
from lucius.contract.envelope import JsonObject
from lucius.contract.shapes import ProblemShape
from lucius.core.errors import LuciusError

Handler = Callable[[ApiContext, Request, Caller], Awaitable[Response]]
Endpoint = Callable[[Request], Coroutine[Any, Any, Response]]
Refuse = Callable[[Request, Exception], Response]
OPERATORS: Final = frozenset((Role.OPERATE, Role.ADMIN))
ON_RESERVE: Final = OPERATORS | {Role.MONITOR}
"""Operations of these roles are answered when every other connection is taken."""
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
    parameters: tuple[JsonObject, ...] = ()
    body: JsonObject | None = None
    body_required: bool = True
    description: str = ""
    callback_token: bool = False
    problem: type[Any] = ProblemShape
    """The shape of its errors."""
    deprecated: bool = False
    hidden: bool = False
    worker: bool = False
    """Workers call it: it is charged to their limit."""
    monitor: bool = False
    """For monitors: anyone is answered, uncounted, and on the reserve of connections too."""
    every_tenant: bool = False
    """It shows or moves what belongs to all tenants: not for a caller that is bound to some."""
    refuse: Refuse | None = None
    """How it answers with an error; None: with a problem document."""
    also: tuple[Role, ...] = ()
    """Roles that may call it besides `role`."""

    @property
    def operation_id(self) -> str:
        name = self.handler.__name__
        return f"{name}_alias" if self.deprecated else name

    @property
    def roles(self) -> tuple[Role, ...]:
        """One of them is enough."""
        return self.also if self.role is None else (self.role, *self.also)

    def is_open_to(self, caller: Caller) -> bool:
        """Whether the caller has one of its roles. Tenants are another question."""
        return not caller.roles.isdisjoint(self.roles)

    @property
    def codes(self) -> tuple[ProblemCode, ...]:
        """All that it may answer with, in the order of the registry."""
        own = {self.handler.__name__, *self._kinds()}
        return tuple(known for known in CODES.values() if not own.isdisjoint(known.answered_by))

    def _kinds(self) -> Iterator[Operations]:
        yield Operations.ALL
        if self.body is not None:
            yield Operations.WITH_BODY
        if any(parameter["in"] == "query" for parameter in self.parameters):
            yield Operations.WITH_QUERY
        if self.role is not None:
            yield Operations.WITH_ROLE
        if "{jobId}" in self.path:
            yield Operations.OF_A_JOB
        if self.callback_token:
            yield Operations.CALLBACKS
        if self.every_tenant:
            yield Operations.FOR_ALL_TENANTS
        if not self.monitor:
            yield Operations.NOT_FOR_MONITORS


@dataclass(frozen=True, slots=True)
class Room:
    """Operations beside those of the API, in the same process and under the same limits.

    `context` is that of the API, with another way to know a caller.
    """

    context: ApiContext
    operations: tuple[Operation, ...]
    refuse: Refuse | None = None
    """How a browser is told that there is no such page; None: with a problem document."""


JSON: Final = "application/json"


def json_response(
    content: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(orjson.dumps(content), status, dict(headers) if headers else None, JSON)


def endpoint(context: ApiContext, operation: Operation, observe: Observe) -> Endpoint:
    """The way into every operation: who calls, may they, and what comes out if it goes wrong."""
    handler, refuse = operation.handler, operation.refuse or _problem_document
    rate = context.worker_rate if operation.worker else context.rate
    check_query = query_check(operation.parameters)

    async def call(request: Request) -> Response:
        started, caller = perf_counter(), ANYONE
        try:
            caller = await _caller(context, operation, request, rate)
            if request.scope["query_string"]:
                check_query(request)
            response = await handler(context, request, caller)
        except LuciusError as error:
            full = context.authenticate is None or is_operator(caller)
            response = refuse(request, error if full else without_texts(error))
            if response.status_code >= 500:
                log.warning("%s %s: %r", operation.method, operation.path, error)
        except ClientDisconnect:
            response = Response(status_code=400)
        except Exception as error:
            log.exception("%s %s failed", operation.method, operation.path)
            response = refuse(request, error)
        observe(response.status_code, perf_counter() - started)
        return response

    return call


def _problem_document(request: Request, error: Exception) -> Response:
    return problem_response(error)


async def _caller(
    context: ApiContext, operation: Operation, request: Request, rate: RateLimit | None
) -> Caller:
    role, caller = operation.role, ANYONE
    if operation.monitor:
        return caller
    if role is None:
        if not operation.callback_token:
            charge_stranger(context, request)
    elif context.authenticate is not None or rate is not None:
        caller = await _known(context, request, rate)
        check_access(operation, caller)
    no_room = request.scope.get(RESERVE_CODE)
    if no_room is not None and role not in ON_RESERVE and not is_operator(caller):
        raise Problem(no_room)
    return caller


def check_access(operation: Operation, caller: Caller) -> None:
    """Raises the 403 for a caller without the role, or bound to tenants where all are concerned."""
    if not operation.is_open_to(caller):
        names = " or ".join(role.value for role in operation.roles)
        raise Problem("FORBIDDEN", f"this needs the role {names}")
    if operation.every_tenant and caller.tenants is not None:
        raise Problem("TENANT_FORBIDDEN", "this is for callers that are bound to no tenant")


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


def charge_stranger(context: ApiContext, request: Request) -> None:
    """For a request that nobody answers for, whatever it was meant for."""
    rate = context.rate or context.worker_rate
    if rate is not None:
        rate.take(client_of(request))
