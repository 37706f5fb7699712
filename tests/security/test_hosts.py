"""One host, one path, one meaning: what two readers could understand differently is refused."""

from typing import Any

import pytest

from lucius.http.app import create_app
from lucius.http.server import MAX_HEAD_BYTES
from tests.api.world import World, context_of
from tests.security.wire import code_of, header_of, said, serving, status_of


def request(*lines: str) -> bytes:
    return "\r\n".join([*lines, "connection: close", "", ""]).encode()


REFUSED = {
    "no host": (request("GET /healthz HTTP/1.1"), "INVALID_HOST"),
    "two hosts": (request("GET /healthz HTTP/1.1", "host: a", "host: b"), "INVALID_HOST"),
    "one twice": (request("GET /healthz HTTP/1.1", "host: a", "Host: a"), "INVALID_HOST"),
    "two in 1.0": (request("GET /healthz HTTP/1.0", "host: a", "host: b"), "INVALID_HOST"),
    "a whole URL": (request("GET http://a/healthz HTTP/1.1", "host: a"), "INVALID_TARGET"),
    "another URL": (request("GET http://b/healthz HTTP/1.1", "host: a"), "INVALID_TARGET"),
    "a star": (request("OPTIONS * HTTP/1.1", "host: a"), "INVALID_TARGET"),
    "an authority": (request("CONNECT a:80 HTTP/1.1", "host: a"), "INVALID_TARGET"),
}


@pytest.mark.parametrize(("asked", "code"), REFUSED.values(), ids=REFUSED)
async def test_an_ambiguous_head_is_refused(asked: bytes, code: str) -> None:
    async with serving(create_app(context_of(World()))) as port:
        answer = await said(port, asked)
    assert (status_of(answer), code_of(answer)) == (400, code)
    assert header_of(answer, "x-content-type-options") == "nosniff"


@pytest.mark.parametrize(
    "asked",
    [
        request("GET /healthz HTTP/1.1", "host: a"),
        request("GET /healthz HTTP/1.0"),
        request("GET /healthz HTTP/1.0", "host: a"),
    ],
)
async def test_a_plain_one_is_answered(asked: bytes) -> None:
    async with serving(create_app(context_of(World()))) as port:
        assert status_of(await said(port, asked)) == 200


async def test_the_second_request_of_a_connection_is_held_to_the_same() -> None:
    first = b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n"
    async with serving(create_app(context_of(World()))) as port:
        for before in (1, 3):
            answer = await said(port, first * before + REFUSED["two hosts"][0])
            answered, _, rest = answer.rpartition(b"HTTP/1.1 400")
            assert answered.count(b"HTTP/1.1 200") == before
            assert b"INVALID_HOST" in rest


async def defective(scope: Any, receive: Any, send: Any) -> None:
    raise RuntimeError("on purpose")


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (request("GET /healthz HTTP/1.1", "host: a"), 200),
        (request("GET /openapi.json HTTP/1.1", "host: a"), 200),
        (request("GET /nope HTTP/1.1", "host: a"), 404),
        (request("GET /v1/jobs?x=1 HTTP/1.1", "host: a"), 422),
        (b"nonsense\r\n\r\n", 400),
        (request("GET / HTTP/1.1", "host: a", "x: " + "a" * MAX_HEAD_BYTES), 431),
    ],
)
async def test_no_answer_is_sniffed(asked: bytes, status: int) -> None:
    async with serving(create_app(context_of(World()))) as port:
        answer = await said(port, asked)
    assert (status_of(answer), header_of(answer, "x-content-type-options")) == (status, "nosniff")


async def test_not_even_that_of_a_defect() -> None:
    async with serving(defective) as port:
        answer = await said(port, request("GET / HTTP/1.1", "host: a"))
    assert (status_of(answer), header_of(answer, "x-content-type-options")) == (500, "nosniff")
