"""A stand-in for Azure Service Bus: enough of AMQP 1.0 and of the management API for the real SDK."""

from lucius.dev.standins.service_bus.broker import Broker
from lucius.dev.standins.service_bus.server import StandIn

__all__ = ["Broker", "StandIn"]
