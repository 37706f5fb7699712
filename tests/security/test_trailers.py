"""What follows the body of a chunked request is bounded, and never becomes a header."""

import asyncio
import tracemalloc
from typing import Any

import pytest

from lucius.http.server import MAX_HEAD_BYTES, MAX_HEADERS
from tests.security.wire import code_of, said, serving, status_of

CHUNKED = (
    b"POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
    b"2\r\n{}\r\n0\r\n"
)
MIB = 1024 * 1024
FLOOD = 60 * MIB


class Application:
    """Answers with the headers that it sees once the body has come whole."""

    def __init__(self) -> None:
        self.seen: list[tuple[bytes, bytes]] = []
        self.answered = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        while (message := await receive()).get("more_body"):
            pass
        if message["type"] == "http.disconnect":
            return
        self.seen = list(scope["headers"])
        self.answered += 1
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})


@pytest.mark.parametrize("name", [b"x-api-key", b"authorization", b"idempotency-key", b"expect"])
@pytest.mark.parametrize("apart", [False, True])
async def test_a_trailer_is_no_header(name: bytes, apart: bool) -> None:
    app = Application()
    trailers = name + b": secret\r\n\r\n"
    async with serving(app) as port:
        parts = (CHUNKED, trailers) if apart else (CHUNKED + trailers,)
        assert status_of(await said(port, *parts)) == 204
    assert [name for name, _ in app.seen] == [b"host", b"connection", b"transfer-encoding"]


async def test_a_request_after_one_with_trailers_is_read_from_its_own_headers() -> None:
    app = Application()
    first = CHUNKED.replace(b"connection: close\r\n", b"") + b"x-api-key: a\r\n\r\n"
    async with serving(app) as port:
        answer = await said(port, first + b"GET / HTTP/1.1\r\nhost: y\r\nconnection: close\r\n\r\n")
    assert answer.count(b" 204 ") == 2
    assert app.seen == [(b"host", b"y"), (b"connection", b"close")]


@pytest.mark.parametrize(
    "trailers",
    [
        b"".join(b"x-%d: 1\r\n" % number for number in range(MAX_HEADERS + 1)),
        b"x: " + b"a" * MAX_HEAD_BYTES + b"\r\n",
        b"x-%d: y\r\n" % 1 * (MAX_HEAD_BYTES // 4),
    ],
    ids=["too many", "too long", "both"],
)
async def test_trailers_that_are_too_large_are_refused(trailers: bytes) -> None:
    app = Application()
    async with serving(app) as port:
        answer = await said(port, CHUNKED + trailers + b"\r\n")
    assert (status_of(answer), code_of(answer)) == (431, "HEADERS_TOO_LARGE")
    assert app.answered == 0


@pytest.mark.parametrize("trailer", [b"a" * MIB, b"x: 1\r\n" * 10_000], ids=["one", "many"])
async def test_a_flood_of_trailers_is_refused_and_takes_no_memory(trailer: bytes) -> None:
    begin = CHUNKED + b"x: "
    async with serving(Application()) as port:
        tracemalloc.start()
        try:
            parts = (trailer for _ in range(FLOOD // len(trailer)))
            answer = await said(port, begin, *parts)
            most = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert code_of(answer) == "HEADERS_TOO_LARGE"
    assert most < 8 * MIB


async def test_without_the_count_the_flood_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the test above can fail."""
    monkeypatch.setattr("lucius.http.server.MAX_HEAD_BYTES", 2**40)
    async with serving(Application()) as port:
        tracemalloc.start()
        try:
            await said(port, CHUNKED + b"x: ", *([b"a" * MIB] * 20), b"\r\n\r\n")
            most = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert most > 15 * MIB


async def test_a_large_body_in_many_chunks_is_no_trailer() -> None:
    app = Application()
    chunk = b"1000\r\n" + b"a" * 4096 + b"\r\n"
    start = CHUNKED.removesuffix(b"0\r\n")
    async with serving(app) as port:
        assert status_of(await said(port, start, *([chunk * 16] * 64), b"0\r\n\r\n")) == 204
        drops = [piece for _ in range(2000) for piece in (b"1\r\n", b"a\r\n")]
        assert status_of(await said(port, start, *drops, b"0\r\n\r\n")) == 204


async def test_a_refused_request_is_given_up_at_once() -> None:
    """The application does not wait for the rest, however long the client stays."""
    ended = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        ended.set()

    async with serving(app) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(CHUNKED.removesuffix(b"0\r\n") + b"zz")
        await ended.wait()
        assert code_of(await reader.read()) == "INVALID_HTTP"
        writer.close()
