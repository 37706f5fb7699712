"""`lucius orchestrator` and `lucius reconciler`: the parts of `lucius up` as processes of their own.

They meet only in the ledger and on the bus, so both must be shared. A backend that several
processes can use needs no change here: it is not in the table of those that cannot.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from lucius.bootstrap.ending import Ending
from lucius.bootstrap.health import health_port
from lucius.bootstrap.listening import LOOPBACK
from lucius.bootstrap.runtime import build
from lucius.core.errors import LuciusError
from lucius.settings import Settings

ALONE: Final = {
    "storage_backend": {
        "sqlite": "one process writes the file",
        "memory": "it lives inside one process",
    },
    "bus_backend": {"memory": "it lives inside one process"},
}
"""Backends that no two processes can share, and why."""


class NotSharedError(LuciusError):
    """Processes of their own would not see each other's work."""


def check_shared(settings: Settings, verb: str) -> None:
    """Refuse by name what would not work, before anything is opened."""
    reasons = [
        f"LUCIUS_{name.upper()}={chosen}: {ALONE[name][chosen]}"
        for name in ALONE
        if (chosen := getattr(settings, name)) in ALONE[name]
    ]
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
    runtime = await build(settings)
    stopping = asyncio.Event()
    with Ending(settings.drain).listening(stopping.set):
        async with runtime.running(), health_port(runtime.health_app(), health_host, health):
            ready()
            await stopping.wait()
