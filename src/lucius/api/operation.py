"""One operation of the API: its handler, who may call it, and all that its documentation says.

A route cannot be added without a role and its answers. Which error codes it answers with, the registry
of the codes says (`contract/codes`).
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fastapi import Depends
from starlette.responses import Response

from lucius.api.context import Caller, Role
from lucius.api.queries import query_check
from lucius.api.routing import Access, ApiRoute, Refuse
from lucius.contract.codes import CODES, Operations, ProblemCode
from lucius.contract.envelope import JsonObject
from lucius.contract.shapes import ProblemShape

Handler = Callable[..., Awaitable[Response]]


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
    also: tuple[Role, ...] = ()
    """Roles that may call it besides `role`."""

    @property
    def operation_id(self) -> str:
        name = self.handler.__name__
        return f"{name}_alias" if self.deprecated else name

    @property
    def access(self) -> Access:
        return Access(
            self.role,
            self.also,
            worker=self.worker,
            monitor=self.monitor,
            every_tenant=self.every_tenant,
            callback_token=self.callback_token,
        )

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
    """Operations beside those of the API, in the same process and under the same limits."""

    operations: tuple[Operation, ...]
    route_class: type[ApiRoute]
    refuse: Refuse | None = None
    """How a browser is told that there is no such page; None: with a problem document."""


def route_of(operation: Operation, route_class: type[ApiRoute]) -> ApiRoute:
    route = route_class(
        operation.path,
        operation.handler,
        methods=[operation.method],
        name=operation.operation_id,
        tags=[operation.tag],
        dependencies=[Depends(operation.access)],
        response_model=None,
        include_in_schema=False,
    )
    route.takes = query_check(operation.parameters)
    return route
