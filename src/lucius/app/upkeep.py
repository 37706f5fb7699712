"""Looking after stored data without a server: what the settings name is opened, and closed again."""

import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from lucius.adapters.ledgers.sqlite.backup import restore
from lucius.app.adapters import (
    job_workspaces,
    ledger_path,
    open_ledger,
    open_workspace,
    stored_settings,
)
from lucius.app.settings import Settings, load_settings
from lucius.app.settings.loading import check_stored
from lucius.app.temporal import open_workflows
from lucius.core.errors import LedgerError, WorkspaceError
from lucius.engine.temporal.drift import WorkflowDrift
from lucius.operations import retention
from lucius.operations.retention import check_effects, unrestored
from lucius.ports.ledger import Drift
from lucius.ports.workspace import RECORD_FOLDERS

# Settings of a process whose environment names an App Configuration: what is stored there counts too.

WHERE: Final = ("LUCIUS_APPCONFIG_CONNECTION", "LUCIUS_SYSTEM")
"""What the settings that say where to look, and for which label, begin with: files may hold them too."""


async def settings_with_stored(
    options: Mapping[str, str], environ: Mapping[str, str] | None = None
) -> Settings:
    """Raises SettingsError, and ConfigUnavailableError where App Configuration does not answer."""
    environ = os.environ if environ is None else environ
    given = {**environ, **options}
    named = load_settings({name: given[name] for name in given if name.startswith(WHERE)})
    connection = named.appconfig_connection.get_secret_value()
    stored = await stored_settings(connection, named.system)
    check_stored(stored)
    return load_settings(environ, options=options, stored=stored)


JOB_RECORD_FOLDERS: Final = frozenset(RECORD_FOLDERS)


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
    """Names and sizes of what the steps of a job have put into its workspace; copied to a folder if named.

    WorkspaceError: these settings are not those of the server. A wrong folder would look empty.
    """
    root, home = workspace_ref.rstrip("/") + "/", settings.workspace_url.rstrip("/") + "/"
    if not root.startswith(home):
        raise WorkspaceError(
            f"the job's workspace is {root}, and the workspaces of these settings are in {home}: name the"
            " data directory of the server with --data, or set LUCIUS_WORKSPACE_URL as it has it"
        )
    opened = open_workspace(settings, restores=False)
    try:
        workspace, found = opened.within(root), list[tuple[str, int]]()
        for uri in await workspace.list(root):
            name = unquote(uri[len(root) :])
            size = await workspace.size(uri) if _is_output(name) else None
            if size is None:
                continue
            found.append((name, size))
            if to is not None:
                _copy(await workspace.read(uri) or b"", to, name)
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
    return JOB_RECORD_FOLDERS.isdisjoint(folders) and not any(
        each.isdigit() for each in folders[1:2]
    )


def restore_ledger(settings: Settings, source: Path, *, force: bool) -> None:
    path = ledger_path(settings)
    if path is None:
        raise LedgerError(
            f"LUCIUS_STORAGE_BACKEND={settings.storage_backend} is no file: use the backups of its service"
        )
    restore(source, path, force=force)
