"""What never becomes a request of a route is counted all the same, by its code."""

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from lucius.app.health import health_app, health_port
from lucius.http.limits import Connections
from lucius.http.owner import Owner
from lucius.http.server import MAX_HEAD_BYTES, SlowClients
from tests.security.wire import FOR_EVER, SOON, code_of, roomy, said, serving

AT_ONCE = timedelta(0)
GET = b"GET / HTTP/1.1\r\n"


def counts(connections: Connections) -> dict[str, int]:
    cells: Iterable[tuple[tuple[str, ...], int]] = connections.instruments.refused.cells.items()
    return {code: count for (code,), count in cells if count}


async def nothing(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body"})


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"nonsense\r\n\r\n", "INVALID_HTTP"),
        (GET + b"\r\n", "INVALID_HOST"),
        (b"GET http://x/ HTTP/1.1\r\nhost: x\r\n\r\n", "INVALID_TARGET"),
        (GET + b"host: x\r\nx: " + b"a" * MAX_HEAD_BYTES + b"\r\n\r\n", "HEADERS_TOO_LARGE"),
    ],
)
async def test_a_request_that_is_none(sent: bytes, code: str) -> None:
    connections = roomy()
    async with serving(nothing, connections=connections) as port:
        assert code_of(await said(port, sent)) == code
    assert counts(connections) == {code: 1}


async def test_what_is_answered_by_a_route_is_not_counted() -> None:
    connections = roomy()
    async with serving(nothing, connections=connections) as port:
        await said(port, GET + b"host: x\r\nconnection: close\r\n\r\n")
    assert counts(connections) == {}


@pytest.mark.parametrize("sent", [b"", GET, GET + b"host: x\r\ncontent-length: 9\r\n\r\n"])
async def test_a_client_that_sends_too_slowly(sent: bytes) -> None:
    async def waits(scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    connections, slow = roomy(), SlowClients(AT_ONCE, AT_ONCE, FOR_EVER)
    async with serving(waits, slow, connections) as port:
        await said(port, sent)
    assert counts(connections) == {"REQUEST_TIMEOUT": 1}


class Watched(Connections):
    """Says when it has counted one."""

    def __init__(self, most: int, per_address: int) -> None:
        super().__init__(most, per_address)
        self.counted = asyncio.Event()

    def refused(self, code: str) -> None:
        super().refused(code)
        self.counted.set()


async def test_a_client_that_does_not_read() -> None:
    async def much(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"a" * 50_000_000})

    connections, slow = Watched(9, 9), SlowClients(FOR_EVER, FOR_EVER, AT_ONCE)
    async with serving(much, slow, connections) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.write(GET + b"host: x\r\n\r\n")
        async with asyncio.timeout(SOON):
            await connections.counted.wait()
        writer.close()
    assert counts(connections) == {"ANSWER_UNREAD": 1}


async def test_a_connection_that_finds_the_reserve_full() -> None:
    connections = Connections(most=0, per_address=9, reserve=1)
    async with serving(nothing, connections=connections) as port:
        first, second = (asyncio.create_task(said(port)) for _ in range(2))
        await asyncio.wait((first, second), return_when=asyncio.FIRST_COMPLETED)
    assert counts(connections) == {"CONNECTIONS_EXHAUSTED": 1}


# -- ports without the API -----------------------------------------------------------------------


async def test_a_port_for_one_user_refuses_others_but_says_that_it_lives() -> None:
    owner, app = Owner(1, whose=lambda client, server: 2), health_app({}, CollectorRegistry())
    async with health_port(app, "127.0.0.1", 0, owner=owner) as port, httpx.AsyncClient() as client:
        at = f"http://127.0.0.1:{port}"
        assert (await client.get(f"{at}/healthz")).status_code == 200
        refused = await client.post(f"{at}/v1/internal/publish", json={})
    assert (refused.status_code, refused.json()["code"]) == (403, "OTHER_USER")


async def test_a_slow_client_of_a_port_without_the_api_is_hung_up_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lucius.app.health.HEAD", AT_ONCE)
    async with health_port(health_app({}, CollectorRegistry()), "127.0.0.1", 0) as port:
        assert port is not None
        assert code_of(await said(port, GET)) == "REQUEST_TIMEOUT"
