"""A port of a process that has no API: probes and scrapes, or the questions of other processes."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import cast

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from lucius.app.lifecycle import listen
from lucius.core.errors import LuciusError
from lucius.http.context import ApiOptions, Authenticate, HealthCheck
from lucius.http.limits import Connections
from lucius.http.owner import Owner, OwnerProtocol
from lucius.http.problems import problem_response
from lucius.http.readiness import OK, Readiness
from lucius.http.routes.system import METRICS
from lucius.http.routing import json_response
from lucius.http.server import ALWAYS, BoundedProtocol, SlowClients, SweptServer

# What a process without the API serves: whether it lives, whether it is ready, and its metrics.

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


MOST_CONNECTIONS = 64
HEAD = timedelta(seconds=10)
BODY = UNREAD = timedelta(seconds=30)
"""How long a client may take: as the defaults of `lucius up` are."""


@contextlib.asynccontextmanager
async def health_port(
    app: ASGIApp,
    host: str,
    port: int | None,
    *,
    most: int = MOST_CONNECTIONS,
    owner: Owner | None = None,
) -> AsyncIterator[int | None]:
    """Serve as long as it is entered; `port` None: not at all. The port is told.

    `owner`: who alone is served; None: everyone.
    """
    if port is None:
        yield None
        return
    with contextlib.closing(listen(host, port)) as listener:
        async with serving(app, listener, most=most, owner=owner) as bound:
            yield bound


@contextlib.asynccontextmanager
async def serving(
    app: ASGIApp,
    listener: socket.socket,
    *,
    most: int = MOST_CONNECTIONS,
    owner: Owner | None = None,
) -> AsyncIterator[int]:
    """The same on a socket that listens already. The socket is closed at the end."""
    connections = Connections(most, most)
    owned = partial(OwnerProtocol, owner) if owner is not None else BoundedProtocol
    config = uvicorn.Config(
        app,
        http=cast(type[asyncio.Protocol], partial(owned, connections)),
        ws="none",
        lifespan="off",
        headers=list(ALWAYS),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
    )
    server = SweptServer(config, SlowClients(HEAD, BODY, UNREAD))
    served = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        bound: int = listener.getsockname()[1]
        yield bound
    finally:
        server.should_exit = True
        await served
