"""The whole runtime on SQLite and a real NATS server."""

import asyncio
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from lucius.platform import Output, Service, Task
from lucius.ports.bus import Message
from tests.api.live import live
from tests.nats_server import NatsServer, shared_server


class Gated(Service):
    """Says when it has begun, and ends when it is told."""

    name = "ocr"
    step_types = ("OCR",)

    def __init__(self) -> None:
        self.begun, self.told = asyncio.Event(), asyncio.Event()

    async def execute(self, task: Task) -> Output:
        self.begun.set()
        await self.told.wait()
        await task.stage("output.txt", "text")
        return Output(name="output.txt")


@pytest.fixture
def server() -> NatsServer:
    server = shared_server()
    server.start()
    return server


def on(server: NatsServer) -> dict[str, Any]:
    return {
        "bus_backend": "nats",
        "nats_url": server.url,
        "system": f"t-{uuid4().hex[:8]}",
    }


async def test_jobs_outlive_a_broker_that_is_killed_under_them(
    server: NatsServer, tmp_path: Path
) -> None:
    service = Gated()
    out: dict[str, Any] = {"output_roots": str(tmp_path / "out")}
    async with live(tmp_path / "data", services=[service], **on(server), **out) as lucius:

        async def accepted(key: str) -> str:
            return await lucius.accepted(key, output_ref=(tmp_path / "out" / key).as_uri())

        jobs = [await accepted(f"job-{n}") for n in range(10)]
        await asyncio.wait_for(service.begun.wait(), 60)
        server.kill()
        service.told.set()
        jobs += [await accepted(f"later-{n}") for n in range(10)]
        server.start()
        for job_id in jobs:
            ended = await lucius.runtime.engine.ended(job_id, 240)
            assert ended is not None
            assert ended.state == "SUCCEEDED"
            assert ended.steps[0].attempt_no == 1, "an outage costs no attempt"


async def test_workers_pull_over_http_from_the_broker(server: NatsServer, tmp_path: Path) -> None:
    async with live(tmp_path, **on(server)) as lucius:
        job_id = await lucius.accepted()
        assert await lucius.work() == job_id
        assert (await lucius.job(job_id))["state"] == "SUCCEEDED"


async def test_a_worker_that_sends_no_token_completes_a_job(
    server: NatsServer, tmp_path: Path
) -> None:
    """Replies exactly as the specification writes them."""
    async with live(tmp_path, **on(server)) as lucius:
        job_id = await lucius.accepted()
        (directive,) = await lucius.pull()
        named = ("jobId", "stepId", "tenant_id", "attempt_no", "lease_id")
        body = {name: directive[name] for name in named} | {"timestamp": "2026-01-27T10:02:00Z"}
        for reply in ({"type": "ACK"}, {"type": "RESULT", "status": "SUCCEEDED"}):
            message = Message(reply["type"], {**body, **reply})
            await lucius.runtime.bus.publish(directive["reply_topic"], [message])
        ended = await lucius.runtime.engine.ended(job_id, 60)
        assert ended is not None
        assert ended.state == "SUCCEEDED"
