"""Connections have limits, in all and by address; monitors and operators get in beyond them."""

import asyncio
import resource
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from lucius.http.app import create_app
from lucius.http.context import Caller, Role
from lucius.http.limits import FILES_BESIDES, RESERVE, Connections, affordable
from tests.api.world import World, context_of
from tests.cli.up import Changed, running
from tests.security.test_limits import by_name
from tests.security.wire import code_of, header_of, said, serving, status_of

ANY = 10**6


class Connection:
    def __init__(self, *, asked: bool = False) -> None:
        self.asked = asked
        self.cut = False

    def has_asked(self) -> bool:
        return self.asked

    def cut_off(self) -> None:
        self.cut = True


def test_each_address_has_so_many() -> None:
    connections = Connections(ANY, 2)
    connected = [Connection() for _ in range(3)]
    codes = [connections.enter(connection, "a") for connection in connected]
    assert codes == [None, None, "TOO_MANY_CONNECTIONS"]
    assert connections.enter(Connection(), "b") is None
    connections.leave(connected[0])
    assert connections.enter(Connection(), "a") is None


def test_all_addresses_together_have_so_many() -> None:
    connections = Connections(2, ANY)
    codes = [connections.enter(Connection(), address) for address in "abc"]
    assert codes == [None, None, "CONNECTIONS_EXHAUSTED"]


def test_who_leaves_makes_room_once() -> None:
    connections = Connections(1, 1)
    connection = Connection()
    connections.enter(connection, "a")
    connections.leave(connection)
    connections.leave(connection)
    assert len(connections) == 0
    assert connections.enter(Connection(), "a") is None
    assert connections.enter(Connection(), "a") is not None


def test_a_full_reserve_takes_the_newest_and_drops_the_one_that_is_silent_longest() -> None:
    connections = Connections(0, ANY, reserve=2)
    asked, silent, new, last = Connection(asked=True), Connection(), Connection(), Connection()
    for connection in (asked, silent, new):
        connections.enter(connection, "a")
    assert [connection.cut for connection in (asked, silent, new)] == [False, True, False]
    new.asked = True
    connections.enter(last, "a")
    assert last.cut, "all others are being answered"
    assert len(connections) == 2


@pytest.mark.parametrize(
    ("limits", "most", "raised"),
    [
        ((1024, 4096), 3000, 3000 + RESERVE + FILES_BESIDES),
        ((1024, 1024), 1024 - RESERVE - FILES_BESIDES, 1024),
        ((1024, resource.RLIM_INFINITY), 3000, 3000 + RESERVE + FILES_BESIDES),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), 3000, None),
        ((9000, 9000), 3000, None),
        ((100, 100), 16, 100),
    ],
)
def test_there_are_files_for_all_connections_and_for_the_rest(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], most: int, raised: int | None
) -> None:
    given: list[int] = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda which, pair: given.append(pair[0]))
    assert affordable(3000) == most
    assert given == ([raised] if raised is not None else [])


# -- on the wire -------------------------------------------------------------------------------


@asynccontextmanager
async def held(port: int, number: int) -> AsyncIterator[None]:
    """So many connections that say nothing."""
    async with AsyncExitStack() as stack:
        for _ in range(number):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            stack.callback(writer.close)
        yield


def request(path: str, *headers: str, method: str = "GET") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "host: 127.0.0.1", "content-length: 0", *headers]
    return "\r\n".join([*lines, "", ""]).encode()


async def roles_by_name(asked: Any) -> Caller:
    caller = await by_name(asked)
    roles = {"operator": {Role.OPERATE, Role.READ}, "admin": {Role.ADMIN, Role.READ}}
    return Caller(caller.name, frozenset(roles.get(caller.name, {Role.READ, Role.SUBMIT})))


LIMITS = {
    "address": (Connections(ANY, 3), 429, "TOO_MANY_CONNECTIONS"),
    "all": (Connections(3, ANY), 503, "CONNECTIONS_EXHAUSTED"),
}


@pytest.mark.parametrize("limit", LIMITS)
async def test_beyond_the_limit_only_monitors_and_operators_are_answered(limit: str) -> None:
    connections, status, code = LIMITS[limit]
    app = create_app(context_of(World(), authenticate=roles_by_name))
    async with serving(app, connections=connections) as port, held(port, 3):
        for path in ("/healthz", "/readyz"):
            assert status_of(await said(port, request(path))) == 200
        for name in ("operator", "admin"):
            answer = await said(port, request("/v1/jobs", f"x-name: {name}"))
            assert status_of(answer) == 200
            assert header_of(answer, "connection") == "close"
        for asked in (request("/v1/jobs", "x-name: reader"), request("/openapi.json")):
            answer = await said(port, asked)
            assert (status_of(answer), code_of(answer)) == (status, code)
            assert header_of(answer, "retry-after") is not None
        stream = request("/v1/jobs/job_0/events?stream=true", "x-name: operator")
        assert status_of(await said(port, stream)) == 404


async def test_an_operator_does_not_wait_on_the_reserve() -> None:
    world = World()
    app = create_app(context_of(world, authenticate=roles_by_name))
    await world.submit({"tenant_id": "a", "request_type": "OCR->EMBEDDING"} | BARE)
    async with serving(app, connections=Connections(0, ANY)) as port:
        for query in ("/events?stream=true", "?wait_seconds=60"):
            answer = await said(port, request(f"/v1/jobs/job_0{query}", "x-name: operator"))
            assert code_of(answer) == "CONNECTIONS_EXHAUSTED"


BARE = {"schema_version": "1", "input_ref": "s3://b/i", "output_ref": "s3://b/o", "payload": {}}


async def test_without_authentication_the_routes_of_operators_are_answered() -> None:
    app = create_app(context_of(World()))
    async with serving(app, connections=Connections(0, ANY)) as port:
        assert status_of(await said(port, request("/v1/admin/dlq"))) == 200
        answer = await said(port, request("/v1/jobs/job_0:cancel", method="POST"))
        assert code_of(answer) == "JOB_NOT_FOUND"
        assert code_of(await said(port, request("/v1/jobs"))) == "CONNECTIONS_EXHAUSTED"
        answer = await said(port, request("/v1/callbacks/ack", method="POST"))
        assert code_of(answer) == "CONNECTIONS_EXHAUSTED"


async def test_silent_connections_do_not_keep_monitors_out_of_the_reserve() -> None:
    app = create_app(context_of(World()))
    async with serving(app, connections=Connections(2, ANY)) as port, held(port, 2 + 3 * RESERVE):
        assert status_of(await said(port, request("/healthz"))) == 200


async def test_lucius_up_has_the_limits(tmp_path: Path) -> None:
    with running(Changed({"processes.PER_ADDRESS": "3"}, tmp_path, "--no-services")) as server:
        port = int(server.url.rpartition(":")[2])
        async with held(port, 3):
            assert code_of(await said(port, request("/v1/jobs"))) == "TOO_MANY_CONNECTIONS"
            assert status_of(await said(port, request("/healthz"))) == 200
    with running(Changed({"processes.CONNECTIONS": "3"}, tmp_path, "--no-services")) as server:
        port = int(server.url.rpartition(":")[2])
        async with held(port, 3):
            assert code_of(await said(port, request("/v1/jobs"))) == "CONNECTIONS_EXHAUSTED"
            assert status_of(await said(port, request("/readyz"))) == 200
