"""Looking after stored data: verify it, prune it, restore it. None of this needs a server."""

import asyncio
import shutil
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from lucius.bootstrap.adapters import ledger_path, open_ledger
from lucius.core.errors import LedgerRowUnreadableError, LedgerTooNewError
from lucius.core.ids import accepted_at
from lucius.ledgers.sqlite.backup import restore
from lucius.ports.ledger import Drift, Ledger
from lucius.settings import Settings
from lucius.upkeep.effects import check_effects

PAGE: Final = 256
PAUSE: Final = 0.01
"""Seconds between two portions."""


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
        return await prune_open(settings, ledger, before)
    finally:
        await ledger.close()


async def prunable(settings: Settings, before: datetime) -> int:
    """How many jobs `prune` would delete; the server may be running."""
    ledger = await open_ledger(settings, readonly=True)
    try:
        return await ledger.prunable(before)
    finally:
        await ledger.close()


async def prune_open(settings: Settings, ledger: Ledger, before: datetime) -> int:
    """The same on a ledger that is in use: in short transactions, with pauses in between."""
    page = await ledger.prune(before, PAGE)
    deleted = page.deleted
    while page.cursor is not None:
        await asyncio.sleep(PAUSE)
        page = await ledger.prune(before, PAGE, page.cursor)
        deleted += page.deleted
    for folder in await asyncio.to_thread(_older, settings, before):
        if await _is_gone(ledger, folder.name):
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
    return deleted


async def _is_gone(ledger: Ledger, job_id: str) -> bool:
    try:
        return await ledger.load(job_id) is None
    except (LedgerRowUnreadableError, LedgerTooNewError):
        return False


def _older(settings: Settings, before: datetime) -> list[Path]:
    """Folders of jobs that were accepted before: those of later ones are in use, or soon will be."""
    folders = ((folder, accepted_at(folder.name)) for folder in job_folders(settings))
    return [folder for folder, at in folders if at is not None and at < before]


def job_folders(settings: Settings) -> Iterator[Path]:
    """`<workspace>/<system>/<tenant>/<jobId>` of a workspace of local files."""
    parts = urlsplit(settings.workspace_url)
    if parts.scheme == "file":
        root = Path(unquote(parts.path)) / settings.system
        yield from (path for path in root.glob("*/job_*") if path.is_dir())


def restore_ledger(settings: Settings, source: Path, *, force: bool) -> None:
    restore(source, ledger_path(settings), force=force)
