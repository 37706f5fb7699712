"""Retention: jobs that ended long ago are deleted, and then the workspaces that no job needs."""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Final

from lucius.core.errors import LedgerRowUnreadableError, LedgerTooNewError
from lucius.core.ids import accepted_at
from lucius.core.states import TERMINAL_JOB, JobState
from lucius.platform.commit import COMMITS, REDRIVES
from lucius.ports.ledger import JobQuery, Ledger
from lucius.upkeep.effects import every_job
from lucius.upkeep.job_workspaces import JobWorkspaces, name_of

PAGE: Final = 256
PAUSE: Final = 0.01
"""Seconds between two portions."""
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
    for folder in await unneeded(ledger, workspaces, before):
        await workspaces.remove(folder)
    return deleted


async def unneeded(ledger: Ledger, workspaces: JobWorkspaces, before: datetime) -> list[str]:
    """Workspaces of jobs that are gone and that no other job works in, or has its output in.

    A redriven job works in the workspace of the job where its chain began. It says so itself from
    its acceptance on, whether or not the jobs before it have been told.
    """
    found: list[str] = []
    async for folder in workspaces.folders():
        at = accepted_at(name_of(folder))
        if at is None or at >= before or not await _is_gone(ledger, name_of(folder)):
            continue
        if not await _has_outputs_of_others(ledger, workspaces, folder):
            found.append(folder)
    if not found:
        return found
    roots = {job.plan.root async for job in every_job(ledger, JobQuery(states=LIVE))}
    return [folder for folder in found if name_of(folder) not in roots]


async def _has_outputs_of_others(ledger: Ledger, workspaces: JobWorkspaces, folder: str) -> bool:
    """Whether a job that is still there has committed something in this workspace."""
    workspace = workspaces.workspace
    names: set[str] = set()
    for part in (COMMITS, REDRIVES):
        for uri in await workspace.list(folder + part):
            with suppress(ValueError, KeyError, TypeError):
                names.add(json.loads(await workspace.read(uri) or b"")["job_id"])
    for job_id in names:
        if not await _is_gone(ledger, job_id):
            return True
    return False


async def _is_gone(ledger: Ledger, job_id: str) -> bool:
    """What cannot be read is still there."""
    try:
        return await ledger.load(job_id) is None
    except (LedgerRowUnreadableError, LedgerTooNewError):
        return False
