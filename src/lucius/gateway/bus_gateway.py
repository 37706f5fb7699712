"""The pull gateway: directives for workers that speak only HTTP, settled as they are handed out."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Protocol

from lucius.core.errors import LockLostError, RequestError
from lucius.core.routing import TOPOLOGIES, every_directive_topic, subscriptions_of
from lucius.gateway.turns import AT_ONCE, Tenants, Turns, give_back
from lucius.ports.bus import Bus, Delivery, Property, Subscription
from lucius.ports.config import Catalog, ConfigSource

SOON: Final = timedelta(seconds=0.25)
"""How long a pull waits for what was released for it, though it has some directives already."""

Gone = Callable[[], Awaitable[object]]
"""Returns when the worker that pulls has gone away."""


class Backlog(Protocol):
    """What is held back, where this process holds it."""

    def began(self, service: str, tenants: Tenants) -> None:
        """A worker pulls."""

    def ended(self, service: str, tenants: Tenants, *, spare: bool) -> None:
        """It pulls no more; `spare`: it could have taken more than it got."""

    async def release(self, service: str, room: int, tenants: Tenants) -> int:
        """A worker has room for so many more. The answer says how many are on their way to the bus."""

    def handed_out(self, lease_id: str, seconds: float, *, spare: bool) -> None:
        """A worker has got it, and has so many seconds to acknowledge it."""


class Elsewhere:
    """Other processes hold the backlog, and the gateway cannot tell them anything."""

    def began(self, service: str, tenants: Tenants) -> None: ...

    def ended(self, service: str, tenants: Tenants, *, spare: bool) -> None: ...

    async def release(self, service: str, room: int, tenants: Tenants) -> int:
        return 0

    def handed_out(self, lease_id: str, seconds: float, *, spare: bool) -> None: ...


class BusGateway:
    """The ACK clock is the visibility timeout: what a worker loses is dispatched again by the ledger."""

    def __init__(
        self,
        bus: Bus,
        config: ConfigSource,
        *,
        topology: str = "shared",
        topologies: Sequence[str] = TOPOLOGIES,
        backlog: Backlog | None = None,
    ) -> None:
        self._bus = bus
        self._config = config
        self._backlog: Backlog = backlog if backlog is not None else Elsewhere()
        self._topology = topology
        self._turns: dict[str, Turns] = {}
        self._topics = every_directive_topic(topologies=topologies)
        self._ensured: dict[str, tuple[str, ...]] = {}
        self._catalog: Catalog | None = None
        self._closing = asyncio.Event()

    async def prepare(self) -> None:
        """Every service of the protocols gets its subscription, so that nothing is published to nobody."""
        catalog = self._config.catalog()
        if catalog is self._catalog:
            return
        for service, step_types in services_of(catalog).items():
            await self._ensure(service, step_types)
        self._catalog = catalog

    async def _ensure(self, service: str, named: tuple[str, ...]) -> None:
        """A subscription only widens: jobs that are under way keep the step types of their protocol."""
        ensured = self._ensured.get(service, ())
        step_types = tuple(sorted({*ensured, *named}))
        if step_types == ensured:
            return
        names = subscriptions_of(service, self._topology)
        for name, mode in names:
            filters: dict[str, tuple[Property, ...]] = {"step_type": step_types}
            if mode is not None:
                filters["mode"] = (mode.value,)
            await self._bus.ensure([Subscription(topic, name, filters) for topic in self._topics])
        self._turns[service] = Turns(self._bus, [name for name, _ in names], self._topics)
        self._ensured[service] = step_types

    def knows(self, service: str) -> bool:
        return service in self._ensured or service in services_of(self._config.catalog())

    def close(self) -> None:
        """The process is about to end: whoever waits for directives is answered with none."""
        self._closing.set()

    async def pull(
        self,
        service: str,
        limit: int,
        wait_seconds: float,
        tenants: Tenants,
        gone: Gone,
        may: Callable[[], bool] = lambda: True,
    ) -> Sequence[Mapping[str, Any]]:
        """`may` is asked last of all: whether the worker may have them still."""
        await self.prepare()
        if service not in self._ensured:
            raise RequestError(
                "SERVICE_NOT_FOUND", f"no protocol names the service {service[:128]!r}"
            )
        if self._closing.is_set():
            return ()
        if tenants is not None and not self._bus.by_tenant:
            raise no_pool(service, tenants)
        found: list[Delivery] = []
        self._backlog.began(service, tenants)
        try:
            await self._fill(found, service, limit, wait_seconds, tenants, gone)
        except BaseException:
            await give_back(self._bus, found)
            raise
        finally:
            self._backlog.ended(service, tenants, spare=len(found) < limit)
        if not may():
            await give_back(self._bus, found)
            return ()
        return [d.message.body for d in found if await self._settled(d, len(found) < limit)]

    async def _fill(
        self,
        found: list[Delivery],
        service: str,
        limit: int,
        wait_seconds: float,
        tenants: Tenants,
        gone: Gone,
    ) -> None:
        """What there is, and more from the backlog; if that is nothing, whatever comes first."""
        loop, turns = asyncio.get_running_loop(), self._turns[service]
        deadline = loop.time() + wait_seconds
        found += await turns.receive(limit, AT_ONCE, tenants)
        while True:
            if len(found) < limit:
                await self._more(found, service, limit - len(found), tenants)
            left = deadline - loop.time()
            if found or left <= 0 or self._closing.is_set():
                return
            wait = timedelta(seconds=left)
            receiving = asyncio.ensure_future(turns.receive(limit, wait, tenants))
            stayed = await self._patient(receiving, gone)
            came = () if receiving.cancelled() else receiving.result()
            if not stayed:
                await give_back(self._bus, came)  # nothing is lost on a worker that hangs up
                return
            found += came

    async def _more(self, found: list[Delivery], service: str, room: int, tenants: Tenants) -> None:
        """The worker has room for more than the bus held: the backlog fills it."""
        coming = await self._backlog.release(service, room, tenants)
        loop, turns = asyncio.get_running_loop(), self._turns[service]
        deadline, enough = loop.time() + SOON.total_seconds(), len(found) + coming
        while len(found) < enough and (left := deadline - loop.time()) > 0:
            wait = timedelta(seconds=left)
            found += await turns.receive(enough - len(found), wait, tenants)

    async def _patient(self, work: Awaitable[Any], gone: Gone) -> bool:
        """Wait for the work, unless the worker goes away or the process ends. False: it has gone."""
        doing = asyncio.ensure_future(work)
        leaving = asyncio.ensure_future(gone())
        closing = asyncio.ensure_future(self._closing.wait())
        everyone = (doing, leaving, closing)
        try:
            await asyncio.wait(everyone, return_when=asyncio.FIRST_COMPLETED)
            left = leaving.done()
        finally:
            for task in everyone:
                task.cancel()
            await asyncio.wait(everyone)
        return not left

    async def _settled(self, delivery: Delivery, spare: bool) -> bool:
        try:
            await self._bus.complete(delivery)
        except LockLostError:
            return False
        body = delivery.message.body
        seconds = float(body.get("ack_timeout_seconds", 0))
        self._backlog.handed_out(str(body.get("lease_id")), seconds, spare=spare)
        return True


def no_pool(service: str, tenants: frozenset[str]) -> RequestError:
    """The worker would take what it may not have: the bus cannot leave the directives of others alone."""
    named = ", ".join(sorted(tenants)[:3]) or "no tenant"
    return RequestError(
        "TENANT_WITHOUT_POOL",
        f"the key of this worker is bound to {named}, and the bus of this server cannot pick the"
        f" directives of {service} by tenant: use a key with the role service and without tenants,"
        " or a server with LUCIUS_BUS_BACKEND=memory",
        status=403,
    )


def services_of(catalog: Catalog) -> dict[str, tuple[str, ...]]:
    """Every service, and the step types that it executes by the protocols in force."""
    found: dict[str, set[str]] = {}
    for protocol in catalog.protocols.values():
        for step in protocol.steps:
            found.setdefault(step.service, set()).add(step.step_type)
    return {service: tuple(sorted(step_types)) for service, step_types in found.items()}
