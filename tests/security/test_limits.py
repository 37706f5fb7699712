"""Limits on what one caller may send: so much a second, heads of a size, and only under our own names."""

import asyncio
import json
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from starlette.requests import Request

from lucius.app.access import host_check, rate_limit
from lucius.app.settings import load_settings
from lucius.http.context import Caller, Role
from lucius.http.limits import MAX_BUCKETS, HostCheck, RateLimit, client_of, host_of
from lucius.http.problems import Problem
from lucius.http.server import MAX_HEAD_BYTES, MAX_HEADERS
from tests.api.world import World, context_of
from tests.api.world import client_of as api
from tests.security.wire import serving


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


# -- requests a second -------------------------------------------------------------------------


def allowed(limit: RateLimit, who: str, tries: int = 100) -> int:
    for number in range(tries):
        try:
            limit.take(who)
        except Problem:
            return number
    return tries


def test_a_bucket_holds_a_second_and_fills_with_time() -> None:
    clock = Clock()
    limit = RateLimit(10, clock)
    assert allowed(limit, "a") == 10
    clock.now += 0.3
    assert allowed(limit, "a") == 3
    clock.now += 60
    assert allowed(limit, "a") == 10


def test_callers_do_not_share_a_bucket() -> None:
    limit = RateLimit(2, Clock())
    assert allowed(limit, "a") == allowed(limit, "b") == 2


@pytest.mark.parametrize(("rate", "seconds"), [(0.1, "10"), (1, "1"), (100, "1")])
def test_a_refusal_says_when_to_come_back(rate: float, seconds: str) -> None:
    clock = Clock()
    limit = RateLimit(rate, clock)
    allowed(limit, "a", 1000)
    with pytest.raises(Problem) as refused:
        limit.take("a")
    assert refused.value.headers == {"retry-after": seconds}
    clock.now += float(seconds)
    limit.take("a")


def test_buckets_are_bounded_in_number() -> None:
    limit = RateLimit(1, Clock())
    for number in range(MAX_BUCKETS + 10):
        limit.take(str(number))
    assert len(limit._buckets) == MAX_BUCKETS


async def by_name(request: Request) -> Caller:
    name = request.headers.get("x-name")
    if name is None:
        raise Problem("UNAUTHENTICATED")
    return Caller(name, frozenset(Role))


async def statuses(world: World, names: list[str | None], **more: Any) -> list[int]:
    async with api(context_of(world, rate=RateLimit(2, Clock()), **more)) as client:
        headers: list[dict[str, str]] = [{"x-name": name} if name else {} for name in names]
        return [(await client.get("/v1/jobs", headers=each)).status_code for each in headers]


async def test_known_callers_are_limited_each_for_themselves(world: World) -> None:
    names: list[str | None] = ["a", "a", "a", "b", "b", "b"]
    answers = await statuses(world, names, authenticate=by_name)
    assert answers == [200, 200, 429, 200, 200, 429]


async def test_without_authentication_the_address_is_limited(world: World) -> None:
    assert await statuses(world, [None] * 3) == [200, 200, 429]


async def test_guessing_credentials_is_limited_and_takes_nothing_from_others(world: World) -> None:
    answers = await statuses(world, [None, None, None, "a"], authenticate=by_name)
    assert answers == [401, 401, 429, 200]


async def test_health_is_not_counted(world: World) -> None:
    async with api(context_of(world, rate=RateLimit(1, Clock()))) as client:
        for _ in range(5):
            assert (await client.get("/healthz")).status_code == 200


@pytest.mark.parametrize("path", ["/openapi.json", "/nope", "/v1/jobs/a/b/c"])
@pytest.mark.parametrize("authenticate", [None, by_name])
async def test_pages_and_what_does_not_exist_are_counted(
    world: World, path: str, authenticate: Any
) -> None:
    context = context_of(world, rate=RateLimit(2, Clock()), authenticate=authenticate)
    async with api(context) as client:
        answers = [await client.get(path) for _ in range(3)]
        assert answers[0].status_code == answers[1].status_code != 429
        assert (answers[2].status_code, answers[2].json()["code"]) == (429, "RATE_LIMITED")
        assert answers[2].headers["retry-after"] == "1"
        assert (await client.delete("/v1/jobs")).status_code == 429


