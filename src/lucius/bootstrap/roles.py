"""`lucius orchestrator`, `reconciler`, `invoker`, `worker`: parts of `lucius up` as processes of their own.

They meet only in the ledger and on the bus, so both must be shared.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector

from lucius.api.health import health_app
from lucius.bootstrap.building import remote_invoker, running
from lucius.bootstrap.ending import Ending
from lucius.bootstrap.health import health_port
from lucius.bootstrap.listening import LOOPBACK
from lucius.bootstrap.serve import UnsafeAddressError, is_loopback
from lucius.bootstrap.starting import Starting, entered
from lucius.bootstrap.temporal import of_temporal, place_of
from lucius.core.errors import LuciusError
from lucius.core.plan import OUTBOX, TEMPORAL
from lucius.invoker.app import invoker_app
from lucius.server.owner import this_user
from lucius.server.peers import known_here
from lucius.settings import Settings

log = logging.getLogger("lucius")
MOST_CALLERS: Final = 4096
"""Connections of workers and orchestrators to one invoker."""


class TemporalOffError(LuciusError):
    """A process of the Temporal engine, where jobs do not run on Temporal."""


class NotSharedError(LuciusError):
    """Processes of their own would not see each other's work."""


def check_shared(settings: Settings, verb: str) -> None:
    """Refuse by name what would not work, before anything is opened."""
    reasons: list[str] = []
    if not settings.shared:
        reasons.append(
            f"LUCIUS_STORAGE_BACKEND={settings.storage_backend}: {settings.ledger.alone}"
        )
    if settings.bus_backend == "memory":
        reasons.append("LUCIUS_BUS_BACKEND=memory: it lives inside one process")
    if reasons:
        raise NotSharedError(
            f"`lucius {verb}` needs a ledger and a bus that processes share.\n"
            + "\n".join(reasons)
            + "\n`lucius up` runs everything in one process."
        )


async def reconcile(
    settings: Settings,
    *,
    ready: Callable[[], None],
    health_host: str = LOOPBACK,
    health: int | None = None,
) -> None:
    """Dispatcher, sweepers and reply consumers, without the API. Until SIGINT or SIGTERM."""
    starting, stopping = Starting(), asyncio.Event()
    with Ending(settings.drain).listening(stopping.set):
        async with AsyncExitStack() as stack, health_port(starting, health_host, health):
            runtime = await entered(stack, partial(running, settings, engine=OUTBOX), stopping)
            if runtime is not None:
                starting.app = runtime.health_app()
                ready()
                await stopping.wait()


def check_temporal(settings: Settings, verb: str) -> None:
    if not settings.temporal_enabled:
        raise TemporalOffError(
            f"`lucius {verb}` serves jobs on Temporal, and LUCIUS_TEMPORAL_ENABLED is false: set it to"
            " true for the orchestrators, invokers and workers alike"
        )


def check_invoker_address(settings: Settings, host: str) -> None:
    if not settings.invoker_secret and not is_loopback(host):
        raise UnsafeAddressError(
            f"{host} can be reached from other machines, and callers need no secret: set"
            " LUCIUS_INVOKER_SECRET for invokers, workers and orchestrators, or listen on 127.0.0.1"
        )
    if not settings.invoker_secret and not known_here():
        raise UnsafeAddressError(
            "every user of this machine could call the invoker, and this system does not say whose a"
            " connection is: set LUCIUS_INVOKER_SECRET for invokers, workers and orchestrators"
        )


async def invoke(settings: Settings, *, host: str, port: int, ready: Callable[[str], None]) -> None:
    """The internal API, and all that moves jobs on Temporal but their time. Until SIGINT or SIGTERM."""
    starting, stopping = Starting(), asyncio.Event()
    secret = settings.invoker_secret.get_secret_value()
    owner = None if secret else this_user()
    served = health_port(starting, host, port, most=MOST_CALLERS, owner=owner)
    with Ending(settings.drain).listening(stopping.set):
        async with AsyncExitStack() as stack, served as bound:
            runtime = await entered(stack, partial(running, settings, engine=TEMPORAL), stopping)
            if runtime is not None:
                starting.app = invoker_app(runtime.invoker, secret, runtime.health_app().routes)
                ready(f"http://{host}:{bound}")
                await stopping.wait()


async def work(
    settings: Settings,
    *,
    ready: Callable[[], None],
    health_host: str = LOOPBACK,
    health: int | None = None,
) -> None:
    """Workflows and their activities. Until SIGINT or SIGTERM; a server that is away is waited for."""
    registry, invoker, place = CollectorRegistry(), remote_invoker(settings), place_of(settings)
    ProcessCollector(registry=registry)
    module = of_temporal("workflows")
    workflows = module.TemporalWorkflows(await module.connected(place), place)
    workflows.instruments.register(registry)
    app = health_app({"temporal": workflows.check, "invoker": invoker.check}, registry)
    stopping = asyncio.Event()
    with Ending(settings.drain).listening(stopping.set):
        async with health_port(app, health_host, health):
            keep_working = of_temporal("worker").keep_working
            working = asyncio.create_task(
                keep_working(place, invoker, workflows.instruments, workflows.check)
            )
            ready()
            await stopping.wait()
            working.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await working
    await invoker.close()
