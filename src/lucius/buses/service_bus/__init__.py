"""The bus on Azure Service Bus, through its own SDK."""

from lucius.buses.service_bus.bus import ServiceBus

__all__ = ["ServiceBus"]
