"""A runtime of the adapters that the settings name."""

import logging
import os
import stat
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from lucius.adapters.ledgers import LEDGERS
from lucius.app.adapters import (
    check_workspace,
    job_workspaces,
    open_bus,
    open_config,
    open_lanes,
    open_ledger,
    open_workspace,
    workspace_root,
)
from lucius.app.runtime import Runtime
from lucius.app.secrets import check_shared_secrets
from lucius.app.settings import Settings
from lucius.app.settings.loading import StoredSettings
from lucius.app.temporal import of_temporal, open_workflows, place_of
from lucius.core.plan import OUTBOX
from lucius.engine.temporal.invoker import Invoker
from lucius.engine.temporal.invoker_client import AskingHere, RemoteInvoker
from lucius.platform import Service
from lucius.ports.config import ConfigSource
from lucius.system.machine import PRIVATE, private_folder

# The data directory is for its owner alone: 0700, and 0600 what LUCIUS keeps in it, whatever the umask.
#
# What is made is made so. This tightens what an earlier version or somebody else has left open. A
# `keys.json` is not tightened but refused by its reader: others may have written keys into it.

log = logging.getLogger("lucius")
FILE: Final = 0o600
ADVICE: Final = "give --data (LUCIUS_DATA_DIR) a directory of its own"
OF_STACKS: Final = ("nats.key", "azurite.key", "servicebus.key", "appconfig.key", "invoker.key")
SECRETS: Final = ("callback.key", "webhook.key", "keys.json.lock", *OF_STACKS, "stack.env")
FILES: Final = [kind.file for kind in LEDGERS.values() if kind.file]
"""Of ledgers."""
MADE: Final = {*FILES, *SECRETS, "keys.json", "installation", "workspace", "demo"}
"""Names of which one at least is in a data directory that LUCIUS has used."""


def own_data(settings: Settings) -> None:
    """Make the data directory if it is missing, and close what is open in it."""
    data = settings.data_dir
    private_folder(data)
    if _is_ours(data):
        _close(data)
    else:
        log.warning("%s holds what LUCIUS did not make, so its mode stays: %s", data, ADVICE)
    _make_workspaces(settings)
    for path in _ours(settings):
        _close(path)


def _is_ours(data: Path) -> bool:
    """Empty, or with something in it that only LUCIUS makes. `/srv` is not closed for its name alone."""
    names = {path.name for path in data.iterdir()}
    return not names or not names.isdisjoint(MADE)


def _make_workspaces(settings: Settings) -> None:
    """Those of the data directory are behind its door; others get one of their own."""
    root = workspace_root(settings)
    if (
        settings.workspace_url.startswith("file:")
        and settings.data_dir.absolute() not in root.parents
    ):
        with suppress(OSError):  # services report what they cannot write
            private_folder(root / settings.system)


def _ours(settings: Settings) -> Iterator[Path]:
    data, root = settings.data_dir, workspace_root(settings)
    for name in FILES:
        yield from data.glob(f"{name}*")
    yield from (data / name for name in SECRETS)
    if data.absolute() in root.parents:
        yield root
    yield root / settings.system


def _close(path: Path) -> None:
    """A directory that many share (`/tmp`) stays as it is: it is not ours."""
    try:
        found = path.lstat()
        folder = stat.S_ISDIR(found.st_mode)
        if not (folder or stat.S_ISREG(found.st_mode)) or found.st_mode & stat.S_ISVTX:
            return
        mode = stat.S_IMODE(found.st_mode)
        closed = mode & (PRIVATE if folder else FILE)
        if closed != mode:
            os.chmod(path, closed)
            log.warning("%s was open to other users: its mode was %o and is %o", path, mode, closed)
    except FileNotFoundError:
        return
    except OSError as error:
        log.warning("%s is open to other users and cannot be closed: %s", path, error.strerror)


async def build(
    settings: Settings,
    services: Sequence[Service] = (),
    *,
    apart: Sequence[str] | None = None,
    reconciles: bool = True,
    engine: str | None = None,
) -> Runtime:
    """A runtime of the adapters that the settings name. `engine`: whose jobs it moves; None: of all.

    `apart`: the names of the services, which then run in a process of their own.
    """
    if services:
        check_workspace(settings)
    stored = StoredSettings(settings)
    config = await open_config(settings, stored)
    try:
        return await _built(settings, services, apart, config, stored, reconciles, engine)
    except BaseException:
        await config.close()
        raise


async def _built(
    settings: Settings,
    services: Sequence[Service],
    apart: Sequence[str] | None,
    config: ConfigSource,
    stored: StoredSettings,
    reconciles: bool,
    engine: str | None,
) -> Runtime:
    check_shared_secrets(settings)
    bus = open_bus(settings)
    own_data(settings)
    workspace = open_workspace(settings)
    async with AsyncExitStack() as if_it_fails:
        if_it_fails.push_async_callback(bus.close)
        if_it_fails.push_async_callback(workspace.close)
        await job_workspaces(settings, workspace).claim()
        workflows = await open_workflows(settings) if with_workflows(settings, engine) else None
        ledger = await open_ledger(settings)
        both = engine is None and reconciles and workflows is not None
        runtime = Runtime(
            settings=settings,
            ledger=ledger,
            lanes=open_lanes(
                settings, ledger, takes=reconciles, engine=None if both else engine or OUTBOX
            ),
            engine_name=engine if settings.temporal_enabled else None,
            workflows=workflows,
            remote_invoker=remote_invoker(settings) if workflows and not reconciles else None,
            worker=partial(work, settings, workflows) if both else None,
            bus=bus,
            config=config,
            in_force=stored.in_force,
            workspace=workspace,
            services=services,
            apart=apart,
            reconciles=reconciles,
        )
        if_it_fails.pop_all()
    return runtime


@asynccontextmanager
async def running(settings: Settings, **how: Any) -> AsyncIterator[Runtime]:
    """Built and started."""
    runtime = await build(settings, **how)
    async with runtime.running():
        yield runtime


def with_workflows(settings: Settings, engine: str | None) -> bool:
    """A reconciler of the outbox engine has nothing to do with them."""
    return settings.temporal_enabled and engine != OUTBOX


def remote_invoker(settings: Settings) -> RemoteInvoker:
    return RemoteInvoker(settings.invoker_url, settings.invoker_secret.get_secret_value())


async def work(settings: Settings, workflows: Any, invoker: Invoker) -> None:
    """The worker, in the process of the invoker."""
    keep_working, asking = of_temporal("worker").keep_working, AskingHere(invoker)
    await keep_working(place_of(settings), asking, workflows.instruments, workflows.check)
