"""The whole runtime on SQLite and a real NATS server."""

import asyncio
import threading
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import pytest

from lucius.bootstrap.adapters.buses import open_bus
from lucius.bootstrap.standalone import _other_replies
from lucius.core.routing import reply_topic
from lucius.platform import Output, Service, ServiceRunner, Task
from lucius.platform.standby import StandbyHeartbeats
from lucius.ports.bus import Message, Subscription
from lucius.settings import load_settings
from lucius.workspaces.memory import MemoryWorkspace
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


async def test_a_heartbeat_goes_out_while_the_loop_of_its_service_is_held_up(
    server: NatsServer, tmp_path: Path
) -> None:
    """The thread has a connection of its own: the one of the loop cannot be used meanwhile."""
    settings = load_settings(
        {f"LUCIUS_{name.upper()}": value for name, value in on(server).items()}
        | {"LUCIUS_DATA_DIR": str(tmp_path)}
    )
    bus = open_bus(settings)
    topic = reply_topic(4)
    await bus.ensure([Subscription(topic, "reader")])
    runner = ServiceRunner(Gated(), bus, MemoryWorkspace(), grace=timedelta())
    directive = {
        "type": "DIRECTIVE",
        "jobId": "job_1",
        "stepId": "ocr",
        "step_type": "OCR",
        "tenant_id": "a",
        "attempt_no": 1,
        "lease_id": "l1",
        "lane": 4,
        "lease_seconds": 3.0,
        "workspace_ref": "mem://lucius/a/job_1/",
    }
    await runner.start()
    await bus.publish("global-bus-p4", [Message("m", directive, {"step_type": "OCR"})])
    kinds: list[object] = []

    async def heard(kind: str) -> None:
        while kind not in kinds:
            for delivery in await bus.receive("reader", [topic], 10, timedelta(seconds=20)):
                kinds.append(delivery.message.body["type"])
                await bus.complete(delivery)

    await heard("ACK")
    (attempt,) = runner.attempts()
    with patch.object(attempt, "overdue", lambda now: attempt._held is not None):
        standby = StandbyHeartbeats([runner], partial(_other_replies, settings, Gated(), None))
        sending = threading.Thread(target=standby.send_due)
        sending.start()
        sending.join()  # the loop does nothing until it has been sent
    await heard("HEARTBEAT")
    await runner.stop()
    await bus.close()
