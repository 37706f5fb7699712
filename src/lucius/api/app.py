"""The application: every operation by its route, with problem documents for all that goes wrong."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from lucius import __version__
from lucius.api import openapi
from lucius.api.context import ApiContext
from lucius.api.metrics import HttpMetrics
from lucius.api.operation import Operation, Room, charge_stranger, endpoint
from lucius.api.pages import pages
from lucius.api.problems import Problem, problem_response
from lucius.api.readiness import Readiness
from lucius.api.route_table import RouteTable
from lucius.api.routes import (
    admin,
    bulk,
    callbacks,
    control,
    failures,
    gateway,
    ingress,
    reads,
    redrives,
    services,
    system,
    why,
)
from lucius.api.streams import Feeds
from lucius.api.tracing import traced

OPERATIONS: Final[tuple[Operation, ...]] = (
    *callbacks.OPERATIONS,
    *ingress.OPERATIONS,
    *gateway.OPERATIONS,
    *services.OPERATIONS,
    *control.OPERATIONS,
    *bulk.OPERATIONS,
    *why.OPERATIONS,
    *failures.OPERATIONS,
    *redrives.OPERATIONS,
    *reads.OPERATIONS,
    *admin.OPERATIONS,
    *system.OPERATIONS,
)
"""Routes are tried in this order: `{jobId}:cancel` before `{jobId}`, which would take both."""

_DESCRIPTION: Final = (
    "Post a command, follow its job. Errors are problem documents (RFC 9457) with a stable `code`."
)


class Application(Starlette):
    """Every operation by its route. An endpoint answers for its own errors, so no layer is in between."""

    def __init__(self, context: ApiContext, rooms: Sequence[Room] = ()) -> None:
        super().__init__(lifespan=_lifespan)
        self.state.feeds = Feeds(context)
        self.state.readiness = Readiness(context.checks, context.options.check_seconds)
        self._context = context
        self._metrics = HttpMetrics(context.registry)
        self._table = RouteTable()
        self._root = context.options.root_path
        self._refuse = next((room.refuse for room in rooms if room.refuse is not None), None)
        self.operations = OPERATIONS + (pages(self.openapi) if context.options.docs else ())
        for room in (Room(context, self.operations), *rooms):
            for operation in room.operations:
                observe = self._metrics.observer(operation.method, operation.path)
                call = traced(operation, endpoint(room.context, operation, observe))
                self._table.add(operation.method, operation.path, call)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        scope["app"] = self
        request = Request(scope, receive, send)
        try:
            hosts = self._context.hosts
            if hosts is not None and (refusal := hosts.refusal(scope)) is not None:
                raise refusal
            call, scope["path_params"] = self._table.find(scope["method"], self._path(scope))
        except Problem as problem:
            response = self._unrouted(request, problem)
        else:
            response = await call(request)
        await response(scope, receive, send)

    def _path(self, scope: Scope) -> str:
        """Without the path under which a proxy serves us, whether or not the proxy takes it away."""
        path: str = scope["path"]
        return path.removeprefix(self._root) if path.startswith(self._root + "/") else path

    def _unrouted(self, request: Request, problem: Problem) -> Response:
        """The answer to what no operation takes. It is charged like what one does."""
        try:
            charge_stranger(self._context, request)
        except Problem as limited:
            problem = limited
        self._metrics.unrouted(request.method, problem.known.status)
        page = request.method == "GET" and "text/html" in request.headers.get("accept", "")
        if page and self._refuse is not None and problem.known.code == "NOT_FOUND":
            return self._refuse(request, problem)
        return problem_response(problem)

    def openapi(self) -> dict[str, Any]:
        info = {"title": "LUCIUS", "version": __version__, "description": _DESCRIPTION}
        guarded = self._context.authenticate is not None
        return openapi.document(info, self.operations, guarded=guarded)


@asynccontextmanager
async def _lifespan(app: Starlette) -> AsyncIterator[None]:
    yield
    await app.state.feeds.close()


def create_app(context: ApiContext, rooms: Sequence[Room] = ()) -> Application:
    return Application(context, rooms)
