"""An answer that is given before the request has come whole reaches a client that is still sending."""

import asyncio
import http.client
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

import httpx
import pytest

from lucius.http.app import create_app
from lucius.http.limits import Connection, Connections
from lucius.http.server import MAX_DROPPED_BYTES, ClientTransport, SlowClients
from tests.api.world import World, context_of
from tests.security.wire import FOR_EVER, code_of, serving

MIB = 1024 * 1024
LARGE = 20 * MIB
HEAD = b"POST /v1/orchestrate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
LENGTH = HEAD + b"content-length: %d\r\n\r\n" % LARGE
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
CHUNK = b"100000\r\n" + b" " * MIB + b"\r\n"


@asynccontextmanager
async def lucius(
    slow: SlowClients | None = None, connections: Connections | None = None
) -> AsyncIterator[int]:
    async with serving(create_app(context_of(World())), slow, connections) as port:
        yield port


def sent_first(port: int, *parts: bytes) -> bytes:
    """A plain client: it sends all that it has, and only then looks for an answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        for part in parts:
            connection.sendall(part)
        heard = b""
        while some := connection.recv(65536):
            heard += some
    return heard


BODIES = {
    "a length": (LENGTH, *[b" " * MIB] * 20),
    "chunks": (CHUNKED, *[CHUNK] * 20, b"0\r\n\r\n"),
    "chunks without end": (CHUNKED, *[CHUNK] * 20),
}


@pytest.mark.parametrize("parts", BODIES.values(), ids=BODIES)
async def test_413_reaches_a_client_that_sends_its_whole_body_first(parts: list[bytes]) -> None:
    async with lucius() as port:
        assert code_of(await asyncio.to_thread(sent_first, port, *parts)) == "BODY_TOO_LARGE"


@pytest.mark.parametrize("parts", BODIES.values(), ids=BODIES)
async def test_closed_at_once_the_connection_is_reset(
    monkeypatch: pytest.MonkeyPatch, parts: list[bytes]
) -> None:
    """So the test above can fail."""
    monkeypatch.setattr(ClientTransport, "close", ClientTransport.hang_up)
    async with lucius() as port:
        with pytest.raises(ConnectionError):
            await asyncio.to_thread(sent_first, port, *parts)


def pieces() -> Iterator[bytes]:
    for _ in range(20):
        yield b" " * MIB


def with_http_client(port: int, chunked: bool) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    body = pieces() if chunked else b" " * LARGE
    connection.request("POST", "/v1/orchestrate", body, encode_chunked=chunked)
    return connection.getresponse().status


def with_httpx(port: int, chunked: bool) -> int:
    content = pieces() if chunked else b" " * LARGE
    url = f"http://127.0.0.1:{port}/v1/orchestrate"
    return httpx.post(url, content=content, timeout=20).status_code


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("client", [with_http_client, with_httpx])
async def test_the_usual_clients_see_it(client: object, chunked: bool) -> None:
    async with lucius() as port:
        assert callable(client)
        assert await asyncio.to_thread(client, port, chunked) == 413


async def stubborn(port: int) -> int:
    """A client that goes on after its answer: how much it got rid of before it was cut off."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(CHUNKED)
    sent = 0
    with suppress(ConnectionError):
        while sent < 4 * MAX_DROPPED_BYTES:
            writer.write(CHUNK)
            await writer.drain()
            sent += len(CHUNK)
    writer.close()
    return sent


async def test_no_more_than_so_much_is_dropped() -> None:
    async with lucius() as port:
        assert MAX_DROPPED_BYTES <= await stubborn(port) < 2 * MAX_DROPPED_BYTES


class Clock:
    """Ten seconds go by between two looks at the connections."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 10
        return self.now


class Emptied(Connections):
    def __init__(self) -> None:
        super().__init__(10, 10)
        self.empty = asyncio.Event()

    def leave(self, connection: Connection) -> None:
        super().leave(connection)
        self.empty.set()


async def test_a_client_that_neither_sends_nor_hangs_up_is_cut_off_in_time() -> None:
    clock, connections = Clock(), Emptied()
    patience = timedelta(seconds=30)
    async with lucius(SlowClients(FOR_EVER, patience, FOR_EVER, clock), connections) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(LENGTH)
        assert code_of(await reader.read()) == "BODY_TOO_LARGE"
        await connections.empty.wait()
        assert clock.now >= 30
        writer.close()


async def test_the_end_of_the_server_does_not_wait_for_it() -> None:
    async with lucius() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(LENGTH)
        assert code_of(await reader.read()) == "BODY_TOO_LARGE"
    writer.close()
