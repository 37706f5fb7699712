"""Routing: which mode a job runs in and which of the 16 lanes it takes. Decided once, at ingress."""

from collections.abc import Collection, Sequence
from typing import Final
from zlib import crc32

from lucius.core.errors import RequestError
from lucius.core.plan import DecisionSource, Mode, Routing

LANES: Final = 16
TOPOLOGIES: Final = ("shared", "isolated", "filtered")
MODE_SPELLINGS: Final = {"DEFAULT": Mode.DEFAULT, "SAFE": Mode.DEFAULT, "BURST": Mode.BURST}


def parse_mode(text: str) -> Mode | None:
    return MODE_SPELLINGS.get(text.strip().upper())


def lane_of(routing_key: str) -> int:
    return crc32(routing_key.encode()) % LANES


def choose_mode(
    requested: Mode | None, tenant: Mode | None, default: Mode
) -> tuple[Mode, DecisionSource, str]:
    """Request before tenant before global configuration."""
    if requested is not None:
        return requested, DecisionSource.REQUEST, f"the request asks for {requested}"
    if tenant is not None:
        return tenant, DecisionSource.TENANT_CONFIG, f"the tenant is configured for {tenant}"
    return default, DecisionSource.GLOBAL_CONFIG, f"the global default is {default}"


def route(
    tenant_id: str,
    doc_id: str | None,
    decided: tuple[Mode, DecisionSource, str],
    *,
    delimiter: str = "",
    topology: str = "shared",
) -> Routing:
    """Pin the routing of a job. BURST spreads a tenant by document, so it needs `doc_id`."""
    mode, source, reason = decided
    tenant, doc = tenant_id.strip().lower(), (doc_id or "").strip().lower()
    if mode is Mode.BURST and not doc:
        raise RequestError(
            "DOC_ID_REQUIRED",
            "mode BURST spreads a tenant's work by document: doc_id is required",
            faults=(("/doc_id", "required in mode BURST"),),
        )
    key = f"{tenant}{delimiter}{doc}" if mode is Mode.BURST else tenant
    lane = lane_of(tenant) if topology == "isolated" else lane_of(key)
    return Routing(
        resolved_mode=mode,
        lane=lane,
        routing_key_used=key,
        decision_source=source,
        decision_reason=reason,
        topic=directive_topic(lane, mode, topology),
        reply_topic=reply_topic(lane),
    )


def directive_topic(lane: int, mode: Mode, topology: str) -> str:
    if topology == "isolated":
        return f"global-{mode.value.lower()}-p{lane}"
    return f"global-bus-p{lane}"


def directive_topics(topology: str, lanes: Sequence[int] = range(LANES)) -> tuple[str, ...]:
    """Every directive topic that a service listens on."""
    if topology == "isolated":
        return tuple(directive_topic(n, m, topology) for m in Mode for n in lanes)
    return tuple(directive_topic(n, Mode.DEFAULT, topology) for n in lanes)


def every_directive_topic(
    lanes: Sequence[int] = range(LANES), topologies: Sequence[str] = TOPOLOGIES
) -> tuple[str, ...]:
    """Of these topologies: a job keeps the topic that it was routed to, whatever is configured by then."""
    return tuple(dict.fromkeys(topic for t in topologies for topic in directive_topics(t, lanes)))


def subscriptions_of(
    service: str, topology: str, pool: str | None = None
) -> tuple[tuple[str, Mode | None], ...]:
    """The names of a service's subscriptions, and the mode that each takes alone, if it does."""
    name = service if pool is None else f"{service}-pool-{pool}"
    if topology == "filtered":
        return tuple((f"{name}-{mode.value.lower()}", mode) for mode in Mode)
    return ((name, None),)


def lanes_of(shards: Collection[int]) -> list[int]:
    """The lanes that these shards are of."""
    return sorted({shard % LANES for shard in shards})


def reply_topic(lane: int) -> str:
    return f"global-bus-replies-p{lane}"
