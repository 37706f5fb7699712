"""`lucius service run`: one platform service in a process of its own, on a shared bus or a pull gateway."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, ProcessCollector

from lucius.app.adapters import check_workspace, open_bus, open_records, open_workspace
from lucius.app.health import health_app, health_port
from lucius.app.lifecycle import LOOPBACK, Ending, say_stopping
from lucius.app.loop_watch import LoopWatch
from lucius.app.services import check_services, runners_of
from lucius.app.settings import Settings
from lucius.app.starting import Starting, entered, look_at_server, look_at_settings
from lucius.contract.words import without_credentials
from lucius.core.errors import BusUnavailableError
from lucius.core.plan import Mode
from lucius.operations.retention import OWNER
from lucius.platform import Service, ServiceRunner
from lucius.platform.bodies import ServiceInstruments
from lucius.platform.chaos import Chaos
from lucius.platform.isolation.forks import ForkServer
from lucius.platform.messages import BusReplies, Replies, uri_of
from lucius.platform.records import Records, WorkspaceRecords
from lucius.platform.runner import StandbyHeartbeats, new_worker_id
from lucius.platform.service import DependencyCheck, slots_of
from lucius.ports.bus import Bus
from lucius.ports.workspace import Workspace
from lucius.system.spans import traced

if TYPE_CHECKING:
    from lucius.client.plain import PlainClient

log = logging.getLogger("lucius")


@dataclass(frozen=True, slots=True)
class Running:
    """What a process of a service runs. `refused`: why it can never work, once that is known."""

    bus: Bus
    runners: list[ServiceRunner]
    refused: "asyncio.Future[None]"


async def run_service(
    settings: Settings,
    service: Service,
    *,
    slots: int,
    ready: Callable[[], None],
    health_host: str = LOOPBACK,
    health: int | None = None,
    mode: Mode | None = None,
    pool: str | None = None,
    gateway: "Callable[[], PlainClient] | None" = None,
    chaos: Chaos | None = None,
) -> None:
    """Until SIGINT or SIGTERM; then running steps finish, or their leases are given back.

    It works for the server of `gateway`, which opens a client, or else for the bus of the settings.
    """
    check_workspace(settings)
    check_services([service])
    forks, workspace = ForkServer(), open_workspace(settings)
    counts = ServiceInstruments()
    stopping, signals = asyncio.Event(), Ending(settings.drain)
    client = gateway() if gateway is not None else None
    runners: list[ServiceRunner] = []
    standby = StandbyHeartbeats(runners, partial(_other_replies, settings, service, gateway))
    watch = LoopWatch(lambda task: service.name, lambda block: None, standby.send_due)

    def stop() -> None:
        say_stopping(sum(runner.health().running for runner in runners), settings.drain)
        stopping.set()

    starting = Starting()
    async with AsyncExitStack() as stack:
        stack.enter_context(signals.listening(stop))
        stack.push_async_callback(workspace.close)
        port = await stack.enter_async_context(AsyncExitStack())
        await port.enter_async_context(health_port(starting, health_host, health))
        records = await entered(stack, partial(open_records, settings, workspace), stopping)
        if records is None:
            return
        if client is not None:
            found = over_gateway(
                settings, service, client, workspace, forks, slots, chaos, counts, records
            )
        else:
            found = over_bus(
                settings, service, workspace, forks, slots, mode, pool, chaos, counts, records
            )
        runners += found.runners
        looking = asyncio.create_task(_look(settings, service, client))
        try:
            for runner in found.runners:
                await runner.start()
            registry = CollectorRegistry()
            ProcessCollector(registry=registry)
            counts.register(registry)

            async def measure(said: Mapping[str, bool]) -> None:
                counts.slots.show(slots_now(service, found.runners))

            checks = checks_of(service, found.runners, workspace, settings, client)
            starting.app = health_app(checks, registry, measure)
            with watch.watching():
                _say_ready(service, found.runners)
                ready()
                await _until(stopping, found.refused)
        finally:
            await port.aclose()
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
            await asyncio.gather(*(runner.stop() for runner in found.runners))
            await forks.close()
            await found.bus.close()
        signals.leave_behind(sum(runner.left_behind for runner in found.runners))


def _say_ready(service: Service, runners: Sequence[ServiceRunner]) -> None:
    """For whoever started it in a terminal, where it would otherwise say nothing until it is stopped."""
    slots = sum(runner.health().free_slots for runner in runners)
    steps = "1 step" if slots == 1 else f"{slots} steps"
    log.info("%s takes %s, %s at once", service.name, ", ".join(service.step_types), steps)


def checks_of(
    service: Service,
    runners: Sequence[ServiceRunner],
    workspace: Workspace,
    settings: Settings,
    gateway: "PlainClient | None" = None,
) -> dict[str, DependencyCheck]:
    """What the process needs: its bus or gateway, the workspaces, and what the service itself names.

    A gateway is asked: a worker whose slots are busy pulls nothing, and would not notice that it is away.
    """

    async def bus() -> None:
        if gateway is not None:
            await gateway.reply(service.name, [])
        for runner in runners:
            if (outage := runner.health().outage) is not None:
                raise BusUnavailableError(outage)

    async def workspaces() -> None:
        await workspace.read(f"{settings.workspace_url.rstrip('/')}/{settings.system}/{OWNER}")

    own = {f"service {name}": check for name, check in service.checks().items()}
    needed = "bus" if gateway is None else "gateway"
    return {needed: bus, **({"workspace": workspaces} if service.commit else {}), **own}


def slots_now(service: Service, runners: Sequence[ServiceRunner]) -> dict[tuple[str, ...], float]:
    found = [runner.health() for runner in runners]
    return {
        (service.name, "busy"): sum(each.running for each in found),
        (service.name, "free"): sum(each.free_slots for each in found),
    }


@asynccontextmanager
async def _other_replies(
    settings: Settings, service: Service, gateway: "Callable[[], PlainClient] | None"
) -> AsyncIterator[Replies]:
    """A way for replies on the running loop, whichever that is."""
    if gateway is None:
        bus = open_bus(settings)
        try:
            yield BusReplies(bus)
        finally:
            await bus.close()
    else:
        from lucius.adapters.buses.pull_gateway import BatchedReplies

        async with gateway() as client:
            yield BatchedReplies(client, service.name, lambda lease: None)


async def _look(settings: Settings, service: Service, gateway: "PlainClient | None") -> None:
    """Whether a protocol names what it does, beside its start."""
    if gateway is None:
        await look_at_settings(settings, service)
    else:
        await look_at_server(gateway, service)


async def _until(stopping: asyncio.Event, refused: "asyncio.Future[None]") -> None:
    waiting = asyncio.ensure_future(stopping.wait())
    await asyncio.wait((waiting, refused), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if refused.done():
        refused.result()


def over_bus(
    settings: Settings,
    service: Service,
    workspace: Workspace,
    forks: ForkServer,
    slots: int,
    mode: Mode | None,
    pool: str | None,
    chaos: Chaos | None,
    instruments: ServiceInstruments | None = None,
    records: Records | None = None,
) -> Running:
    bus = traced(open_bus(settings))
    runners = runners_of(
        service,
        bus,
        workspace,
        topology=settings.lane_topology,
        topologies=settings.topologies(),
        slots=slots,
        forks=forks,
        grace=settings.drain,
        records=records,
        mode=mode,
        pool=pool,
        chaos=chaos,
        instruments=instruments,
    )
    return Running(bus, runners, asyncio.get_running_loop().create_future())


def over_gateway(
    settings: Settings,
    service: Service,
    gateway: "PlainClient",
    workspace: Workspace,
    forks: ForkServer,
    slots: int,
    chaos: Chaos | None,
    instruments: ServiceInstruments | None = None,
    records: Records | None = None,
) -> Running:
    """The gateway knows lanes and modes; a worker pulls whatever its service is sent."""
    from lucius.adapters.buses.pull_gateway import BatchedReplies, GatewayRefusedError, PullBus

    refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def refuse(error: GatewayRefusedError) -> None:
        if not refused.done():
            refused.set_exception(error)

    def usable(directive: Mapping[str, Any]) -> str | None:
        return unreachable(directive, workspace, settings) if service.commit else None

    slots, name = slots_of(service, slots), new_worker_id(service)
    worker = {"worker_id": name, "slots": slots, "version": service.version}
    bus = PullBus(gateway, service.name, worker=worker, usable=usable, refused=refuse)
    runner = ServiceRunner(
        service,
        bus,
        workspace,
        slots=slots,
        worker_id=name,
        forks=forks,
        grace=settings.drain,
        records=records or WorkspaceRecords(workspace),
        replies=BatchedReplies(gateway, service.name, lambda lease: runner.end_lease(lease)),
        chaos=chaos,
        instruments=instruments,
    )
    return Running(bus, [runner], refused)


def unreachable(
    directive: Mapping[str, Any], workspace: Workspace, settings: Settings
) -> str | None:
    """Why a worker cannot write where the server keeps the work of its jobs; None if it can."""
    named = uri_of(directive.get("workspace_ref"))
    if named is None or workspace.writable(named):
        return None
    here = without_credentials(settings.workspace_url)
    return (
        f"the server keeps this job's workspace at {named}, and this worker writes below {here}: give it"
        " the same LUCIUS_WORKSPACE_URL, or the server's data directory with --data if it runs"
        " on this machine"
    )
