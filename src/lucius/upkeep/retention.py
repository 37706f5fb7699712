"""Retention: jobs that ended long ago are deleted, and then the workspaces that no job needs."""

import asyncio
import json
import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Final

from lucius.core.errors import LedgerRowUnreadableError, LedgerTooNewError, WorkspaceError
from lucius.core.ids import accepted_at
from lucius.core.states import TERMINAL_JOB, JobState
from lucius.platform.commit import COMMITS, REDRIVES
from lucius.ports.ledger import JobQuery, Ledger
from lucius.upkeep.effects import every_job
from lucius.upkeep.job_workspaces import JobWorkspaces, name_of

log = logging.getLogger("lucius")
PAGE: Final = 256
PAUSE: Final = 0.01
"""Seconds between two portions."""
AT_ONCE: Final = 64
"""Workspaces that are looked at, or removed, together: a local one commits their records together too."""
LIVE: Final = tuple(state for state in JobState if state not in TERMINAL_JOB)


async def prune(
    ledger: Ledger,
    workspaces: JobWorkspaces,
    before: datetime,
    *,
    forget: Callable[[], None] = lambda: None,
) -> int:
    """Delete jobs that ended before that and owe nothing, then the workspaces that nobody needs.

    In short transactions with pauses, so that the ledger may be in use. `forget`: called once the
    jobs are gone, so that nobody begins anything from a copy. Returns how many jobs were deleted.
    """
    await workspaces.claim()
    page = await ledger.prune(before, PAGE)
    deleted = page.deleted
    while page.cursor is not None:
        await asyncio.sleep(PAUSE)
        page = await ledger.prune(before, PAGE, page.cursor)
        deleted += page.deleted
    if deleted:
        forget()
    unused = await unneeded(ledger, workspaces, before)
    for start in range(0, len(unused), AT_ONCE):
        portion = unused[start : start + AT_ONCE]
        await asyncio.gather(*(workspaces.remove(folder) for folder in portion))
    return deleted


async def unneeded(ledger: Ledger, workspaces: JobWorkspaces, before: datetime) -> list[str]:
    """Workspaces of jobs that are gone and that no other job works in, or has its output in.

    A redriven job works in the workspace of the job where its chain began. It says so itself from
    its acceptance on, whether or not the jobs before it have been told.
    """
    found: list[str] = []
    old: list[str] = []
    async for folder in workspaces.folders():
        at = accepted_at(name_of(folder))
        if at is not None and at < before:
            old.append(folder)
    for start in range(0, len(old), AT_ONCE):
        portion = old[start : start + AT_ONCE]
        used = await asyncio.gather(*(_is_used(ledger, workspaces, each) for each in portion))
        found += [each for each, is_used in zip(portion, used, strict=True) if is_used is False]
        if used.count(None) == len(used):
            break  # the storage is away
    if not found:
        return found
    roots = {job.plan.root async for job in every_job(ledger, JobQuery(states=LIVE))}
    return [folder for folder in found if name_of(folder) not in roots]


async def _is_used(ledger: Ledger, workspaces: JobWorkspaces, folder: str) -> bool | None:
    """Whether its job, or another one that has committed something in this workspace, is still there.

    None: it cannot be looked at, which keeps no other from being removed.
    """
    try:
        return await _has_a_job(ledger, workspaces, folder)
    except WorkspaceError as error:
        log.warning("the workspace %s is looked at later: %s", folder, error)
        return None


async def _has_a_job(ledger: Ledger, workspaces: JobWorkspaces, folder: str) -> bool:
    if not await _is_gone(ledger, name_of(folder)):
        return True
    workspace = workspaces.workspace
    names: set[str] = set()
    for part in (COMMITS, REDRIVES):
        for uri in await workspace.list(folder + part):
            with suppress(ValueError, KeyError, TypeError):
                names.add(json.loads(await workspace.read(uri) or b"")["job_id"])
    for job_id in names - {name_of(folder)}:
        if not await _is_gone(ledger, job_id):
            return True
    return False


async def _is_gone(ledger: Ledger, job_id: str) -> bool:
    """What cannot be read is still there."""
    try:
        return await ledger.load(job_id) is None
    except (LedgerRowUnreadableError, LedgerTooNewError):
        return False
