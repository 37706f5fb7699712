"""`lucius service run`: one platform service in a process of its own, on a bus that is shared."""

import asyncio
from collections.abc import Callable

from lucius.bootstrap.adapters import check_workspace, open_bus, open_workspace
from lucius.bootstrap.ending import Ending
from lucius.bootstrap.loop_watch import LoopWatch
from lucius.bootstrap.services import check_services, runners_of
from lucius.platform import Service
from lucius.platform.isolation.forks import ForkServer
from lucius.settings import Settings
from lucius.telemetry.spans import traced


async def run_service(
    settings: Settings, service: Service, *, slots: int, ready: Callable[[], None]
) -> None:
    """Until SIGINT or SIGTERM; then running steps finish, or their leases are given back."""
    check_workspace(settings)
    check_services([service])
    bus, forks = traced(open_bus(settings)), ForkServer()
    runners = runners_of(
        service,
        bus,
        open_workspace(settings),
        topology=settings.lane_topology,
        slots=slots,
        forks=forks,
        grace=settings.drain,
    )
    stopping, signals = asyncio.Event(), Ending(settings.drain)
    watch = LoopWatch(settings.loop_blocked, lambda task: service.name, lambda block: None)
    with signals.listening(stopping.set):
        try:
            for runner in runners:
                await runner.start()
            with watch.watching():
                ready()
                await stopping.wait()
        finally:
            await asyncio.gather(*(runner.stop() for runner in runners))
            await forks.close()
            await bus.close()
        signals.leave_behind(sum(runner.left_behind for runner in runners))
