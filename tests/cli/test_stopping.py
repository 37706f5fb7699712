"""SIGTERM: requests that only wait are answered at once, streams end, and the process with them."""

import asyncio
import json
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx

from tests.cli.up import LUCIUS, clean_environment, up

QUICKLY = 6.0
"""Seconds; open requests would hold the process for ten, if nobody ended them."""
ENVELOPE: dict[str, Any] = {
    "tenant_id": "t",
    "request_type": "OCR",
    "input_ref": "s3://bucket/in.pdf",
    "output_ref": "s3://bucket/out.json",
    "payload": {},
    "schema_version": "v1",
}


async def heard(client: httpx.AsyncClient, job_id: str, listening: asyncio.Event) -> str:
    """All of a stream, to its end."""
    text = ""
    path, headers = f"/v1/jobs/{job_id}/events", {"accept": "text/event-stream"}
    async with client.stream("GET", path, headers=headers) as answer:
        async for line in answer.aiter_lines():
            text += line
            listening.set()
    return text


def test_with_json_one_line_says_when_the_server_is_ready(tmp_path: Path) -> None:
    words = [LUCIUS, "up", "--port", "0", "--no-services", "--data", str(tmp_path), "--json"]
    server = subprocess.Popen(
        words, cwd=tmp_path, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        assert server.stdout is not None
        ready = json.loads(server.stdout.readline())
        assert ready.pop("ready") is True
        assert httpx.get(f"{ready['url']}/readyz").json()["status"] == "ready"
        server.terminate()
        rest, log = server.communicate(timeout=30)
        assert rest == b""
        assert all(json.loads(line)["message"] for line in log.splitlines())
    finally:
        server.kill()
        server.wait()


async def test_a_server_with_open_requests_ends_quickly(tmp_path: Path) -> None:
    with up(tmp_path, "--no-services") as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
            job_id = (await client.post("/v1/orchestrate", json=ENVELOPE)).json()["jobId"]
            listening = asyncio.Event()
            stream = asyncio.create_task(heard(client, job_id, listening))
            waiting = asyncio.create_task(client.get(f"/v1/jobs/{job_id}?wait_seconds=60"))
            pull = {"max": 1, "wait_seconds": 60}
            pulls = "/v1/services/{}/directives:pull"
            pulling = asyncio.create_task(client.post(pulls.format("sis"), json=pull))
            await listening.wait()
            await client.post(pulls.format("ocr"), json={"wait_seconds": 30})
            started = time.monotonic()
            server.terminate()
            assert await asyncio.to_thread(server.ended) == 0, server.log()
            assert time.monotonic() - started < QUICKLY
            assert "event: end" not in await stream, "the job goes on: the listener comes back"
            assert (await waiting).json()["jobId"] == job_id
            assert (await pulling).json() == {"directives": []}
