"""What a process without the API serves: whether it lives, whether it is ready, and its metrics."""

from collections.abc import Awaitable, Callable, Mapping

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lucius.api.context import ApiOptions, Authenticate, HealthCheck
from lucius.api.problems import problem_response
from lucius.api.readiness import OK, Readiness
from lucius.api.routes.system import METRICS
from lucius.api.routing import json_response
from lucius.core.errors import LuciusError

Refresh = Callable[[Mapping[str, bool]], Awaitable[None]]


def health_app(
    checks: Mapping[str, HealthCheck],
    registry: CollectorRegistry,
    refresh: Refresh | None = None,
    authenticate: Authenticate | None = None,
) -> Starlette:
    """The same three paths as a process with the API has.

    `authenticate`: callers of /metrics need what they need at the API. None: for metrics that name no tenant.
    """
    readiness = Readiness(checks, ApiOptions().check_seconds)

    async def healthz(request: Request) -> Response:
        return json_response({"status": "ok"})

    async def readyz(request: Request) -> Response:
        said = {name: each.word for name, each in (await readiness.ask()).items()}
        status, code = ("ready", 200) if set(said.values()) <= {OK} else ("not ready", 503)
        return json_response({"status": status, "checks": said}, code)

    async def metrics(request: Request) -> Response:
        if authenticate is not None:
            try:
                METRICS.check(await authenticate(request))
            except LuciusError as error:
                return problem_response(error)
        if refresh is not None:
            await refresh(await readiness.up())
        return Response(generate_latest(registry), headers={"content-type": CONTENT_TYPE_LATEST})

    return Starlette(
        routes=[
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/metrics", metrics),
        ]
    )
