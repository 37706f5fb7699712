"""What the processes of the Temporal engine are built from. Its library comes with an extra."""

from types import ModuleType
from typing import Any

from lucius.bootstrap.adapters.unsupported import optional
from lucius.ports.workflows import Workflows
from lucius.settings import Settings


def of_temporal(name: str) -> ModuleType:
    return optional(f"lucius.engines.temporal.{name}", "LUCIUS_TEMPORAL_ENABLED", "temporal")


def place_of(settings: Settings) -> Any:
    return of_temporal("workflows").TemporalPlace(
        settings.temporal_address,
        settings.temporal_namespace,
        settings.temporal_task_queue,
        tls=settings.temporal_tls,
        api_key=settings.temporal_api_key.get_secret_value(),
    )


async def open_workflows(settings: Settings) -> Workflows:
    module, place = of_temporal("workflows"), place_of(settings)
    opened: Workflows = module.TemporalWorkflows(await module.connected(place), place)
    return opened


async def provision_temporal(settings: Settings) -> list[str]:
    """The search attributes that were registered. WorkflowsUnavailableError: the server did not do it."""
    workflows = await open_workflows(settings)
    added: list[str] = await workflows.provision()
    await workflows.close()
    return added
