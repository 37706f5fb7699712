"""The bus on NATS JetStream: one work queue of copies, routed by the publisher."""

from lucius.buses.nats.bus import NatsBus

__all__ = ["NatsBus"]
