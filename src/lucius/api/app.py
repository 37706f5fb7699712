"""The application: every operation, mounted on FastAPI, with problem documents for all that goes wrong."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from lucius import __version__
from lucius.api import openapi
from lucius.api.context import ApiContext
from lucius.api.metrics import HttpMetrics
from lucius.api.operation import DirectRoute, Endpoint, Operation, charge_stranger, endpoint
from lucius.api.pages import pages
from lucius.api.problems import Problem, problem_response
from lucius.api.readiness import Readiness
from lucius.api.routes import (
    admin,
    bulk,
    callbacks,
    control,
    gateway,
    ingress,
    reads,
    system,
)
from lucius.api.streams import Feeds
from lucius.api.tracing import traced

OPERATIONS: Final[tuple[Operation, ...]] = (
    *callbacks.OPERATIONS,
    *ingress.OPERATIONS,
    *gateway.OPERATIONS,
    *control.OPERATIONS,
    *bulk.OPERATIONS,
    *reads.OPERATIONS,
    *admin.OPERATIONS,
    *system.OPERATIONS,
)
"""Routes are tried in this order: `{jobId}:cancel` before `{jobId}`, which would take both."""

_JOB: Final = "/v1/jobs/"
_DESCRIPTION: Final = (
    "Post a command, follow its job. Errors are problem documents (RFC 9457) with a stable `code`."
)


class Application(FastAPI):
    """FastAPI, with a short way to the busy paths: those without parameters, and reading one job.

    An endpoint answers for its own errors, so it needs none of the layers in between.
    """

    short_ways: dict[tuple[str, str], Endpoint]
    metrics: HttpMetrics
    context: ApiContext

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            hosts = self.context.hosts
            if hosts is not None and (refusal := hosts.refusal(scope)) is not None:
                await self.unrouted(Request(scope), refusal)(scope, receive, send)
                return
            method, path = scope["method"], scope["path"]
            call = self.short_ways.get((method, path))
            if call is None and path.startswith(_JOB) and path[len(_JOB) :].isidentifier():
                scope["path_params"] = {"jobId": path[len(_JOB) :]}
                call = self.short_ways.get((method, f"{_JOB}{{jobId}}"))
            if call is not None:
                scope["app"] = self
                response = await call(Request(scope, receive, send))
                await response(scope, receive, send)
                return
        await super().__call__(scope, receive, send)

    def unrouted(self, request: Request, problem: Problem) -> Response:
        """The answer to what no operation takes. It is charged like what one does."""
        try:
            charge_stranger(self.context, request)
        except Problem as limited:
            problem = limited
        self.metrics.unrouted(request.method, problem.known.status)
        return problem_response(problem)


def create_app(context: ApiContext) -> FastAPI:
    feeds = Feeds(context)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await feeds.close()

    app = Application(
        title="LUCIUS",
        version=__version__,
        description=_DESCRIPTION,
        lifespan=lifespan,
        redirect_slashes=False,
        openapi_url=None,
        exception_handlers={HTTPException: _http_problem, Exception: _defect},
    )
    app.state.feeds = feeds
    app.state.readiness = Readiness(context.checks, context.options.check_seconds)
    app.short_ways = {}
    app.context = context
    app.metrics = HttpMetrics(context.registry)
    for operation in (*OPERATIONS, *(pages(app) if context.options.docs else ())):
        _mount(app, context, operation)
    _complete_openapi(app)
    return app


def _mount(app: Application, context: ApiContext, operation: Operation) -> None:
    observe = app.metrics.observer(operation.method, operation.path)
    call = traced(operation, endpoint(context, operation, observe))
    if "{" not in operation.path or operation.path == f"{_JOB}{{jobId}}":
        app.short_ways[operation.method, operation.path] = call
    app.router.add_api_route(
        operation.path,
        call,
        methods=[operation.method],
        route_class_override=DirectRoute,
        response_model=None,
        response_class=Response,
        status_code=next(iter(operation.answers)),
        summary=operation.summary,
        description=operation.description,
        operation_id=operation.operation_id,
        tags=[operation.tag],
        deprecated=operation.deprecated or None,
        include_in_schema=not operation.hidden,
        responses=openapi.responses(operation),
        openapi_extra=openapi.extra(operation, guarded=context.authenticate is not None),
    )


def _complete_openapi(app: FastAPI) -> None:
    plain = app.openapi

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = openapi.completed(plain())
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


async def _http_problem(request: Request, error: Exception) -> Response:
    """What the router itself refuses."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        problem = Problem("METHOD_NOT_ALLOWED", headers=error.headers)
    elif error.status_code == 404:
        problem = Problem("NOT_FOUND")
    else:
        problem = Problem("INVALID_BODY", str(error.detail))
    app: Application = request.app
    return app.unrouted(request, problem)


async def _defect(request: Request, error: Exception) -> Response:
    return problem_response(error)
