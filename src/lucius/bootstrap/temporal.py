"""What the processes of the Temporal engine are built from. Its library comes with an extra."""

from pathlib import Path
from types import ModuleType
from typing import Any

from lucius.bootstrap.adapters.unsupported import UnsupportedError, key_beside, optional
from lucius.ports.workflows import Workflows
from lucius.settings import Settings


def of_temporal(name: str) -> ModuleType:
    return optional(f"lucius.engines.temporal.{name}", "LUCIUS_TEMPORAL_ENABLED", "temporal")


def place_of(settings: Settings) -> Any:
    ca, certificate = settings.temporal_ca, settings.temporal_certificate
    key = settings.temporal_api_key.get_secret_value()
    return of_temporal("workflows").TemporalPlace(
        settings.temporal_address,
        settings.temporal_namespace,
        settings.temporal_task_queue,
        tls=bool(
            ca or certificate or key
        ),  # a key never goes over a connection that others can read
        api_key=key,
        authorities=_pem(ca),
        certificate=_pem(certificate),
        private_key=_pem(key_beside(certificate) or certificate),
    )


def _pem(path: str) -> bytes:
    try:
        return Path(path).read_bytes() if path else b""
    except OSError as error:
        raise UnsupportedError(
            f"LUCIUS_TEMPORAL_CA and LUCIUS_TEMPORAL_CERTIFICATE name files in PEM form, and {path} cannot be"
            f" read: {error.strerror}"
        ) from error


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
