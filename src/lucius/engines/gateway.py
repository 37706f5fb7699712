"""The pull gateway: directives for workers that speak only HTTP, settled as they are handed out."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from lucius.core.errors import LockLostError
from lucius.core.routing import directive_topics
from lucius.ports.bus import Bus, Delivery, Subscription
from lucius.ports.config import Catalog, ConfigSource


class BusGateway:
    """The ACK clock is the visibility timeout: what a worker loses is dispatched again by the ledger."""

    def __init__(self, bus: Bus, config: ConfigSource, *, topology: str = "shared") -> None:
        self._bus = bus
        self._config = config
        self._topics = directive_topics(topology)
        self._ensured: set[tuple[str, tuple[str, ...]]] = set()

    async def pull(
        self, service: str, limit: int, wait_seconds: float, tenants: frozenset[str] | None
    ) -> Sequence[Mapping[str, Any]]:
        await self._ensure(service)
        wait = timedelta(seconds=wait_seconds)
        deliveries = await self._bus.receive(service, self._topics, limit, wait)
        return [d.message.body for d in deliveries if await self._taken(d, tenants)]

    async def _taken(self, delivery: Delivery, tenants: frozenset[str] | None) -> bool:
        if tenants is not None and delivery.message.body.get("tenant_id") not in tenants:
            await self._bus.abandon(delivery)
            return False
        try:
            await self._bus.complete(delivery)
        except LockLostError:
            return False
        return True

    async def _ensure(self, service: str) -> None:
        step_types = service_step_types(self._config.catalog(), service)
        if not step_types or (service, step_types) in self._ensured:
            return
        filters = {"step_type": step_types}
        await self._bus.ensure([Subscription(t, service, filters) for t in self._topics])
        self._ensured.add((service, step_types))


def service_step_types(catalog: Catalog, service: str) -> tuple[str, ...]:
    """What a service executes, by the protocols in force."""
    found = {
        step.step_type
        for protocol in catalog.protocols.values()
        for step in protocol.steps
        if step.service == service
    }
    return tuple(sorted(found))