async def test_requests_for_other_hosts_are_counted(world: World) -> None:
    async with api(context_of(world, rate=RateLimit(2, Clock()), hosts=HostCheck())) as client:
        answers = [await client.get("/healthz", headers={"host": "evil.test"}) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [421, 421, 429]


async def test_a_refusal_is_a_problem_with_a_moment_to_come_back(world: World) -> None:
    async with api(context_of(world, rate=RateLimit(1, Clock()))) as client:
        await client.get("/v1/jobs")
        answer = await client.get("/v1/jobs")
    assert (answer.json()["code"], answer.headers["retry-after"]) == ("RATE_LIMITED", "1")


@pytest.mark.parametrize(
    ("host", "bucket"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff", "2001:db8::/64"),
        ("testclient", "testclient"),
    ],
)
def test_an_ipv6_network_is_one_client(host: str, bucket: str) -> None:
    assert client_of(Request({"type": "http", "client": (host, 1), "headers": []})) == bucket
    assert client_of(Request({"type": "http", "client": None, "headers": []})) == ""


def test_the_limit_is_a_setting_and_off_by_default() -> None:
    assert rate_limit(load_settings({})) is None
    assert rate_limit(load_settings({"LUCIUS_RATE_LIMIT_PER_SECOND": "0.5"})) is not None


# -- names -------------------------------------------------------------------------------------

OURS = [
    "localhost",
    "localhost:8700",
    "127.0.0.1",
    "127.0.0.1:8700",
    "[::1]",
    "[::1]:1",
    "LocalHost",
]
FOREIGN = ["evil.test", "evil.test:8700", "localhost.evil.test", "127.0.0.1.nip.io", "", "[::1]x"]
FOREIGN += ["127.0.0.1:8700:1", "0.0.0.0", "localhost:x", "192.168.0.1"]


@pytest.mark.parametrize("host", OURS + FOREIGN)
@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs/job_0/steps", "/healthz", "/nope"])
async def test_only_names_of_loopback_are_answered(world: World, host: str, path: str) -> None:
    async with api(context_of(world, hosts=HostCheck())) as client:
        answer = await client.get(path, headers={"host": host})
    assert (answer.status_code == 421) is (host in FOREIGN)
    if host in FOREIGN:
        assert answer.json()["code"] == "MISDIRECTED_REQUEST"


def test_names_are_checked_where_authentication_is_off() -> None:
    jwt = {f"LUCIUS_JWT_{name}": "https://x.test" for name in ("ISSUER", "AUDIENCE", "JWKS_URL")}
    assert host_check(load_settings({"LUCIUS_AUTH": "keys"})) is None
    assert host_check(load_settings({"LUCIUS_AUTH": "jwt", **jwt})) is None
    check = host_check(load_settings({"LUCIUS_PUBLIC_URL": "http://lucius.test:8700"}))
    assert check is not None
    assert check.refusal({"headers": [(b"host", b"lucius.test")]}) is None
    assert check.refusal({"headers": []}) is None
    assert check.refusal({"headers": [(b"host", b"evil.test")]}) is not None


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://a.test:1/x", "a.test"),
        ("http://[::1]:1", "[::1]"),
        ("http://[::1]", "[::1]"),
        ("", ""),
    ],
)
def test_the_host_of_a_url_is_as_a_header_names_it(url: str, host: str) -> None:
    assert host_of(url) == host


# -- heads -------------------------------------------------------------------------------------


async def nothing(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body"})


def server() -> AbstractAsyncContextManager[int]:
    return serving(nothing)


async def said(port: int, *parts: bytes) -> bytes:
    """Everything that is answered until the server hangs up, or the first head."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
        return await reader.read(65536)
    finally:
        writer.close()


def head(*headers: bytes, path: bytes = b"/") -> bytes:
    return b"\r\n".join([b"GET " + path + b" HTTP/1.1", b"host: localhost", *headers, b"", b""])


async def test_an_ordinary_head_is_answered() -> None:
    many = [b"x-%d: %s" % (n, b"a" * 200) for n in range(MAX_HEADERS - 1)]
    async with server() as port:
        assert b" 204 " in await said(port, head(*many))


@pytest.mark.parametrize(
    "request_head",
    [
        head(*(b"x-%d: 1" % n for n in range(MAX_HEADERS + 1))),
        head(b"x: " + b"a" * MAX_HEAD_BYTES),
        head(path=b"/" + b"a" * MAX_HEAD_BYTES),
    ],
    ids=["too many", "too long", "a long path"],
)
async def test_a_head_that_is_too_large_is_refused(request_head: bytes) -> None:
    async with server() as port:
        answer = await said(port, request_head)
    first, _, rest = answer.partition(b"\r\n")
    assert first == b"HTTP/1.1 431 Request Header Fields Too Large"
    assert json.loads(rest.partition(b"\r\n\r\n")[2])["code"] == "HEADERS_TOO_LARGE"


async def test_a_head_without_end_is_cut_off() -> None:
    async with server() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nx: ")
        answer = asyncio.ensure_future(reader.readline())
        sent = 0
        while not answer.done() and sent < 64 * MAX_HEAD_BYTES:
            writer.write(b"a" * 1024)
            sent += 1024
            await writer.drain()
        assert b" 431 " in await answer
        writer.close()


async def test_a_large_body_before_the_next_head_is_no_head() -> None:
    body = b"a" * (4 * MAX_HEAD_BYTES)
    post = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
    async with server() as port:
        assert b" 431 " not in await said(port, post + body + head()[:-2], b"\r\n")


@pytest.mark.parametrize(
    "garbage",
    [
        b"garbage\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        head(b"no colon"),
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: abc\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
    ids=["a word", "a version", "a header", "a length", "a chunk", "TLS"],
)
async def test_what_is_not_http_is_answered_with_a_problem(garbage: bytes) -> None:
    async with server() as port:
        answer = await said(port, garbage)
    first, _, rest = answer.partition(b"\r\n")
    headers, _, body = rest.partition(b"\r\n\r\n")
    assert first == b"HTTP/1.1 400 Bad Request"
    assert b"content-type: application/problem+json" in headers
    assert json.loads(body)["code"] == "INVALID_HTTP"
