"""`lucius service run`: one platform service in a process of its own, on a bus that is shared."""

import asyncio
import signal
from collections.abc import Callable

from lucius.bootstrap.adapters import open_bus, open_workspace
from lucius.core.routing import every_directive_topic
from lucius.platform import Service, ServiceRunner
from lucius.settings import Settings
from lucius.telemetry.spans import traced


async def run_service(
    settings: Settings, service: Service, *, slots: int, ready: Callable[[], None]
) -> None:
    """Until SIGINT or SIGTERM; then running steps finish, or their leases are given back."""
    bus = traced(open_bus(settings))
    topics = every_directive_topic()
    runner = ServiceRunner(service, bus, open_workspace(settings), slots=slots, topics=topics)
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    await runner.start()
    ready()
    try:
        await stopping.wait()
    finally:
        await runner.stop()
        await bus.close()
