"""`lucius service run`: one platform service in a process of its own, on a bus that is shared."""

import asyncio
from collections.abc import Callable

from prometheus_client import CollectorRegistry, ProcessCollector

from lucius.api.health import health_app
from lucius.bootstrap.adapters import check_workspace, open_bus, open_workspace
from lucius.bootstrap.ending import Ending
from lucius.bootstrap.health import health_port
from lucius.bootstrap.listening import LOOPBACK
from lucius.bootstrap.loop_watch import LoopWatch
from lucius.bootstrap.services import check_services, runners_of
from lucius.platform import Service
from lucius.platform.isolation.forks import ForkServer
from lucius.platform.records import WorkspaceRecords
from lucius.settings import Settings
from lucius.telemetry.spans import traced


async def run_service(
    settings: Settings,
    service: Service,
    *,
    slots: int,
    pool: str | None = None,
    ready: Callable[[], None],
    health_host: str = LOOPBACK,
    health: int | None = None,
) -> None:
    """Until SIGINT or SIGTERM; then running steps finish, or their leases are given back."""
    check_workspace(settings)
    check_services([service])
    bus, forks, workspace = traced(open_bus(settings)), ForkServer(), open_workspace(settings)
    runners = runners_of(
        service,
        bus,
        workspace,
        topology=settings.lane_topology,
        topologies=settings.topologies(),
        slots=slots,
        pool=pool,
        forks=forks,
        grace=settings.drain,
        records=WorkspaceRecords(workspace),
    )
    stopping, signals = asyncio.Event(), Ending(settings.drain)
    watch = LoopWatch(settings.loop_blocked, lambda task: service.name, lambda block: None)
    with signals.listening(stopping.set):
        try:
            for runner in runners:
                await runner.start()
            registry = CollectorRegistry()
            ProcessCollector(registry=registry)
            app = health_app({}, registry)
            async with health_port(app, health_host, health):
                with watch.watching():
                    ready()
                    await stopping.wait()
        finally:
            await asyncio.gather(*(runner.stop() for runner in runners))
            await forks.close()
            await bus.close()
        signals.leave_behind(sum(runner.left_behind for runner in runners))
