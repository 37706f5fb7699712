"""Every error code is provoked once, and OpenAPI lists it for the operation that answers so."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from inspect import signature
from pathlib import Path
from typing import Any

import httpx
import pytest

from lucius.api.app import OPERATIONS, create_app
from lucius.contract import codes
from lucius.contract.codes import CODES, Operations
from lucius.server.connections import Connections
from lucius.server.protocol import MAX_HEAD_BYTES
from lucius.server.slow_clients import SlowClients
from tests.api.conforming import Conforming, documented_codes, operation_of
from tests.api.provoking import PROVOKED
from tests.api.world import World, client_of, context_of
from tests.security.wire import FOR_EVER, code_of, said, serving, status_of

MANY = 10**6
SOON = timedelta(milliseconds=50)
NOT_PROVOKED = {
    "CONFLICT": "what a control operation answers where the core refuses without a code of its own;"
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
    operation = operation_of(answer.request)
    if CODES[code].answered_by == (Operations.UNROUTED,):
        assert operation is None
    else:
        assert operation is not None
        assert (answer.status_code, code) in documented_codes(operation)


@pytest.mark.parametrize("code", ON_THE_WIRE)
async def test_a_code_of_the_server_is_documented_for_every_operation(code: str) -> None:
    sent, limits = ON_THE_WIRE[code]
    async with serving(create_app(context_of(World())), **limits) as port:
        answer = await said(port, sent)
    status = CODES[code].status
    assert (status_of(answer), code_of(answer)) == (status, code)
    monitors = Operations.NOT_FOR_MONITORS in CODES[code].answered_by
    for operation in OPERATIONS:
        documented = (status, code) in documented_codes(operation)
        assert documented == (not (operation.monitor and monitors))


def test_every_name_in_the_registry_is_that_of_an_operation() -> None:
    named = {name for known in CODES.values() for name in known.answered_by}
    assert all(known.answered_by for known in CODES.values())
    assert named - set(Operations) <= {operation.handler.__name__ for operation in OPERATIONS}


async def test_an_answer_that_is_not_documented_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every client of the tests looks; without the entry in the registry it finds the gap."""
    hidden = replace(CODES["JOB_NOT_FOUND"], answered_by=(Operations.CALLBACKS,))
    monkeypatch.setitem(codes.CODES, "JOB_NOT_FOUND", hidden)
    async with client_of(context_of(World())) as client:
        assert isinstance(client.event_hooks["response"][0], Conforming)
        with pytest.raises(AssertionError, match="JOB_NOT_FOUND"):
            await client.get("/v1/jobs/job_9")


async def test_a_success_that_is_not_documented_is_found() -> None:
    request = httpx.Request("GET", "http://lucius/v1/jobs/job_0")
    await Conforming()(httpx.Response(304, request=request))
    with pytest.raises(AssertionError, match="205"):
        await Conforming()(httpx.Response(205, request=request))
