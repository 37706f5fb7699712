"""The bus on NATS JetStream. The publisher stores a copy of a message for each subscription that takes it."""

from lucius.adapters.buses.nats.bus import NatsBus

__all__ = ["NatsBus"]
