"""`lucius service run`: one platform service in a process of its own, on a bus that is shared."""

import asyncio
import signal
from collections.abc import Callable

from lucius.bootstrap.adapters import check_workspace, open_bus, open_workspace
from lucius.bootstrap.services import runners_of
from lucius.platform import Service
from lucius.settings import Settings
from lucius.telemetry.spans import traced


async def run_service(
    settings: Settings, service: Service, *, slots: int, ready: Callable[[], None]
) -> None:
    """Until SIGINT or SIGTERM; then running steps finish, or their leases are given back."""
    check_workspace(settings)
    bus = traced(open_bus(settings))
    runners = runners_of(
        service, bus, open_workspace(settings), topology=settings.lane_topology, slots=slots
    )
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    for runner in runners:
        await runner.start()
    ready()
    try:
        await stopping.wait()
    finally:
        await asyncio.gather(*(runner.stop() for runner in runners))
        await bus.close()
