"""Looking after stored data: verify it, prune it, restore it. None of this needs a server."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from lucius.bootstrap.adapters import ledger_path, open_ledger
from lucius.core.ids import accepted_at
from lucius.core.job import Job
from lucius.ledgers.sqlite_backup import restore
from lucius.platform.commit import COMMITS, CommitRecord
from lucius.ports.ledger import Drift, JobQuery, Ledger
from lucius.settings import Settings

PAGE: Final = 500


async def verify(settings: Settings) -> list[Drift]:
    """Everything that contradicts itself: in the ledger, and between workspace and ledger."""
    ledger = await open_ledger(settings, readonly=True)
    try:
        drifts = list(await ledger.verify())
        for folder in job_folders(settings):
            drifts += [drift async for drift in _orphans(ledger, folder)]
        return drifts
    finally:
        await ledger.close()


async def _orphans(ledger: Ledger, folder: Path) -> AsyncIterator[Drift]:
    """An effect without its job."""
    for path in sorted((folder / COMMITS).glob("*.json")):
        try:
            record = CommitRecord.decoded(path.read_bytes())
        except (ValueError, KeyError, TypeError) as error:
            yield Drift("commit_record_corrupt", str(path), str(error))
            continue
        if await ledger.load(record.job_id) is None and await ledger.load(folder.name) is None:
            yield Drift("effect_without_job", str(path), f"there is no job {record.job_id}")


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


async def every_job(ledger: Ledger) -> AsyncIterator[Job]:
    cursor: str | None = None
    while True:
        page = await ledger.list(JobQuery(limit=PAGE, cursor=cursor))
        for job in page.jobs:
            yield job
        cursor = page.next_cursor
        if cursor is None:
            return


def job_folders(settings: Settings) -> Iterator[Path]:
    """`<workspace>/<system>/<tenant>/<jobId>` of a workspace of local files."""
    parts = urlsplit(settings.workspace_url)
    if parts.scheme == "file":
        root = Path(unquote(parts.path)) / settings.system
        yield from (path for path in root.glob("*/job_*") if path.is_dir())


def restore_ledger(settings: Settings, source: Path, *, force: bool) -> None:
    restore(source, ledger_path(settings), force=force)
