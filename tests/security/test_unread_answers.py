"""A client that takes nothing of its answer is hung up on; one that takes a little at a time is not."""

import asyncio
import socket
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lucius.http.limits import Connection, Connections
from lucius.http.server import SlowClients
from tests.cli.up import Changed, running
from tests.security.wire import FOR_EVER, serving

PIECE = b"." * 65536
PIECES = 512
GET = b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
PATIENCE = timedelta(seconds=30)


class Watched(Connections):
    def __init__(self) -> None:
        super().__init__(100, 100)
        self.left = asyncio.Event()

    def leave(self, connection: Connection) -> None:
        super().leave(connection)
        self.left.set()


class Clock:
    """So many seconds go by between two looks at the connections."""

    def __init__(self, step: float) -> None:
        self.step, self.now, self.looks = step, 0.0, 0
        self.looked = asyncio.Event()

    def __call__(self) -> float:
        self.now += self.step
        self.looks += 1
        self.looked.set()
        return self.now

    async def next_look(self) -> None:
        self.looked.clear()
        await self.looked.wait()


async def large(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(PIECES):
        await send({"type": "http.response.body", "body": PIECE, "more_body": True})
    await send({"type": "http.response.body"})


async def whole(scope: Any, receive: Any, send: Any) -> None:
    """All at once, so that only the closing waits for the client."""
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"connection", b"close")]}
    )
    await send({"type": "http.response.body", "body": PIECE * PIECES})


async def asking(port: int) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, ("127.0.0.1", port))
    await loop.sock_sendall(client, GET)
    return client


@pytest.mark.parametrize("app", [large, whole])
async def test_who_takes_nothing_is_hung_up_on(app: Any) -> None:
    clock, connections = Clock(10), Watched()
    slow = SlowClients(FOR_EVER, FOR_EVER, PATIENCE, clock)
    async with serving(app, slow, connections) as port:
        with await asking(port):
            await connections.left.wait()
            assert clock.now >= PATIENCE.total_seconds()


async def test_who_takes_a_little_at_a_time_is_served_to_the_end() -> None:
    """Twenty-five seconds go by between two helpings, and thirty are allowed."""
    clock, loop = Clock(25), asyncio.get_running_loop()
    async with serving(large, SlowClients(FOR_EVER, FOR_EVER, PATIENCE, clock)) as port:
        with await asking(port) as client:
            taken = 0
            while taken < PIECES * len(PIECE):
                helping = 0
                while helping < 4 * 1024 * 1024 and taken + helping < PIECES * len(PIECE):
                    some = len(await loop.sock_recv(client, 1 << 20))
                    assert some, "hung up"
                    helping += some
                taken += helping
                await clock.next_look()
    assert clock.looks >= 8


async def test_without_the_guard_it_stays() -> None:
    """So the first test can fail."""
    clock, connections = Clock(10), Watched()
    async with serving(
        large, SlowClients(FOR_EVER, FOR_EVER, FOR_EVER, clock), connections
    ) as port:
        with await asking(port):
            for _ in range(8):
                await clock.next_look()
            assert len(connections) == 1


async def test_lucius_up_has_the_guard(tmp_path: Path) -> None:
    """Many requests in one go, each for a large page, and none of the answers is read."""
    times = {"processes.UNREAD_TIME": "timedelta(seconds=0.5)"}
    with running(Changed(times, tmp_path, "--no-services")) as server:
        port = int(server.url.rpartition(":")[2])
        with await asking(port) as client:
            loop = asyncio.get_running_loop()
            pages = GET.replace(b" / ", b" /openapi.json ")
            with pytest.raises(ConnectionError):
                async with asyncio.timeout(60):
                    while True:
                        await loop.sock_sendall(client, pages * 100)
