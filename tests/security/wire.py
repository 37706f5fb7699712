"""The HTTP server on a real socket with an application of the test, and clients that send what they like."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import uvicorn

from lucius.app.processes import Server
from lucius.http.limits import Connections
from lucius.http.server import ALWAYS, SlowClients, bounded

FOR_EVER = timedelta(hours=1)
SOON = 20.0
"""Only so that a test which fails ends at all."""


def roomy() -> Connections:
    return Connections(10**6, 10**6)


class WatchfulServer(Server):
    """Looks at its connections on every tick, to make the tests short."""

    ticks_a_look = 1


@asynccontextmanager
async def serving(
    app: Callable[..., Any],
    slow: SlowClients | None = None,
    connections: Connections | None = None,
) -> AsyncIterator[int]:
    """The port that it is served on."""
    connections = connections if connections is not None else roomy()
    config = uvicorn.Config(
        app,
        http=bounded(connections),
        ws="none",
        headers=list(ALWAYS),
        lifespan="off",
        log_config=None,
    )
    ready = asyncio.Event()

    async def ending() -> None: ...

    slow = slow or SlowClients(FOR_EVER, FOR_EVER, FOR_EVER)
    server = WatchfulServer(config, ready.set, ending, slow, connections)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        running = asyncio.create_task(server.serve(sockets=[listener]))
        await ready.wait()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            await running


async def all_said(reader: asyncio.StreamReader) -> bytes:
    """Until the server hangs up, however it does that."""
    heard = b""
    async with asyncio.timeout(SOON):
        with suppress(ConnectionError):
            while some := await reader.read(65536):
                heard += some
    return heard


async def said(port: int, *parts: bytes) -> bytes:
    """All that the server says until it hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        with suppress(ConnectionError):
            for part in parts:
                writer.write(part)
                await writer.drain()
        return await all_said(reader)
    finally:
        writer.close()


def code_of(answer: bytes) -> str:
    """The code of the problem that was answered."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head, answer[:300]
    return str(json.loads(body)["code"])


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def header_of(answer: bytes, name: str) -> str | None:
    lines = answer.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")[1:]
    pairs = dict(line.split(": ", 1) for line in lines)
    return pairs.get(name)
