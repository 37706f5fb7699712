"""The runners of a platform service: one, or one for each mode where the lanes are filtered by it."""

from lucius.core.routing import every_directive_topic, subscriptions_of
from lucius.platform import Service, ServiceRunner
from lucius.ports.bus import Bus
from lucius.ports.workspace import Workspace


def runners_of(
    service: Service,
    bus: Bus,
    workspace: Workspace,
    *,
    topology: str,
    slots: int,
    worker_id: str | None = None,
) -> list[ServiceRunner]:
    """Slots are split between the subscriptions, at least one to each, so that none waits for another."""
    subscriptions = subscriptions_of(service.name, topology)
    return [
        ServiceRunner(
            service,
            bus,
            workspace,
            slots=max(1, (slots - number + len(subscriptions) - 1) // len(subscriptions)),
            worker_id=worker_id,
            topics=every_directive_topic(),
            filters={"mode": (mode.value,)} if mode is not None else None,
            subscription=name,
        )
        for number, (name, mode) in enumerate(subscriptions)
    ]
