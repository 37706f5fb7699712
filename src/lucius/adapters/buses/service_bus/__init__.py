"""The bus on Azure Service Bus, through its own SDK."""

from lucius.adapters.buses.service_bus.bus import ServiceBus

__all__ = ["ServiceBus"]
