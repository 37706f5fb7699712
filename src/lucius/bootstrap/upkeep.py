"""Looking after stored data: verify it, prune it, restore it. None of this needs a server."""

import asyncio
import shutil
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from lucius.bootstrap.adapters import ledger_path, open_ledger
from lucius.bootstrap.effects import check_effects, every_job
from lucius.core.ids import accepted_at
from lucius.ledgers.sqlite_backup import restore
from lucius.ports.ledger import Drift, Ledger
from lucius.settings import Settings

PAGE: Final = 500


async def verify(settings: Settings) -> list[Drift]:
    """Everything that contradicts itself: in the ledger, and between workspace and ledger."""
    ledger = await open_ledger(settings, readonly=True)
    try:
        drifts = list(await ledger.verify())
        return drifts + await check_effects(ledger, list(job_folders(settings)))
    finally:
        await ledger.close()


async def prune(settings: Settings, before: datetime) -> int:
    """Delete jobs that ended before that and owe nothing, then the workspaces nobody refers to."""
    ledger = await open_ledger(settings)
    try:
        deleted = 0
        while count := await ledger.prune(before, PAGE):
            deleted += count
        await _sweep(settings, ledger, before)
        return deleted
    finally:
        await ledger.close()


async def _sweep(settings: Settings, ledger: Ledger, before: datetime) -> None:
    """A job that is gone leaves a folder; a redriven job keeps the folder of its root alive."""
    old = [folder for folder in job_folders(settings) if _older(folder.name, before)]
    if not old:
        return
    kept = {root async for job in every_job(ledger) for root in (job.job_id, job.plan.root)}
    for folder in old:
        if folder.name not in kept:
            await asyncio.to_thread(shutil.rmtree, folder)


def _older(job_id: str, before: datetime) -> bool:
    at = accepted_at(job_id)
    return at is not None and at < before


def job_folders(settings: Settings) -> Iterator[Path]:
    """`<workspace>/<system>/<tenant>/<jobId>` of a workspace of local files."""
    parts = urlsplit(settings.workspace_url)
    if parts.scheme == "file":
        root = Path(unquote(parts.path)) / settings.system
        yield from (path for path in root.glob("*/job_*") if path.is_dir())


def restore_ledger(settings: Settings, source: Path, *, force: bool) -> None:
    restore(source, ledger_path(settings), force=force)
