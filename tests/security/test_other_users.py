"""Without authentication only the user who runs the server is served: the kernel says who connects."""

import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
import uvicorn

from lucius.client import Client
from lucius.http.limits import Connections
from lucius.http.owner import (
    Address,
    Owner,
    OwnerProtocol,
    by_diagnosis,
    by_table,
    known_here,
    uid_of,
)
from tests.cli.up import Up, up

ME = os.geteuid()
NOBODY = 65534
AS_NOBODY = f"""
import os, socket, sys
os.setuid({NOBODY})
with socket.socket() as client:
    client.connect(("127.0.0.1", int(sys.argv[1])))
    client.sendall(sys.argv[2].encode())
    sys.stdout.buffer.write(client.makefile("rb").read())
"""
CLOSING = "\r\nhost: localhost\r\nconnection: close\r\n\r\n"


def asked_as_nobody(port: int, line: str) -> str:
    """What another user of this machine is answered. Only root can be someone else."""
    words = [sys.executable, "-c", AS_NOBODY, str(port), f"{line} HTTP/1.1{CLOSING}"]
    return subprocess.run(words, check=True, capture_output=True, timeout=30).stdout.decode()


# -- asking the kernel ---------------------------------------------------------------------------


@pytest.fixture(params=["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def listener(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    """On IPv4, on IPv6, and on IPv4 through a socket of IPv6."""
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    with socket.socket(family) as listener:
        listener.bind((request.param, 0))
        listener.listen()
        yield listener


def ends(client: socket.socket) -> tuple[Address, Address]:
    return client.getsockname()[:2], client.getpeername()[:2]


def test_the_kernel_names_the_user_of_a_connection(listener: socket.socket) -> None:
    with socket.create_connection(listener.getsockname()[:2]) as client:
        assert uid_of(*ends(client)) == ME


@pytest.mark.parametrize("ask", [by_diagnosis, by_table])
def test_both_ways_to_ask_know_an_ipv4_client_whatever_its_socket(ask: Any) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
        wide = socket.socket(socket.AF_INET6)
        wide.connect(("::ffff:127.0.0.1", port))
        plain = socket.create_connection(("127.0.0.1", port))
        for client in (wide, plain):
            own = ("127.0.0.1", client.getsockname()[1])
            found = ask(own, ("127.0.0.1", port))
            assert found is not None
            assert found.owner() == ME
            client.close()


def test_this_system_is_known_to_tell() -> None:
    assert known_here()


def test_who_has_sent_everything_and_waits_is_still_known(listener: socket.socket) -> None:
    with socket.create_connection(listener.getsockname()[:2]) as client:
        client.shutdown(socket.SHUT_WR)
        assert uid_of(*ends(client)) == ME


def test_who_has_closed_is_nobody_and_not_root(listener: socket.socket) -> None:
    """The kernel says 0 of a socket that belongs to no process any more."""
    client = socket.create_connection(listener.getsockname()[:2])
    accepted, _ = listener.accept()
    both = ends(client)
    client.close()
    assert uid_of(*both) is None
    accepted.close()
    assert uid_of(*both) is None


def test_a_connection_of_elsewhere_is_nobodys() -> None:
    assert uid_of(("127.0.0.1", 1), ("127.0.0.1", 2)) is None


LOCAL = "0100007F" if sys.byteorder == "little" else "7F000001"
ROW = f"   0: {LOCAL}:9C40 {LOCAL}:21FC {{}} 00000000:00000000 00:00000000 00000000  {{}}  0 {{}} 1"


@pytest.mark.parametrize(
    ("state", "uid", "inode", "owner"),
    [("01", 1001, 77, 1001), ("06", 0, 0, None), ("05", 0, 0, None), ("02", 1001, 77, None)],
    ids=["connected", "in TIME_WAIT", "closed by its process", "only about to connect"],
)
def test_a_row_counts_only_for_a_connection_that_a_process_holds(
    tmp_path: Path, state: str, uid: int, inode: int, owner: int | None
) -> None:
    (tmp_path / "tcp").write_text(f"head\n{ROW.format(state, uid, inode)}\n")
    found = by_table(("127.0.0.1", 40000), ("127.0.0.1", 8700), tmp_path)
    assert found is not None
    assert found.owner() == owner
    assert by_table(("127.0.0.1", 40001), ("127.0.0.1", 8700), tmp_path) is None


# -- refusing ------------------------------------------------------------------------------------


class Whose:
    """Says of every connection that it is of `uid`; counts how often it is asked."""

    def __init__(self, uid: int | None) -> None:
        self.uid = uid
        self.asked = 0

    def __call__(self, client: Address, server: Address) -> int | None:
        self.asked += 1
        return self.uid


async def app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body"})


@asynccontextmanager
async def served(whose: Whose) -> AsyncIterator[httpx.AsyncClient]:
    protocol = cast(Any, partial(OwnerProtocol, Owner(1000, whose), Connections(100, 100)))
    config = uvicorn.Config(app, http=protocol, lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    config.load()
    server.lifespan = config.lifespan_class(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        await server.startup([listener])
        async with httpx.AsyncClient(base_url=url) as client:
            yield client
        await server.shutdown([listener])


@pytest.mark.parametrize("uid", [1001, NOBODY, None], ids=str)
async def test_others_are_told_what_to_set_and_learn_only_that_it_lives(uid: int | None) -> None:
    async with served(Whose(uid)) as client:
        for path in ("/v1/jobs", "/readyz", "/metrics", "/docs", "/healthz/x", "/healthz%2f.."):
            answer = await client.get(path)
            assert (answer.status_code, answer.json()["code"]) == (403, "OTHER_USER")
        assert "LUCIUS_AUTH=keys" in answer.json()["detail"]
        assert "1000" in answer.json()["detail"]
        posted = await client.post("/v1/orchestrate", content=b"x" * 100_000)
        assert posted.status_code == 403
        assert (await client.get("/healthz")).status_code == 204


@pytest.mark.parametrize("uid", [1000, 0])
async def test_the_user_who_runs_it_and_root_are_served(uid: int) -> None:
    async with served(Whose(uid)) as client:
        assert (await client.get("/v1/jobs")).status_code == 204


@pytest.mark.parametrize("uid", [1000, 1001])
async def test_the_kernel_is_asked_once_a_connection(uid: int) -> None:
    whose = Whose(uid)
    async with served(whose) as client:
        for _ in range(50):
            await client.get("/v1/jobs")
    assert whose.asked == 1


# -- lucius up -----------------------------------------------------------------------------------


def port_of(server: Up) -> int:
    return int(server.url.rpartition(":")[2])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("up"), "--no-services") as server:
        yield server


def test_for_the_user_who_runs_it_nothing_changes(server: Up) -> None:
    assert httpx.get(f"{server.url}/v1/jobs").json() == {"jobs": [], "next_cursor": None}


def test_another_user_is_refused_by_lucius_up(server: Up) -> None:
    """For real where this runs as root; elsewhere the injected user above must do."""
    if ME == 0:
        refused = asked_as_nobody(port_of(server), "GET /v1/jobs")
        assert " 403 " in refused.splitlines()[0]
        assert '"OTHER_USER"' in refused
        assert f"user {NOBODY}" in refused
        assert " 200 " in asked_as_nobody(port_of(server), "GET /healthz").splitlines()[0]


def test_with_keys_another_user_is_asked_for_one(tmp_path: Path) -> None:
    with up(tmp_path, "--no-services", LUCIUS_AUTH="keys") as server:
        assert httpx.get(f"{server.url}/v1/jobs").status_code == 401
        if ME == 0:
            assert " 401 " in asked_as_nobody(port_of(server), "GET /v1/jobs").splitlines()[0]
        assert not (tmp_path / ".lucius/lucius.sock").exists()


async def test_a_socket_beside_the_port_is_for_its_owner_alone(tmp_path: Path) -> None:
    with up(tmp_path, "--no-services") as server:
        path = tmp_path / ".lucius/lucius.sock"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        async with Client(f"unix:{path}") as client:
            assert (await client.jobs()).jobs == []
        server.stop()
        assert not path.exists()


def test_a_socket_that_was_left_behind_is_replaced(tmp_path: Path) -> None:
    with up(tmp_path, "--no-services") as server:
        server.kill()
    path = tmp_path / ".lucius/lucius.sock"
    assert path.exists()
    with up(tmp_path, "--no-services"):
        transport = httpx.HTTPTransport(uds=str(path))
        with httpx.Client(transport=transport, base_url="http://localhost") as client:
            assert client.get("/healthz").json() == {"status": "ok"}


def test_a_path_too_long_for_a_socket_costs_only_the_socket(tmp_path: Path) -> None:
    data = tmp_path / ("d" * 100)
    with up(tmp_path, "--no-services", "--data", str(data), "--json") as server:
        assert httpx.get(f"{server.url}/v1/jobs").status_code == 200
    lines = [json.loads(line) for line in server.log().splitlines()]
    assert any("no Unix socket" in str(line.get("message")) for line in lines)
