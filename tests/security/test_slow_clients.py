"""Clients that hold a connection and do not finish what they send are cut off; nobody else is."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lucius.http.server import SlowClients
from tests.cli.up import Changed, running
from tests.security.wire import FOR_EVER, serving

PATIENCE = timedelta(seconds=0.4)
SOON = 5.0
GET = b"GET / HTTP/1.1\r\nhost: x\r\n"
POST = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n"
CONTINUE = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\nexpect: 100-continue\r\n\r\n"


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Reads what it is sent, except on /early; takes its time on /late, before or after reading."""
    if scope["path"] == "/late":
        await asyncio.sleep(3 * PATIENCE.total_seconds())
    while scope["path"] != "/early":
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        if not message.get("more_body"):
            break
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body"})


@asynccontextmanager
async def served(patience: timedelta = PATIENCE) -> AsyncIterator[int]:
    async with serving(app, SlowClients(patience, patience, patience)) as port:
        yield port


async def drip(connection: socket.socket, drop: bytes) -> None:
    """A little at a time, without end."""
    loop = asyncio.get_running_loop()
    with suppress(ConnectionError):
        while drop:
            await loop.sock_sendall(connection, drop)
            await asyncio.sleep(0.05)


async def said(port: int, first: bytes, drop: bytes = b"") -> bytes:
    """All that the server says until it hangs up, however it does that."""
    loop, heard = asyncio.get_running_loop(), b""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setblocking(False)
        await loop.sock_sendall(connection, first)
        dripping = asyncio.create_task(drip(connection, drop))
        try:
            async with asyncio.timeout(SOON):
                with suppress(ConnectionResetError):
                    while some := await loop.sock_recv(connection, 4096):
                        heard += some
        finally:
            dripping.cancel()
            await asyncio.gather(dripping, return_exceptions=True)
    return heard


@pytest.mark.parametrize(
    ("first", "drop"),
    [
        (GET, b"x: 1\r\n"),
        (GET, b""),
        (b"G", b""),
        (POST, b"."),
        (POST, b""),
        (POST.replace(b"content-length: 1000", b"transfer-encoding: chunked"), b"1\r\n.\r\n"),
    ],
    ids=["a head in drops", "half a head", "a letter", "a body in drops", "no body", "chunks"],
)
async def test_a_request_that_does_not_arrive_in_time_is_answered_with_408(
    first: bytes, drop: bytes
) -> None:
    async with served() as port:
        head, _, body = (await said(port, first, drop)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert b"connection: close" in head
    assert json.loads(body)["code"] == "REQUEST_TIMEOUT"


@pytest.mark.parametrize(
    ("first", "drop", "answer"),
    [
        (b"", b"", b""),
        (b"\r\n", b"\r\n", b""),
        (GET + b"\r\n", b"\r\n", b"HTTP/1.1 204 No Content"),
        (POST.replace(b" / ", b" /early "), b".", b"HTTP/1.1 204 No Content"),
    ],
    ids=["silence", "empty lines", "empty lines after an answer", "a body that nobody reads"],
)
async def test_a_connection_that_brings_no_request_is_closed_without_a_word(
    first: bytes, drop: bytes, answer: bytes
) -> None:
    async with served() as port:
        assert (await said(port, first, drop)).partition(b"\r\n")[0] == answer


@pytest.mark.parametrize(("first", "drop"), [(GET, b"x: 1\r\n"), (POST, b"."), (b"", b"")])
async def test_without_the_guard_it_would_be_held(
    monkeypatch: pytest.MonkeyPatch, first: bytes, drop: bytes
) -> None:
    monkeypatch.setattr(f"{__name__}.SOON", 3 * PATIENCE.total_seconds())
    async with served(FOR_EVER) as port:
        with pytest.raises(TimeoutError):
            await said(port, first, drop)


@pytest.mark.parametrize(
    "first",
    [
        b"GET /late HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
        CONTINUE.replace(b" / ", b" /late ").replace(b"host", b"connection: close\r\nhost"),
    ],
    ids=["an answer that takes long", "a body that nobody has asked for yet"],
)
async def test_a_client_that_waits_for_the_server_is_left_alone(
    first: bytes,
) -> None:
    async with served() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(first)
        line = await reader.readline()
        if b" 100 " in line:
            writer.write(b"{}")
            await reader.readline()
            line = await reader.readline()
        assert b" 204 " in line
        writer.close()


async def test_each_request_of_a_connection_has_time_of_its_own() -> None:
    async with served() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(6):
            writer.write(GET)
            await asyncio.sleep(PATIENCE.total_seconds() / 4)
            writer.write(b"\r\n")
            assert b" 204 " in await reader.readuntil(b"\r\n\r\n")
        writer.close()


async def test_lucius_up_has_the_guard(tmp_path: Path) -> None:
    half = "timedelta(seconds=0.5)"
    times = {"processes.HEAD_TIME": half, "processes.BODY_TIME": half}
    with running(Changed(times, tmp_path, "--no-services")) as server:
        port = int(server.url.rpartition(":")[2])
        halves = [GET, POST.replace(b" / ", b" /v1/orchestrate ").replace(b"x\r", b"localhost\r")]
        for answer in await asyncio.gather(*(said(port, first) for first in halves)):
            assert b'"REQUEST_TIMEOUT"' in answer
