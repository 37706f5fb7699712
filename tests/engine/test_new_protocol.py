"""A protocol with a new step type comes by file alone, into a running process; jobs keep theirs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from lucius.adapters.configs.files import FileConfig
from lucius.app.building import build
from lucius.app.runtime import Runtime
from lucius.app.settings import load_settings
from lucius.core.errors import RequestError
from lucius.core.job import Job, JobState
from lucius.platform import Output, Service, Task


class Stamp(Service):
    """Knows a step type that no packaged protocol names. It waits until it is let go."""

    name = "stamp"
    step_types = ("STAMP",)

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.began = asyncio.Event()

    async def execute(self, task: Task) -> Output:
        self.began.set()
        await self.go.wait()
        await task.stage("output.txt", f"{task.step_id}: {task.payload.get('text')}")
        return Output()


def protocol(*steps: str, required: str = "text", step_type: str = "STAMP") -> str:
    schema = {"type": "object", "required": [required]}
    return yaml.safe_dump(
        {
            "step_types": {step_type: {"service": "stamp", "payload_schema": schema}},
            "protocols": [
                {
                    "request_type": "STAMP",
                    "protocol_id": f"stamp_{len(steps)}",
                    "steps": [{"type": step_type, "id": step} for step in steps],
                }
            ],
        }
    )


def envelope(key: str, **payload: Any) -> dict[str, Any]:
    return {
        "tenant_id": "t",
        "request_type": "STAMP",
        "input_ref": "s3://bucket/in.pdf",
        "output_ref": "mem://out/{jobId}.txt",
        "payload": payload,
        "schema_version": "v1",
        "idempotency_key": key,
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "protocols").mkdir()
    return tmp_path / "protocols"


@pytest.fixture
def stamp() -> Stamp:
    return Stamp()


@pytest.fixture
async def runtime(
    tmp_path: Path, folder: Path, stamp: Stamp, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Runtime]:
    monkeypatch.setattr(FileConfig, "pause", timedelta(milliseconds=20))
    settings = load_settings(
        {
            "LUCIUS_DATA_DIR": str(tmp_path / "data"),
            "LUCIUS_PROTOCOLS": f"packaged,{folder}",
            "LUCIUS_REFERENCE_SCHEMES": "s3,mem",
        }
    )
    runtime = await build(settings, [stamp])
    async with runtime.running():
        yield runtime


@asynccontextmanager
async def noticed(runtime: Runtime) -> AsyncIterator[None]:
    """Until the running process has taken up the change that is made here, by itself."""
    prepare, taken_up = runtime.gateway.prepare, asyncio.Event()

    async def told() -> None:
        await prepare()
        taken_up.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runtime.gateway, "prepare", told)
        yield
        async with asyncio.timeout(120):
            await taken_up.wait()


async def put(runtime: Runtime, folder: Path, content: str) -> None:
    async with noticed(runtime):
        (folder / "stamp.yaml").write_text(content)


async def ended(runtime: Runtime, job_id: str) -> Job:
    job = await runtime.engine.ended(job_id, 120)
    assert job is not None
    return job


async def test_a_protocol_with_a_new_step_type_is_a_file_and_runs(
    runtime: Runtime, folder: Path, stamp: Stamp
) -> None:
    stamp.go.set()
    with pytest.raises(RequestError, match="no protocol serves"):
        await runtime.engine.submit(envelope("early", text="x"))
    await put(runtime, folder, protocol("first"))
    with pytest.raises(RequestError) as refused:
        await runtime.engine.submit(envelope("bad"))
    assert refused.value.code == "INVALID_PAYLOAD", "its schema is in force"
    job = await ended(runtime, (await runtime.engine.submit(envelope("good", text="x"))).job_id)
    assert job.state is JobState.SUCCEEDED
    assert job.plan.protocol_id == "stamp_1"


async def begun(runtime: Runtime, folder: Path, stamp: Stamp) -> str:
    """A job of two steps, whose first is under way."""
    await put(runtime, folder, protocol("first", "second"))
    payload = {"steps": {"first": {"text": "x"}, "second": {"text": "y"}}}
    job_id = (await runtime.engine.submit(envelope("old", **payload))).job_id
    await stamp.began.wait()
    return job_id


async def test_a_running_job_ends_though_its_service_is_named_for_other_step_types(
    runtime: Runtime, folder: Path, stamp: Stamp
) -> None:
    job_id = await begun(runtime, folder, stamp)
    await put(runtime, folder, protocol("only", step_type="SEAL"))
    stamp.go.set()
    assert (await ended(runtime, job_id)).state is JobState.SUCCEEDED
