"""Every error code is provoked once, and OpenAPI lists it for the route that answers so."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from inspect import signature
from pathlib import Path
from typing import Any

import httpx
import pytest

from lucius.contract.codes import CODES
from lucius.http.app import ROUTES, create_app
from lucius.http.limits import Connections
from lucius.http.problems import SHARED, RouteKind
from lucius.http.server import MAX_HEAD_BYTES, SlowClients
from tests.api.conforming import Conforming, documented_codes, route_of
from tests.api.provoking import PROVOKED
from tests.api.world import World, client_of, context_of
from tests.security.wire import FOR_EVER, code_of, said, serving, status_of

MANY = 10**6
SOON = timedelta(milliseconds=50)
NOT_PROVOKED = {
    "CONFLICT": "what a control route answers where the core refuses without a code of its own;"
    " it has one for every refusal"
}
"""Codes that no request can provoke, and why they are there."""


def get(*lines: str, path: str = "/v1/jobs") -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "host: a", *lines, "", ""]).encode()


ON_THE_WIRE: dict[str, tuple[bytes, dict[str, Any]]] = {
    "INVALID_HTTP": (get("no header"), {}),
    "INVALID_HOST": (get("host: b"), {}),
    "INVALID_TARGET": (get(path="http://a/v1/jobs"), {}),
    "HEADERS_TOO_LARGE": (get("x: " + "x" * MAX_HEAD_BYTES), {}),
    "REQUEST_TIMEOUT": (b"GET /v1/jobs HTTP/1.1\r\n", {"slow": SlowClients(SOON, SOON, FOR_EVER)}),
    "TOO_MANY_CONNECTIONS": (get(), {"connections": Connections(MANY, 0)}),
    "CONNECTIONS_EXHAUSTED": (get(), {"connections": Connections(0, MANY)}),
}
"""What the server refuses before there is a request, or whatever it asks for."""


def test_every_code_is_provoked_or_says_why_not() -> None:
    provoked = [*PROVOKED, *ON_THE_WIRE, *NOT_PROVOKED]
    assert sorted(provoked) == sorted(CODES)


@pytest.mark.parametrize("code", PROVOKED)
async def test_a_code_is_documented_where_it_is_answered(code: str, tmp_path: Path) -> None:
    provoke: Callable[..., Awaitable[httpx.Response]] = PROVOKED[code]
    answer = await (provoke(tmp_path) if "folder" in signature(provoke).parameters else provoke())
    assert (answer.json()["code"], answer.status_code) == (code, CODES[code].status)
    assert ("retry-after" in answer.headers) == CODES[code].retry_after
    route = route_of(answer.request)
    if code in SHARED[RouteKind.UNROUTED]:
        assert route is None
    else:
        assert route is not None
        assert (answer.status_code, code) in documented_codes(route)


@pytest.mark.parametrize("code", ON_THE_WIRE)
async def test_a_code_of_the_server_is_documented_for_every_route(code: str) -> None:
    sent, limits = ON_THE_WIRE[code]
    async with serving(create_app(context_of(World())), **limits) as port:
        answer = await said(port, sent)
    status = CODES[code].status
    assert (status_of(answer), code_of(answer)) == (status, code)
    monitors = code in SHARED[RouteKind.NOT_FOR_MONITORS]
    for route in ROUTES:
        documented = (status, code) in documented_codes(route)
        assert documented == (not (route.access.monitor and monitors))


def test_every_code_is_answered_by_a_route_or_a_kind_of_routes() -> None:
    shared = {code for codes in SHARED.values() for code in codes}
    assert shared | {code for route in ROUTES for code in route.own_codes} == set(CODES)


async def test_an_answer_that_is_not_documented_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every client of the tests looks; without the declaration it finds the gap."""
    route = next(each for each in ROUTES if each.operation_id == "get_job")
    kept = tuple(known for known in route.codes if known.code != "JOB_NOT_FOUND")
    monkeypatch.setattr(route, "codes", kept)
    async with client_of(context_of(World())) as client:
        assert isinstance(client.event_hooks["response"][0], Conforming)
        with pytest.raises(AssertionError, match="JOB_NOT_FOUND"):
            await client.get("/v1/jobs/job_9")


async def test_a_success_that_is_not_documented_is_found() -> None:
    request = httpx.Request("GET", "http://lucius/v1/jobs/job_0")
    await Conforming()(httpx.Response(304, request=request))
    with pytest.raises(AssertionError, match="205"):
        await Conforming()(httpx.Response(205, request=request))
