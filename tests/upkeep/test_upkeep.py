"""`lucius verify` and `lucius ledger prune` on the data that a real runtime has left behind."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lucius.bootstrap import build, prune, verify
from lucius.bootstrap.upkeep import job_folders
from lucius.core.job import Job
from lucius.platform.commit import COMMITS
from lucius.settings import Settings, load_settings
from tests.services.scripted import Scripted

PROTOCOL = """
step_types: {SCRIPTED: {service: scripted}}
protocols: [{request_type: SCRIPTED, protocol_id: scripted_v1, steps: [SCRIPTED]}]
"""

ENVELOPE = {
    "tenant_id": "acme",
    "request_type": "SCRIPTED",
    "input_ref": "s3://bucket/in",
    "output_ref": "s3://bucket/out",
    "payload": {},
    "schema_version": "v1",
}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    protocols = tmp_path / "protocols.yaml"
    protocols.write_text(PROTOCOL)
    return load_settings(
        {"LUCIUS_DATA_DIR": str(tmp_path / "data"), "LUCIUS_PROTOCOLS": str(protocols)}
    )


@pytest.fixture
async def job(settings: Settings) -> Job:
    """One job that has succeeded, and whose process has ended."""
    runtime = await build(settings, [Scripted()])
    async with runtime.running():
        submitted = await runtime.engine.submit(ENVELOPE)
        ended = await runtime.engine.ended(submitted.job_id, 30)
    assert ended is not None
    assert ended.terminal
    return ended


def folder_of(settings: Settings, job: Job) -> Path:
    (folder,) = (path for path in job_folders(settings) if path.name == job.job_id)
    return folder


async def test_what_a_runtime_leaves_behind_is_clean(settings: Settings, job: Job) -> None:
    assert await verify(settings) == []


async def test_an_effect_without_its_job_is_found(settings: Settings, job: Job) -> None:
    folder = folder_of(settings, job)
    orphan = folder.with_name("job_000000000000aaaaaaaaaaaaaaaaaaaa")
    folder.rename(orphan)
    (record,) = (orphan / COMMITS).glob("*.json")
    record.write_text(record.read_text().replace(job.job_id, orphan.name))
    (drift,) = await verify(settings)
    assert (drift.kind, drift.subject) == ("effect_without_job", str(record))


async def test_a_commit_record_that_cannot_be_read_is_found(settings: Settings, job: Job) -> None:
    (record,) = (folder_of(settings, job) / COMMITS).glob("*.json")
    record.write_text("{")
    (drift,) = await verify(settings)
    assert drift.kind == "commit_record_corrupt"


async def test_pruning_takes_a_job_and_its_workspace_and_leaves_what_is_younger(
    settings: Settings, job: Job
) -> None:
    assert await prune(settings, job.plan.accepted_at - timedelta(seconds=1)) == 0
    assert folder_of(settings, job).is_dir()
    assert await prune(settings, datetime.now(UTC) + timedelta(seconds=1)) == 1
    assert not list(job_folders(settings))
    assert await verify(settings) == []


async def test_a_server_deletes_what_it_keeps_no_longer(settings: Settings, job: Job) -> None:
    runtime = await build(replace(settings, retention=timedelta()), [Scripted()])
    async with runtime.running(), asyncio.timeout(30):
        while await runtime.engine.job(job.job_id) is not None or list(job_folders(settings)):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert await verify(settings) == []


async def test_a_server_without_retention_keeps_everything(settings: Settings, job: Job) -> None:
    runtime = await build(settings, [Scripted()])
    async with runtime.running():
        await runtime.engine.submit({**ENVELOPE, "payload": {"again": True}})
        assert await runtime.engine.job(job.job_id) == job
    assert folder_of(settings, job).is_dir()
