"""`lucius verify` and `lucius ledger prune` on the data that a real runtime has left behind."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

from lucius.app.adapters import open_workspace
from lucius.app.building import build
from lucius.app.settings import Settings
from lucius.app.upkeep import prune, verify
from lucius.core.job import Job
from tests.services.scripted import Scripted
from tests.upkeep.installation import envelope, folder_of, job_folders, record_of, settings_in


async def test_what_a_runtime_leaves_behind_is_clean(settings: Settings, job: Job) -> None:
    assert await verify(settings) == []


async def test_an_effect_without_its_job_is_found(settings: Settings, job: Job) -> None:
    uri, record = await record_of(settings, job)
    orphan, workspace = "job_000000000000aaaaaaaaaaaaaaaaaaaa", open_workspace(settings)
    moved = uri.replace(job.job_id, orphan)
    await workspace.remove(folder_of(settings, job).as_uri() + "/")
    await workspace.write(moved, record.replace(job.job_id.encode(), orphan.encode()))
    (drift,) = await verify(settings)
    assert (drift.kind, drift.subject) == ("effect_without_job", moved)


async def test_a_commit_record_that_cannot_be_read_is_found(settings: Settings, job: Job) -> None:
    uri, _ = await record_of(settings, job)
    await open_workspace(settings).write(uri, b"{")
    (drift,) = await verify(settings)
    assert (drift.kind, drift.subject) == ("commit_record_corrupt", uri)


async def test_pruning_takes_a_job_and_its_workspace_and_leaves_what_is_younger(
    settings: Settings, job: Job
) -> None:
    assert await prune(settings, job.plan.accepted_at - timedelta(seconds=1)) == 0
    assert folder_of(settings, job).is_dir()
    assert await prune(settings, datetime.now(UTC) + timedelta(seconds=1)) == 1
    assert not list(job_folders(settings))
    assert await verify(settings) == []


async def test_a_server_deletes_what_it_keeps_no_longer(
    settings: Settings, job: Job, tmp_path: Path
) -> None:
    runtime = await build(settings_in(tmp_path, LUCIUS_RETENTION="0s"), [Scripted()])
    async with runtime.running(), asyncio.timeout(30):
        while await runtime.engine.job(job.job_id) is not None or list(job_folders(settings)):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert await verify(settings) == []


async def test_a_server_without_retention_keeps_everything(settings: Settings, job: Job) -> None:
    runtime = await build(settings, [Scripted()])
    async with runtime.running():
        await runtime.engine.submit(envelope(settings, again=True))
        assert await runtime.engine.job(job.job_id) == job
    assert folder_of(settings, job).is_dir()
