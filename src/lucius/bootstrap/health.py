"""A port of a process that has no API: probes and scrapes, or the questions of other processes."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partial
from typing import cast

import uvicorn
from starlette.types import ASGIApp

from lucius.bootstrap.listening import listen
from lucius.server.connections import Connections
from lucius.server.owner import Owner, OwnerProtocol
from lucius.server.protocol import ALWAYS, BoundedProtocol
from lucius.server.slow_clients import SlowClients, SweptServer

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
