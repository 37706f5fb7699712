"""One LUCIUS on either engine: SQLite, the memory bus, the real kit, and a real Temporal server."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError, CancelledError

from lucius.adapters.buses.memory import MemoryBus
from lucius.app import building
from lucius.app.building import build
from lucius.app.runtime import Runtime
from lucius.app.settings import Settings, load_settings
from lucius.core.effects import Event
from lucius.core.job import Job
from lucius.platform import FatalError, Output, RetryableError, Service, Task
from lucius.ports.bus import Message
from tests.temporal.server import TemporalServer

PROTOCOLS = """
step_types:
  ALPHA: {service: alpha}
  BETA: {service: beta}
  GAMMA: {service: gamma}
protocols:
  - {request_type: ALPHA->BETA->GAMMA, protocol_id: three_v1, steps: [ALPHA, BETA, GAMMA]}
  - request_type: TOGETHER
    protocol_id: together_v1
    steps: [{type: ALPHA, stage: 0}, {type: BETA, stage: 0}, {type: GAMMA, stage: 1}]
"""
SERVICES = ("alpha", "beta", "gamma")
WAIT = 120.0
"""Seconds that a job may take on a busy machine."""


class Recording(MemoryBus):
    """Keeps what was published."""

    def __init__(self) -> None:
        super().__init__()
        self.published: list[tuple[str, Message]] = []

    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        self.published += [(topic, message) for message in messages]
        await super().publish(topic, messages)


class Scripted(Service):
    """Does what the payload of its step says: `fails` so often, `final` or not."""

    commit = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.step_types = (name.upper(),)
        self.tries: dict[str, int] = {}

    async def execute(self, task: Task) -> Output:
        tries = self.tries[task.job_id] = self.tries.get(task.job_id, 0) + 1
        if task.payload.get("final"):
            raise FatalError("it is no good", code="NO_GOOD")
        if tries <= task.payload.get("fails", 0):
            raise RetryableError("it is not ready", code="NOT_YET")
        return Output({"uri": f"mem://out/{self.name}"})


def settings_of(folder: Path, server: TemporalServer | None, **environ: str) -> Settings:
    """With a server, jobs run on Temporal."""
    folder.mkdir(exist_ok=True)
    (folder / "protocols.yaml").write_text(PROTOCOLS)
    on_temporal = {
        "LUCIUS_TEMPORAL_ENABLED": "true",
        "LUCIUS_TEMPORAL_ADDRESS": server.address if server is not None else "",
        "LUCIUS_TEMPORAL_TASK_QUEUE": f"test-{uuid4().hex[:8]}",
    }
    return load_settings(
        {
            "LUCIUS_DATA_DIR": str(folder / "data"),
            "LUCIUS_PROTOCOLS": str(folder / "protocols.yaml"),
            "LUCIUS_PUBLIC_URL": "http://127.0.0.1:1",
            "LUCIUS_EXECUTION_BACKOFF_SECONDS": "0.05",
            **(on_temporal if server is not None else {}),
            **environ,
        }
    )


@asynccontextmanager
async def running(
    settings: Settings, services: Sequence[Service] | None = None
) -> AsyncIterator[tuple[Runtime, Recording]]:
    bus = Recording()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(building, "open_bus", lambda settings: bus)
        chosen = [Scripted(name) for name in SERVICES] if services is None else services
        runtime = await build(settings, chosen)
    async with runtime.running():
        yield runtime, bus


def envelope(
    request_type: str = "ALPHA->BETA->GAMMA", *, number: int = 0, **steps: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "tenant_id": "acme",
        "request_type": request_type,
        "input_ref": f"s3://bucket/{number}.pdf",
        "output_ref": f"s3://bucket/{number}.json",
        "payload": {"steps": {name: dict(steps.get(name, {})) for name in SERVICES}},
        "schema_version": "v1",
    }


async def submitted(runtime: Runtime, command: dict[str, Any]) -> str:
    return (await runtime.engine.submit(command)).job_id


async def ended(runtime: Runtime, job_id: str) -> Job:
    job = await runtime.engine.ended(job_id, WAIT)
    assert job is not None
    assert job.terminal, job
    return job


async def events_of(runtime: Runtime, job_id: str) -> list[Event]:
    return list(await runtime.engine.events(job_id, 0, 1000))


async def closed(handle: WorkflowHandle[Any, Any]) -> dict[str, Any]:
    """How a workflow ended: what it returned, or with what it failed, or that it was cancelled."""
    try:
        told: dict[str, Any] = await handle.result()
    except WorkflowFailureError as failure:
        if isinstance(failure.cause, CancelledError):
            return {"state": "CANCELLED"}
        if not isinstance(failure.cause, ApplicationError):
            raise
        told = failure.cause.details[0]
    return told
