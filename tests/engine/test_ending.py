"""A runtime that stops: nothing new begins anywhere, and all services are drained together."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from lucius.app.building import build
from lucius.app.runtime import Runtime
from lucius.app.settings import load_settings
from lucius.platform import Output, Service, ServiceError, Task
from tests.engine.world import envelope
from tests.observability.served import ENVELOPE, serving
from tests.virtual import VirtualLoop, run_virtually

STEPS = ("ocr", "embedding", "sis")
FIRST = {"ocr": "OCR", "embedding": "EMBEDDING", "sis": "SIS"}


class Endless(Service):
    def __init__(self, name: str) -> None:
        self.name = name
        self.step_types = (name.upper(),)
        self.begun = 0
        self.first = asyncio.Event()

    async def execute(self, task: Task) -> Output:
        self.begun += 1
        self.first.set()
        await asyncio.Event().wait()
        raise AssertionError("it never ends by itself")


async def embedded(services: list[Endless], data: Path) -> Runtime:
    """Without files: threads and virtual time do not go together."""
    given = {
        "LUCIUS_DATA_DIR": str(data),
        "LUCIUS_PUBLIC_URL": "http://lucius",
        "LUCIUS_STORAGE_BACKEND": "memory",
        "LUCIUS_WORKSPACE_URL": "mem://lucius",
    }
    runtime = await build(load_settings(given), services)
    runtime.config.pause = timedelta(days=1)
    return runtime


async def submit(runtime: Runtime, name: str, number: int) -> None:
    payload = {"prompt_set": ["?"]} if name == "sis" else {}
    given = envelope(request_type=FIRST[name], payload=payload, idempotency_key=f"{name}-{number}")
    await runtime.engine.submit(given)


def test_services_are_drained_together_and_begin_nothing_new(tmp_path: Path) -> None:
    async def story(loop: VirtualLoop) -> None:
        services = [Endless(name) for name in STEPS]
        runtime = await embedded(services, tmp_path)
        async with runtime.running():
            for service in services:
                await submit(runtime, service.name, 0)
            await asyncio.gather(*(service.first.wait() for service in services))
            began = loop.time()
            draining = runtime.take_no_more()
            for service in services:
                await submit(runtime, service.name, 1)
            await draining
        assert loop.time() - began == pytest.approx(10, abs=1)
        assert [service.begun for service in services] == [1, 1, 1]
        assert runtime.left_behind == 0

    run_virtually(story)


async def test_a_server_that_stops_takes_no_new_jobs(tmp_path: Path) -> None:
    async with serving(tmp_path) as (runtime, client):
        runtime.take_no_more()
        answer = await client.post("/v1/orchestrate", json=ENVELOPE)
        assert (answer.status_code, answer.json()["code"]) == (503, "NOT_READY")
        assert "stopping" in answer.json()["detail"]
        pulled = await client.post("/v1/services/ocr/directives:pull", json={"max": 1})
        assert pulled.json() == {"directives": []}


class Other(Endless):
    """Another that executes OCR."""

    def __init__(self) -> None:
        super().__init__("other")
        self.step_types = ("OTHER", "OCR")


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (lambda: Endless("ocr"), "two services are named 'ocr'"),
        (Other, "two services execute OCR"),
        (lambda: Endless(""), "has no name: write"),
    ],
)
async def test_services_that_would_share_their_work_are_refused(
    tmp_path: Path, second: Callable[[], Endless], message: str
) -> None:
    with pytest.raises(ServiceError, match=message) as caught:
        await embedded([Endless("ocr"), second()], tmp_path)
    assert "test_ending:Endless" in str(caught.value)
