"""The application: a FastAPI app of every route, with problem documents for all that goes wrong."""

import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from fastapi import APIRouter, FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

from lucius import __version__
from lucius.http import document
from lucius.http.context import ApiContext
from lucius.http.document import completed, pages
from lucius.http.problems import Problem, problem_response
from lucius.http.readiness import Readiness
from lucius.http.routes import (
    admin,
    bulk,
    callbacks,
    control,
    failures,
    gateway,
    ingress,
    reads,
    services,
    system,
    why,
)
from lucius.http.routing import (
    NO_TELEMETRY,
    ApiRoute,
    Endpoint,
    HttpMetrics,
    Refuse,
    ShortRoute,
    charge_stranger,
)
from lucius.http.streams import Feeds


def routes_in(routes: Iterable[BaseRoute]) -> list[ApiRoute]:
    return [route for route in routes if isinstance(route, ApiRoute)]


ROUTERS: Final = (
    ingress.router,
    callbacks.router,
    reads.busy,
    gateway.router,
    services.router,
    control.router,
    bulk.router,
    why.router,
    failures.router,
    failures.redrives_router,
    reads.router,
    admin.router,
    system.router,
)
"""The busiest first: routes are tried one after the other."""
ROUTES: Final = tuple(route for router in ROUTERS for route in routes_in(router.routes))
"""Given to the app as they are: a router that it includes costs a request 50 us of CPU more."""


class ShortWays:
    """The API's routes of the short way that are found without a search: by method and path.

    Their paths are plain, or have their only parameter at the end, beside no other route.
    """

    def __init__(self, routes: Sequence[ApiRoute]) -> None:
        beside = Counter((route.method, _folder(route.path)) for route in routes)
        self._plain: dict[tuple[str, str], Endpoint] = {}
        self._folders: dict[tuple[str, str], tuple[str, Endpoint]] = {}
        for route in routes:
            if not isinstance(route, ShortRoute):
                continue
            folder, last = _folder(route.path), route.path.rpartition("/")[2]
            if "{" not in route.path:
                self._plain[route.method, route.path] = route.handle_request
            elif (
                _ONE_NAME.fullmatch(last)
                and "{" not in folder
                and beside[route.method, folder] == 1
            ):
                self._folders[route.method, folder] = last[1:-1], route.handle_request

    def find(self, scope: Scope) -> Endpoint | None:
        method, path = scope["method"], scope["path"]
        plain = self._plain.get((method, path))
        if plain is not None:
            return plain
        folder, _, last = path.rpartition("/")
        found = self._folders.get((method, folder))
        if found is None or not last:
            return None
        name, endpoint = found
        scope["path_params"] = {name: last}
        return endpoint


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


_ONE_NAME: Final = re.compile(r"\{\w+\}")
_SHORT_WAYS: Final = ShortWays(ROUTES)
_DESCRIPTION: Final = (
    "Post a command, follow its job. Errors are problem documents (RFC 9457) with a stable `code`."
)


OnRefusal = Callable[[Request, Exception], Awaitable[Response]]


class Application(FastAPI):
    """The routes of the API, and those of the rooms beside it. FastAPI's pages are off: `/docs` is ours."""

    def __init__(self, context: ApiContext, sections: "Sequence[Section]" = ()) -> None:
        self._context = context
        self._refuse = next(
            (section.refuse for section in sections if section.refuse is not None), None
        )
        more = [pages(self.openapi, context.options)] if context.options.docs else []
        more += [section.router for section in sections]
        routes: list[BaseRoute] = [*ROUTES, *(route for each in more for route in each.routes)]
        super().__init__(
            title="LUCIUS",
            version=__version__,
            description=_DESCRIPTION,
            routes=routes,
            openapi_url=None,
            redirect_slashes=False,
            lifespan=_lifespan,
            middleware=[Middleware(Edge, context, self._unrouted, _SHORT_WAYS)],
            exception_handlers={HTTPException: self._unrouted},
            telemetry=NO_TELEMETRY,
            webhooks=document.router,
        )
        self.state.context = context
        self.state.metrics = HttpMetrics(context.registry)
        self.state.feeds = Feeds(context)
        self.state.readiness = Readiness(context.checks, context.options.check_seconds)

    async def _unrouted(self, request: Request, error: Exception) -> Response:
        """The answer to what no route takes. It is charged like what one does."""
        problem = error if isinstance(error, Problem) else self._unserved(request)
        try:
            charge_stranger(self._context, request)
        except Problem as limited:
            problem = limited
        self.state.metrics.unrouted(request.method, problem.known.status)
        page = request.method == "GET" and "text/html" in request.headers.get("accept", "")
        if page and self._refuse is not None and problem.known.code == "NOT_FOUND":
            return self._refuse(request, problem)
        return problem_response(problem)

    def _unserved(self, request: Request) -> Problem:
        """There is no such path; or there is, for other methods: those of the path that fits best."""
        fitting = [
            route
            for route in routes_in(self.routes)
            if route.matches(request.scope)[0] is not Match.NONE
        ]
        if not fitting:
            return Problem("NOT_FOUND")
        path = max((route.path for route in fitting), key=len)
        allowed = [route.method for route in fitting if route.path == path]
        return Problem("METHOD_NOT_ALLOWED", headers={"allow": ", ".join(allowed)})

    def openapi(self) -> dict[str, Any]:
        guarded = self._context.authenticate is not None
        return completed(super().openapi(), ROUTES, guarded=guarded)


@dataclass(frozen=True, slots=True)
class Section:
    """Routes beside those of the API, in the same process and under the same limits."""

    router: APIRouter
    refuse: Refuse | None = None
    """How a browser is told that there is no such page; None: with a problem document."""

    @property
    def routes(self) -> list[ApiRoute]:
        return routes_in(self.router.routes)


class Edge:
    """What is looked at before a route: whether the host is ours, and under which path a proxy serves us.

    The proxy may take that path away or not. Routes of the short way are found here if they can be: going
    through FastAPI's middlewares and all routes costs some 60 us of CPU (docs/decisions/0055).
    """

    def __init__(
        self,
        app: ASGIApp,
        context: ApiContext,
        refused: OnRefusal,
        short_ways: ShortWays,
    ) -> None:
        self._app = app
        self._refused = refused
        self._short_ways = short_ways
        self._hosts = context.hosts
        self._root = context.options.root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["root_path"] = self._root
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._hosts.refusal(scope) if self._hosts is not None else None
        short = self._short_ways.find(scope)
        if refusal is not None:
            response = await self._refused(Request(scope, receive, send), refusal)
        elif short is not None:
            response = await short(Request(scope, receive, send))
        else:
            await self._app(scope, receive, send)
            return
        await response(scope, receive, send)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield
    await app.state.feeds.close()


def create_app(context: ApiContext, sections: "Sequence[Section]" = ()) -> Application:
    return Application(context, sections)
