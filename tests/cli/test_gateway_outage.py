"""`lucius service run --url --health-port`: /readyz shows that the server is away, and that it is back."""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from lucius.adapters.workspaces.memory import MemoryWorkspace
from lucius.app.lifecycle import free_port
from lucius.app.settings import load_settings
from lucius.app.stacks import die_with_parent
from lucius.app.standalone import checks_of
from lucius.client import ClientError
from lucius.client.plain import PlainClient
from tests.faults.server import LUCIUS, REPOSITORY, Server
from tests.platform.bench import Writer

LIMIT = 120.0


@contextmanager
def worker(server: Server, health: int) -> Iterator[None]:
    words = ["service", "run", "tests.faults.patient_service:alpha", "--url", server.url]
    child = subprocess.Popen(
        [LUCIUS, *words, "--health-port", str(health), "--json"],
        cwd=REPOSITORY,
        env=server.environment,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent,
    )
    assert child.stdout is not None
    try:
        line = child.stdout.readline()
        assert line, "it ended before it was ready"
        assert json.loads(line)["service"] == "alpha"
        yield
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def until(url: str, status: int) -> dict[str, str]:
    """What is said of the dependencies, once the answer has that status."""
    give_up_at = time.monotonic() + LIMIT
    while True:
        try:
            answer = httpx.get(f"{url}/readyz", timeout=30)
        except httpx.TransportError:
            answer = httpx.Response(0, json={"checks": {}})
        if answer.status_code == status:
            said: dict[str, str] = answer.json()["checks"]
            return said
        assert time.monotonic() < give_up_at, answer.text


@pytest.mark.xdist_group("stacks")
def test_a_worker_is_not_ready_while_its_server_is_away(tmp_path: Path) -> None:
    server, health = Server(tmp_path / "data"), free_port()
    try:
        server.start()
        until(server.url, 200)
        with worker(server, health):
            assert until(f"http://127.0.0.1:{health}", 200)["gateway"] == "ok"
            server.kill()
            assert until(f"http://127.0.0.1:{health}", 503)["gateway"] != "ok"
            server.start()
            assert until(f"http://127.0.0.1:{health}", 200)["gateway"] == "ok"
    finally:
        server.close()


async def test_a_worker_whose_slots_are_busy_notices_too(tmp_path: Path) -> None:
    """It pulls nothing then: the check asks the server itself."""
    settings = load_settings({"LUCIUS_WORKSPACE_URL": "mem://jobs"})
    async with PlainClient(f"unix:{tmp_path}/nobody", retries=0) as gateway:
        checks = checks_of(Writer(), [], MemoryWorkspace(), settings, gateway)
        assert "bus" not in checks
        with pytest.raises(ClientError):
            await checks["gateway"]()
