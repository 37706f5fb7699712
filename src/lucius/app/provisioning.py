"""`lucius bus provision`: the topics, subscriptions and rules of a deployment, from its catalogue."""

from collections.abc import Sequence
from hashlib import sha256

from lucius.app.adapters import installation, open_config, open_provisioner
from lucius.app.settings import Settings
from lucius.core.routing import (
    LANES,
    TOPOLOGIES,
    every_directive_topic,
    reply_topic,
    subscriptions_of,
)
from lucius.engine.gateway import pools_of, services_of
from lucius.engine.notices import UNCLAIMED
from lucius.engine.replies import INVOKER_REPLIES, REPLIES
from lucius.ports.bus import NOTICES, Subscription, deployment_mark, directive_filters
from lucius.ports.config import Catalog

# Which deployment this process belongs to: the one that has its ledger. The bus keeps its mark.


def mark_of(settings: Settings) -> Subscription:
    """The same for all processes with one ledger, and another for every other ledger."""
    whose = sha256(installation(settings).encode()).hexdigest()
    return deployment_mark(reply_topic(0), whose[:12])


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
