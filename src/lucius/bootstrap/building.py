"""A runtime of the adapters that the settings name."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

from lucius.bootstrap.adapters.buses import open_bus
from lucius.bootstrap.adapters.configs import open_config
from lucius.bootstrap.adapters.ledgers import open_lanes, open_ledger
from lucius.bootstrap.adapters.workspaces import check_workspace, job_workspaces, open_workspace
from lucius.bootstrap.private_files import own_data
from lucius.bootstrap.runtime import Runtime
from lucius.bootstrap.secrets import check_shared_secrets
from lucius.bootstrap.temporal import of_temporal, open_workflows, place_of
from lucius.core.plan import OUTBOX
from lucius.engines.temporal.asking import AskingHere
from lucius.engines.temporal.invoker import Invoker
from lucius.engines.temporal.remote import RemoteInvoker
from lucius.platform import Service
from lucius.ports.config import ConfigSource
from lucius.settings import Settings
from lucius.settings.stored import StoredSettings


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
