"""`lucius up --stack nats` and `lucius service run` beside it, as real processes."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from lucius.bootstrap.broker import BrokerMissingError, die_with_parent, local_nats
from tests.faults.server import LUCIUS, REPOSITORY, Server, command
from tests.faults.test_kill import ended

SCRIPT: dict[str, Any] = {"alpha": {"seconds": 0.01}}


@contextmanager
def child(*words: str, env: dict[str, str]) -> Iterator[tuple[subprocess.Popen[str], Any]]:
    """A process and what it said when it was ready."""
    process = subprocess.Popen(
        [LUCIUS, *words, "--json"],
        cwd=REPOSITORY,
        env=env,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent,
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, "it ended before it was ready"
        yield process, json.loads(line)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def succeeded(url: str, server: Server, number: int) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=60) as client, asyncio.timeout(240):
        answer = await client.post("/v1/orchestrate", json=command(number, SCRIPT, server))
        assert answer.status_code == 202, answer.text
        job = await ended(client, answer.json()["jobId"])
        assert job["state"] == "SUCCEEDED", job


async def test_the_stack_starts_its_own_broker_and_ends_it(tmp_path: Path) -> None:
    server = Server(tmp_path / "data")
    names = [f"tests.faults.kill_services:{name}" for name in ("alpha", "beta", "gamma")]
    services = [word for name in names for word in ("--service", name)]
    words = ["up", "--stack", "nats", "--port", "0", "--no-services", *services]
    env = server.environment
    for number in (1, 2):
        with child(*words, env=env) as (process, said):
            await succeeded(said["url"], server, number)
            process.send_signal(signal.SIGTERM)
            assert process.wait(90) == 0
    assert "Server Exiting" in (tmp_path / "data" / "nats" / "server.log").read_text()
    server.close()


def test_without_a_binary_the_stack_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda *args, **kwargs: None)
    with (
        pytest.raises(BrokerMissingError, match="LUCIUS_NATS_URL"),
        local_nats({}, tmp_path),
    ):
        raise AssertionError("there is no server")


def test_a_server_that_is_named_is_used(tmp_path: Path) -> None:
    with local_nats({**os.environ, "LUCIUS_NATS_URL": "nats://there:4222"}, tmp_path) as found:
        assert found == {}
    assert not (tmp_path / "nats").exists()
