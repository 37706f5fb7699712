"""What a runtime is built from: settings are obeyed, and what cannot be built is refused."""

import asyncio
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from lucius.app.adapters import UnsupportedError, open_bus, open_ledger
from lucius.app.building import build
from lucius.app.processes import reconcile
from lucius.app.settings import load_settings
from tests.api.live import live
from tests.services.stage import packaged


def test_a_bus_whose_library_is_missing_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lucius.adapters.buses.nats", None)
    with pytest.raises(UnsupportedError, match=r"pip install 'lucius\[nats\]'"):
        open_bus(load_settings({"LUCIUS_BUS_BACKEND": "nats"}))


async def test_the_reconciler_looks_at_what_is_due_as_often_as_it_is_told(tmp_path: Path) -> None:
    environ = {"LUCIUS_DATA_DIR": str(tmp_path / "data"), "LUCIUS_OUTBOX_RETRY_INTERVAL": "0.5"}
    runtime = await build(load_settings(environ))
    assert runtime.outbox.ticks.pause() == timedelta(seconds=0.5).total_seconds()
    await runtime.webhooks.close()
    await runtime.ledger.close()


@pytest.mark.parametrize("url", ["hdfs://cluster/work", "file://host/work"])
async def test_a_workspace_that_no_service_here_can_write_is_refused_by_name(
    url: str, tmp_path: Path
) -> None:
    environ = {"LUCIUS_DATA_DIR": str(tmp_path / "data"), "LUCIUS_WORKSPACE_URL": url}
    with pytest.raises(UnsupportedError, match="LUCIUS_WORKSPACE_URL"):
        await build(load_settings(environ), packaged())


async def test_workers_elsewhere_may_have_a_workspace_elsewhere(tmp_path: Path) -> None:
    async with live(tmp_path / "data", workspace_url="hdfs://cluster/work") as world:
        await world.accepted()
        (directive,) = await world.pull()
    assert directive["workspace_ref"]["uri"].startswith("hdfs://cluster/work/lucius/tenant_a/")


@pytest.mark.parametrize("folder", ["elsewhere", "with space", "linked"])
async def test_a_job_runs_in_the_workspace_that_is_configured(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "doc.txt").write_text("a document")
    (tmp_path / "target").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path / "target")
    workspace = tmp_path / folder
    async with live(
        tmp_path / ".lucius", services=packaged(), workspace_url=workspace.as_uri()
    ) as world:
        job_id = await world.accepted(
            request_type="OCR->EMBEDDING",
            input_ref=(tmp_path / "doc.txt").as_uri(),
            output_ref=(tmp_path / "out.txt").as_uri(),
        )
        ended = await world.runtime.engine.ended(job_id, 600)
        assert ended is not None
        assert ended.state == "SUCCEEDED"
    promoted = workspace / "lucius/tenant_a" / job_id / "ocr/output.txt"
    assert "a document" in promoted.read_text()
    assert not (tmp_path / ".lucius/workspace").exists()


@pytest.mark.parametrize("reconciles", [True, False])
async def test_what_is_due_is_moved_here_only_where_that_is_its_part(
    reconciles: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load_settings({"LUCIUS_DATA_DIR": str(tmp_path / "data")})
    runtime = await build(settings, reconciles=reconciles)
    ran = asyncio.Event()

    async def run() -> None:
        ran.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(runtime.reconciler, "run", run)
    async with runtime.running():
        await asyncio.sleep(0)
        assert ran.is_set() is reconciles


async def test_a_reconciler_alone_takes_up_what_is_out_and_ends_when_it_is_told(
    tmp_path: Path,
) -> None:
    """Nothing is shared here, so the job is one that an earlier process has left."""
    settings = load_settings({"LUCIUS_DATA_DIR": str(tmp_path)})
    async with live(tmp_path) as world:
        job_id = await world.accepted()
        left = await world.runtime.engine.job(job_id)
    ready = asyncio.Event()
    running = asyncio.create_task(reconcile(settings, ready=ready.set))
    await asyncio.wait_for(ready.wait(), 60)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(running, 60)
    ledger = await open_ledger(settings, readonly=True)
    found = await ledger.load(job_id)
    await ledger.close()
    assert left is not None
    assert found is not None
    assert found.version > left.version
