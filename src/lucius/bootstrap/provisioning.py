"""`lucius bus provision`: the topics, subscriptions and rules of a deployment, from its catalogue."""

from collections.abc import Sequence

from lucius.bootstrap.adapters.buses import open_provisioner
from lucius.bootstrap.adapters.configs import open_config
from lucius.bootstrap.deployment import mark_of
from lucius.core.routing import (
    LANES,
    TOPOLOGIES,
    every_directive_topic,
    reply_topic,
    subscriptions_of,
)
from lucius.engines.outbox.replies import INVOKER_REPLIES, REPLIES
from lucius.engines.outbox.unclaimed import UNCLAIMED
from lucius.gateway.bus_gateway import pools_of, services_of
from lucius.ports.bus import NOTICES, Subscription, directive_filters
from lucius.ports.config import Catalog
from lucius.settings import Settings


def subscriptions(
    catalog: Catalog,
    topology: str,
    topologies: Sequence[str] = TOPOLOGIES,
    *,
    temporal: bool = False,
) -> list[Subscription]:
    """Of every service and its pools, of the replies, and the catch-all.

    Processes listen on all these topics.

    `temporal`: invokers have a subscription to the replies too, of their own.
    """
    names = (REPLIES, INVOKER_REPLIES) if temporal else (REPLIES,)
    wanted = [
        Subscription(reply_topic(lane), name, by_topic=True)
        for lane in range(LANES)
        for name in names
    ]
    for topic in every_directive_topic(topologies=topologies):
        for service, step_types in services_of(catalog).items():
            for pool in (None, *pools_of(catalog, service)):
                for name, mode in subscriptions_of(service, topology, pool):
                    filters = directive_filters(step_types, mode, pool)
                    wanted.append(Subscription(topic, name, filters))
        wanted.append(Subscription(topic, UNCLAIMED, catch_all=True, by_topic=True))
    return [*wanted, NOTICES]


async def provision_bus(settings: Settings) -> Sequence[str]:
    """Create what is missing on the bus, and say what was changed."""
    config = await open_config(settings)
    await config.close()
    provisioner = open_provisioner(settings)
    try:
        wanted = subscriptions(
            config.catalog(),
            settings.lane_topology,
            settings.topologies(),
            temporal=settings.temporal_enabled,
        )
        return await provisioner.provision([mark_of(settings), *wanted])
    finally:
        await provisioner.close()
