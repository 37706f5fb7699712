"""The pull gateway: directives for workers that speak only HTTP, settled as they are handed out."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final, Protocol

from lucius.core.errors import BusError, LockLostError, RequestError
from lucius.core.routing import every_directive_topic, subscriptions_of
from lucius.ports.bus import BoundTenants, Bus, Delivery, Subscription, directive_filters
from lucius.ports.config import Catalog, ConfigSource

# Receiving for one service from several subscriptions: they take turns, so that none starves another.

AT_ONCE: Final = timedelta()


class Turns:
    """The subscriptions of one service, over all of its topics."""

    def __init__(self, bus: Bus, names: Sequence[str], topics: Sequence[str]) -> None:
        self._bus = bus
        self._names = deque(names)
        self._topics = topics

    async def receive(
        self, limit: int, wait: timedelta, tenants: BoundTenants = None
    ) -> Sequence[Delivery]:
        """As `Bus.receive` does for one subscription."""
        if len(self._names) == 1:
            return await self._bus.receive(self._names[0], self._topics, limit, wait, tenants)
        found = await self._shared(limit, tenants)
        return found or (await self._first(limit, wait, tenants) if wait else ())

    async def _shared(self, limit: int, tenants: BoundTenants) -> list[Delivery]:
        """Ask each subscription for its part, then those with more for the rest. They take turns."""
        self._names.rotate()
        part = -(-limit // len(self._names))
        found: list[Delivery] = []
        for most in (part, limit):
            for name in self._names:
                capacity = min(most, limit - len(found))
                if capacity > 0:
                    found += await self._bus.receive(name, self._topics, capacity, AT_ONCE, tenants)
        return found

    async def _first(
        self, limit: int, wait: timedelta, tenants: BoundTenants
    ) -> Sequence[Delivery]:
        """Wait on all subscriptions, and return what the first of them has."""
        waits = [
            asyncio.ensure_future(self._bus.receive(name, self._topics, limit, wait, tenants))
            for name in self._names
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await give_back(self._bus, await _results(waits))
            raise
        found = await _results(waits)
        if not found:
            _check(waits)
        await give_back(self._bus, found[limit:])
        return found[:limit]


async def _results(waits: Sequence[asyncio.Future[Sequence[Delivery]]]) -> list[Delivery]:
    """What has come by now; the rest is waited for no longer."""
    for each in waits:
        each.cancel()
    await asyncio.wait(waits)
    return [
        delivery
        for each in waits
        if not each.cancelled() and each.exception() is None
        for delivery in each.result()
    ]


def _check(waits: Iterable[asyncio.Future[Sequence[Delivery]]]) -> None:
    for each in waits:
        if not each.cancelled():
            each.result()


async def give_back(bus: Bus, deliveries: Iterable[Delivery]) -> None:
    for delivery in deliveries:
        try:
            await bus.abandon(delivery)
        except BusError:
            continue  # its lock runs out, and it is delivered again all the same


SOON: Final = timedelta(seconds=0.25)
"""How long a pull waits for what was released for it, though it has some directives already."""

Receive = Callable[[int, timedelta], Awaitable[Sequence[Delivery]]]
Gone = Callable[[], Awaitable[object]]
"""Returns when the worker that pulls has gone away."""


class Backlog(Protocol):
    """What is held in the outboxes of jobs: the gateway asks for it, and tells whom it handed it to."""

    def began(self, service: str, tenants: BoundTenants) -> None:
        """A worker pulls."""

    def ended(self, service: str, tenants: BoundTenants, *, spare: bool) -> None:
        """It pulls no more; `spare`: it could have taken more than it got."""

    async def release(self, service: str, capacity: int, tenants: BoundTenants) -> int:
        """A worker has room for so many more. The answer says how many are on their way to the bus."""

    def handed_out(self, lease_id: str, seconds: float) -> None:
        """A worker has got it, and has so many seconds to acknowledge it."""


class BusGateway:
    """The ACK clock is the visibility timeout: what a worker loses is dispatched again by the ledger."""

    def __init__(
        self,
        bus: Bus,
        config: ConfigSource,
        *,
        topology: str,
        topologies: Sequence[str],
        backlog: Backlog,
    ) -> None:
        self._bus = bus
        self._config = config
        self._backlog = backlog
        self._topology = topology
        self._names: dict[tuple[str, str | None], list[str]] = {}
        """Names of subscriptions by service and pool; pool None: the one that all workers share."""
        self._turns: dict[tuple[str, ...], Turns] = {}
        """By the names of the subscriptions."""
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
            await self._ensure(service, step_types, tuple(pools_of(catalog, service)))
        self._catalog = catalog

    async def _ensure(self, service: str, named: tuple[str, ...], pools: tuple[str, ...]) -> None:
        """A subscription only widens: jobs that are under way keep the step types of their protocol."""
        ensured = self._ensured.get(service, ())
        step_types = tuple(sorted({*ensured, *named}))
        for pool in (None, *pools):
            if step_types != ensured or (service, pool) not in self._names:
                names = subscriptions_of(service, self._topology, pool)
                for name, mode in names:
                    filters = directive_filters(step_types, mode, pool)
                    wanted = [Subscription(topic, name, filters) for topic in self._topics]
                    await self._bus.ensure(wanted)
                self._names[service, pool] = [name for name, _ in names]
        self._ensured[service] = step_types

    def _receiving(self, service: str, tenants: BoundTenants) -> Receive:
        """How such a worker receives: only from subscriptions whose every message it may have."""
        pools: Sequence[str | None] = (None,)
        if tenants is not None:
            pools = self._pools(service, tenants)
        names = tuple(name for pool in pools for name in self._names[service, pool])
        turns = self._turns.setdefault(names, Turns(self._bus, names, self._topics))
        return partial(turns.receive, tenants=tenants if self._bus.by_tenant else None)

    def _pools(self, service: str, tenants: frozenset[str]) -> Sequence[str | None]:
        """Those of the worker's tenants. A bus that chooses by tenant serves the others of them as well."""
        served = pools_of(self._config.catalog(), service)
        mine = [pool for pool, whose in served.items() if whose & tenants]
        if self._bus.by_tenant:
            return (None, *mine)
        lacking = tenants.difference(*served.values())
        if lacking or not tenants:
            raise no_pool(service, lacking)
        for pool in mine:
            if others := served[pool] - tenants:
                raise shared_pool(service, pool, others)
        return mine

    def knows(self, service: str) -> bool:
        return service in self._ensured or service in services_of(self._config.catalog())

    def close(self) -> None:
        """The process is about to end: whoever waits for directives is answered with none."""
        self._closing.set()

    async def admit(self, service: str, tenants: BoundTenants) -> Receive:
        """How such a worker receives. RequestError: it may not, or no protocol names the service."""
        await self.prepare()
        if service not in self._ensured:
            raise RequestError(
                "SERVICE_NOT_FOUND", f"no protocol names the service {service[:128]!r}"
            )
        return self._receiving(service, tenants)

    async def pull(
        self,
        service: str,
        limit: int,
        wait_seconds: float,
        tenants: BoundTenants,
        gone: Gone,
        may: Callable[[], bool] = lambda: True,
    ) -> Sequence[Mapping[str, Any]]:
        """`may` is asked last of all: whether the worker may have them still."""
        receive = await self.admit(service, tenants)
        if self._closing.is_set():
            return ()
        found: list[Delivery] = []
        self._backlog.began(service, tenants)
        try:
            await self._fill(found, receive, service, limit, wait_seconds, tenants, gone)
        except BaseException:
            await give_back(self._bus, found)
            raise
        finally:
            self._backlog.ended(service, tenants, spare=len(found) < limit)
        if not may():
            await give_back(self._bus, found)
            return ()
        return [d.message.body for d in found if await self._settled(d)]

    async def _fill(
        self,
        found: list[Delivery],
        receive: Receive,
        service: str,
        limit: int,
        wait_seconds: float,
        tenants: BoundTenants,
        gone: Gone,
    ) -> None:
        """What there is, and more from the backlog; if that is nothing, whatever comes first."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_seconds
        found += await receive(limit, AT_ONCE)
        while True:
            if len(found) < limit:
                await self._more(found, receive, service, limit - len(found), tenants)
            left = deadline - loop.time()
            if found or left <= 0 or self._closing.is_set():
                return
            wait = timedelta(seconds=left)
            receiving = asyncio.ensure_future(receive(limit, wait))
            stayed = await self._patient(receiving, gone)
            came = () if receiving.cancelled() else receiving.result()
            if not stayed:
                await give_back(self._bus, came)  # nothing is lost on a worker that hangs up
                return
            found += came

    async def _more(
        self,
        found: list[Delivery],
        receive: Receive,
        service: str,
        capacity: int,
        tenants: BoundTenants,
    ) -> None:
        """The worker has room for more than the bus held: the backlog fills it."""
        coming = await self._backlog.release(service, capacity, tenants)
        loop = asyncio.get_running_loop()
        deadline, enough = loop.time() + SOON.total_seconds(), len(found) + coming
        while len(found) < enough and (left := deadline - loop.time()) > 0:
            wait = timedelta(seconds=left)
            found += await receive(enough - len(found), wait)

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

    async def _settled(self, delivery: Delivery) -> bool:
        try:
            await self._bus.complete(delivery)
        except LockLostError:
            return False
        body = delivery.message.body
        seconds = float(body.get("ack_timeout_seconds", 0))
        self._backlog.handed_out(str(body.get("lease_id")), seconds)
        return True


def no_pool(service: str, tenants: frozenset[str]) -> RequestError:
    """The worker would take what it may not have: the bus cannot leave the directives of others alone."""
    named = ", ".join(sorted(tenants)[:3]) or "no tenant"
    return RequestError(
        "TENANT_WITHOUT_POOL",
        f"the key of this worker is bound to {named}, and the bus of this server cannot pick the"
        f" directives of {service} by tenant: give the tenant a pool in the protocols"
        f" (tenants.TENANT.pools.{service}) and run `lucius bus provision`, or use a key with the role"
        " service and without tenants",
        status=403,
    )


def shared_pool(service: str, pool: str, others: frozenset[str]) -> RequestError:
    return RequestError(
        "TENANT_WITHOUT_POOL",
        f"the pool {pool} of {service} serves {len(others)} tenants that the key of this worker is not"
        f" bound to: give its tenants a pool of their own (tenants.TENANT.pools.{service})",
        status=403,
    )


def pools_of(catalog: Catalog, service: str) -> dict[str, frozenset[str]]:
    """The pools of a service, each with the tenants that have it."""
    found: dict[str, frozenset[str]] = {}
    for tenant_id, tenant in catalog.tenants.items():
        if (pool := tenant.pools.get(service)) is not None:
            found[pool] = found.get(pool, frozenset()) | {tenant_id}
    return dict(sorted(found.items()))


def services_of(catalog: Catalog) -> dict[str, tuple[str, ...]]:
    """Every service, and the step types that it executes by the protocols in force."""
    found: dict[str, set[str]] = {}
    for protocol in catalog.protocols.values():
        for step in protocol.steps:
            found.setdefault(step.service, set()).add(step.step_type)
    return {service: tuple(sorted(step_types)) for service, step_types in found.items()}
