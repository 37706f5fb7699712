"""What a runtime is built from: settings are obeyed, and what is not built yet is refused."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from lucius.bootstrap import build
from lucius.bootstrap.adapters import UnsupportedError
from lucius.settings import load_settings


@pytest.mark.parametrize(
    "environ",
    [
        {"LUCIUS_TEMPORAL_ENABLED": "true"},
        {"LUCIUS_BUS_BACKEND": "nats"},
    ],
    ids=lambda environ: next(iter(environ)),
)
async def test_what_is_not_built_yet_is_refused_by_name(
    environ: dict[str, str], tmp_path: Path
) -> None:
    settings = load_settings({"LUCIUS_DATA_DIR": str(tmp_path / "data"), **environ})
    with pytest.raises(UnsupportedError, match=next(iter(environ))):
        await build(settings)


async def test_the_reconciler_looks_at_what_is_due_as_often_as_it_is_told(tmp_path: Path) -> None:
    environ = {"LUCIUS_DATA_DIR": str(tmp_path / "data"), "LUCIUS_OUTBOX_RETRY_INTERVAL": "0.5"}
    runtime = await build(load_settings(environ))
    assert runtime.reconciler._pause() == timedelta(seconds=0.5).total_seconds()
    await runtime.webhooks.close()
    await runtime.ledger.close()


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
