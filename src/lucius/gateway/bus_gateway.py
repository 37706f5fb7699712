"""The pull gateway: directives for workers that speak only HTTP, settled as they are handed out."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from lucius.core.errors import LockLostError, RequestError
from lucius.core.routing import every_directive_topic, subscriptions_of
from lucius.gateway.turns import AT_ONCE, Turns, give_back
from lucius.ports.bus import Bus, Delivery, Property, Subscription
from lucius.ports.config import Catalog, ConfigSource

FOREIGN_PAUSE: Final = 0.25
"""Seconds. What belongs to other tenants is given back, and left to others for a while."""
GIVEN_BACK: Final = 6
"""So often; a directive that was given back more often is left to its lock, and stays deliverable."""

Gone = Callable[[], Awaitable[object]]
"""Returns when the worker that pulls has gone away."""


class BusGateway:
    """The ACK clock is the visibility timeout: what a worker loses is dispatched again by the ledger."""

    def __init__(
        self,
        bus: Bus,
        config: ConfigSource,
        *,
        topology: str = "shared",
        handed_out: Callable[[str], None] = lambda lease_id: None,
    ) -> None:
        """`handed_out` is told the lease of each directive that a worker has got."""
        self._bus = bus
        self._config = config
        self._handed_out = handed_out
        self._topology = topology
        self._turns: dict[str, Turns] = {}
        self._topics = every_directive_topic()
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
        tenants: frozenset[str] | None,
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
        loop, turns = asyncio.get_running_loop(), self._turns[service]
        deadline = loop.time() + wait_seconds
        found = await turns.receive(limit, AT_ONCE)
        while True:
            own, pause = await self._own(found, tenants)
            if own and not may():
                await give_back(self._bus, own)
                return ()
            left = deadline - loop.time()
            if own or left <= 0 or self._closing.is_set():
                return [d.message.body for d in own if await self._settled(d)]
            if pause and not await self._patient(asyncio.sleep(min(pause, left)), gone):
                return []
            wait = timedelta(seconds=max(0.0, deadline - loop.time()))
            receiving = asyncio.ensure_future(turns.receive(limit, wait))
            stayed = await self._patient(receiving, gone)
            found = () if receiving.cancelled() else receiving.result()
            if not stayed:
                await give_back(self._bus, found)  # nothing is lost on a worker that hangs up
                return ()

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

    async def _own(
        self, found: Sequence[Delivery], tenants: frozenset[str] | None
    ) -> tuple[list[Delivery], float]:
        """What a worker that is bound to tenants may see; the rest goes back, ever more slowly."""
        if tenants is None:
            return list(found), 0.0
        own = [d for d in found if d.message.body.get("tenant_id") in tenants]
        foreign = [d for d in found if d.message.body.get("tenant_id") not in tenants]
        await give_back(self._bus, [d for d in foreign if d.count <= GIVEN_BACK])
        return own, max((FOREIGN_PAUSE * 2.0**d.count for d in foreign), default=0.0)

    async def _settled(self, delivery: Delivery) -> bool:
        try:
            await self._bus.complete(delivery)
        except LockLostError:
            return False
        self._handed_out(str(delivery.message.body.get("lease_id")))
        return True


def services_of(catalog: Catalog) -> dict[str, tuple[str, ...]]:
    """Every service, and the step types that it executes by the protocols in force."""
    found: dict[str, set[str]] = {}
    for protocol in catalog.protocols.values():
        for step in protocol.steps:
            found.setdefault(step.service, set()).add(step.step_type)
    return {service: tuple(sorted(step_types)) for service, step_types in found.items()}
