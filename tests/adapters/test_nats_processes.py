"""`lucius up --stack nats` and `lucius service run` beside it, as real processes."""

import asyncio
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from lucius.app.lifecycle import free_port
from lucius.app.stacks import BrokerMissingError, die_with_parent, local_nats
from tests.faults.server import LUCIUS, REPOSITORY, Server, command, ready
from tests.faults.test_kill import ended
from tests.nats_server import shared_server
from tests.soon import soon

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


async def test_services_of_their_own_processes_work_over_the_broker(tmp_path: Path) -> None:
    broker = shared_server()
    broker.start()
    settings = {"LUCIUS_BUS_BACKEND": "nats", "LUCIUS_NATS_URL": broker.url}
    server = Server(tmp_path / "data", LUCIUS_SYSTEM=f"p-{free_port()}", **settings)
    env = server.environment
    names = [f"tests.faults.kill_services:{name}" for name in ("alpha", "beta", "gamma")]
    with (
        child("up", "--port", "0", "--no-services", env=env) as (_, said),
        child("service", "run", names[0], env=env) as (first, _),
        child("service", "run", names[1], env=env),
        child("service", "run", names[2], env=env),
    ):
        await succeeded(said["url"], server, 1)
        first.send_signal(signal.SIGTERM)
        assert first.wait(90) == 0
        broker.kill()
        broker.start()
        with child("service", "run", names[0], env=env):
            await succeeded(said["url"], server, 2)
    server.close()


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


async def test_jobs_under_way_end_after_the_process_was_killed(tmp_path: Path) -> None:
    broker = shared_server()
    broker.start()
    settings = {"LUCIUS_BUS_BACKEND": "nats", "LUCIUS_NATS_URL": broker.url}
    server = Server(tmp_path / "data", LUCIUS_SYSTEM=f"k-{free_port()}", **settings)
    try:
        server.start()
        async with (
            httpx.AsyncClient(base_url=server.url, timeout=60) as client,
            asyncio.timeout(240),
        ):
            await ready(client, server)
            script = {"alpha": {"seconds": 8}}
            answer = await client.post("/v1/orchestrate", json=command(1, script, server))
            job_id = answer.json()["jobId"]
            while (await client.get(f"/v1/jobs/{job_id}")).json()["state"] != "IN_PROGRESS":
                pass
            server.kill()
            server.start()
            await ready(client, server)
            job = await ended(client, job_id)
            assert job["state"] == "SUCCEEDED", "its lease of 15 minutes did not hold it"
        assert server.stop() == 0
        assert server.verify().returncode == 0
    finally:
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


@pytest.mark.slow
def test_a_server_that_dies_is_started_again_and_none_is_left_behind(tmp_path: Path) -> None:
    with local_nats({}, tmp_path) as found:
        address = urlsplit(found["LUCIUS_NATS_URL"])

        def answers() -> bool:
            try:
                socket.create_connection((str(address.hostname), address.port or 0), 1).close()
            except OSError:
                return False
            return True

        def servers() -> list[int]:
            words = str(tmp_path / "nats" / "server.conf").encode()
            return [
                int(each.name)
                for each in Path("/proc").iterdir()
                if each.name.isdigit() and words in command_of(each)
            ]

        (first,) = servers()
        os.kill(first, signal.SIGKILL)
        assert soon(lambda: servers() not in ([], [first]) and answers())
        assert not (Path("/proc") / str(first)).exists(), "it is waited for, and no longer defunct"
    assert servers() == []


def command_of(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


def test_a_server_that_is_named_is_used(tmp_path: Path) -> None:
    with local_nats({**os.environ, "LUCIUS_NATS_URL": "nats://there:4222"}, tmp_path) as found:
        assert found == {}
    assert not (tmp_path / "nats").exists()
