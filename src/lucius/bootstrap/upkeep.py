"""Looking after stored data without a server: what the settings name is opened, and closed again."""

from datetime import datetime
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from lucius.bootstrap.adapters.ledgers import ledger_path, open_ledger
from lucius.bootstrap.adapters.workspaces import job_workspaces, open_workspace
from lucius.bootstrap.temporal import open_workflows
from lucius.core.errors import LedgerError, WorkspaceError
from lucius.engines.temporal.drift import WorkflowDrift
from lucius.ledgers.sqlite.backup import restore
from lucius.ports.ledger import Drift
from lucius.ports.workspace import NOTES
from lucius.settings import Settings
from lucius.upkeep import retention
from lucius.upkeep.effects import check_effects, unrestored

NOTES_OF_A_JOB: Final = frozenset(NOTES)


async def verify(settings: Settings) -> list[Drift]:
    """Everything that contradicts itself: in the ledger, and between workspace and ledger."""
    ledger = await open_ledger(settings, readonly=True)
    try:
        drifts = list(await ledger.verify())
        workspaces = job_workspaces(settings, open_workspace(settings), readonly=True)
        return drifts + unrestored(workspaces) + await check_effects(ledger, workspaces)
    finally:
        await ledger.close()


async def verify_against_temporal(settings: Settings) -> list[Drift]:
    """Where the ledger and Temporal contradict each other."""
    workflows = await open_workflows(settings)
    ledger = await open_ledger(settings, readonly=True)
    try:
        return await WorkflowDrift(workflows, ledger).found()
    finally:
        await ledger.close()


async def prune(settings: Settings, before: datetime) -> int:
    """Delete jobs that ended before that and owe nothing, then the workspaces nobody needs."""
    ledger = await open_ledger(settings)
    try:
        workspaces = job_workspaces(settings, open_workspace(settings))
        return await retention.prune(ledger, workspaces, before)
    finally:
        await ledger.close()


async def prunable(settings: Settings, before: datetime) -> int:
    """How many jobs `prune` would delete; the server may be running."""
    ledger = await open_ledger(settings, readonly=True)
    try:
        return await ledger.prunable(before)
    finally:
        await ledger.close()


async def job_outputs(
    settings: Settings, workspace_ref: str, to: Path | None
) -> list[tuple[str, int]]:
    """Names and sizes of what the steps of a job have put into its workspace; copied to a folder if named."""
    root = workspace_ref.rstrip("/") + "/"
    opened = open_workspace(settings, restores=False)
    try:
        workspace, found = opened.within(root), list[tuple[str, int]]()
        for uri in await workspace.list(root):
            name = unquote(uri[len(root) :])
            data = await workspace.read(uri) if _is_output(name) else None
            if data is None:
                continue
            found.append((name, len(data)))
            if to is not None:
                _copy(data, to, name)
        return found
    finally:
        await opened.close()


def _copy(data: bytes, to: Path, name: str) -> None:
    target = to / name
    if not target.resolve().is_relative_to(to.resolve()):
        raise WorkspaceError(f"{name!r} leads out of {to}")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)


def _is_output(name: str) -> bool:
    """Not a note, and nothing that an attempt has only staged: that lies below the attempt's number."""
    folders = name.split("/")[:-1]
    return NOTES_OF_A_JOB.isdisjoint(folders) and not any(each.isdigit() for each in folders[1:2])


def restore_ledger(settings: Settings, source: Path, *, force: bool) -> None:
    path = ledger_path(settings)
    if path is None:
        raise LedgerError(
            f"LUCIUS_STORAGE_BACKEND={settings.storage_backend} is no file: use the backups of its service"
        )
    restore(source, path, force=force)
