"""`lucius service run` over NATS: a step hears of a cancellation long before its heartbeat is due."""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from lucius.app.lifecycle import free_port
from lucius.app.stacks import die_with_parent
from tests.faults.server import LUCIUS, REPOSITORY, Server, command
from tests.nats_server import shared_server

pytestmark = pytest.mark.xdist_group("stacks")


@contextmanager
def process(*words: str, env: dict[str, str]) -> Iterator[Any]:
    """A process, and what it said when it was ready."""
    child = subprocess.Popen(
        [LUCIUS, *words, "--json"],
        cwd=REPOSITORY,
        env=env,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent,
    )
    assert child.stdout is not None
    try:
        line = child.stdout.readline()
        assert line, "it ended before it was ready"
        yield json.loads(line)
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


async def state(client: httpx.AsyncClient, job_id: str, wait: int) -> str:
    answer = await client.get(f"/v1/jobs/{job_id}", params={"wait_seconds": wait})
    return str(answer.json()["state"])


async def test_a_step_in_another_process_stops_at_once(tmp_path: Path) -> None:
    """Its lease is 15 minutes, so its next heartbeat would come after five."""
    broker = shared_server()
    broker.start()
    settings = {"LUCIUS_BUS_BACKEND": "nats", "LUCIUS_NATS_URL": broker.url}
    server = Server(tmp_path / "data", LUCIUS_SYSTEM=f"n-{free_port()}", **settings)
    name = "tests.faults.patient_service:alpha"
    with (
        process("up", "--port", "0", "--no-services", env=server.environment) as said,
        process("service", "run", name, env=server.environment),
    ):
        async with (
            httpx.AsyncClient(base_url=said["url"], timeout=60) as client,
            asyncio.timeout(240),
        ):
            answer = await client.post("/v1/orchestrate", json=command(1, {}, server))
            job_id = answer.json()["jobId"]
            while await state(client, job_id, wait=1) != "IN_PROGRESS":
                pass
            assert (await client.post(f"/v1/jobs/{job_id}:cancel")).status_code in (200, 202)
            while await state(client, job_id, wait=20) != "CANCELLED":
                pass
    server.close()
