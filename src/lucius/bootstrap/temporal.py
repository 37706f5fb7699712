"""What the processes of the Temporal engine are built from. Its library comes with an extra."""

from pathlib import Path
from types import ModuleType
from typing import Any

from lucius.bootstrap.adapters.unsupported import UnsupportedError, optional
from lucius.core.errors import LuciusError
from lucius.ports.workflows import Workflows
from lucius.settings import Settings


def of_temporal(name: str) -> ModuleType:
    return optional(f"lucius.engines.temporal.{name}", "LUCIUS_TEMPORAL_ENABLED", "temporal")


class KeyInTheClearError(LuciusError):
    """An API key would go over a connection that anyone on its way can read."""


def place_of(settings: Settings) -> Any:
    named = (
        settings.temporal_ca,
        settings.temporal_certificate,
        settings.temporal_private_key_path,
    )
    if bool(settings.temporal_certificate) != bool(settings.temporal_private_key_path):
        raise UnsupportedError(
            "LUCIUS_TEMPORAL_CERTIFICATE and LUCIUS_TEMPORAL_PRIVATE_KEY_PATH are given together: a"
            " certificate and its key"
        )
    tls = settings.temporal_tls or any(named)
    if settings.temporal_api_key and not tls:
        raise KeyInTheClearError(
            "LUCIUS_TEMPORAL_API_KEY is set and LUCIUS_TEMPORAL_TLS is false, so the key would be sent to"
            f" {settings.temporal_address} in the clear: set LUCIUS_TEMPORAL_TLS=true, or take the key away"
        )
    return of_temporal("workflows").TemporalPlace(
        settings.temporal_address,
        settings.temporal_namespace,
        settings.temporal_task_queue,
        tls=tls,
        api_key=settings.temporal_api_key.get_secret_value(),
        **dict(zip(("authorities", "certificate", "private_key"), map(_pem, named), strict=True)),
    )


def _pem(path: str) -> bytes:
    try:
        return Path(path).read_bytes() if path else b""
    except OSError as error:
        raise UnsupportedError(
            "LUCIUS_TEMPORAL_CA, LUCIUS_TEMPORAL_CERTIFICATE and LUCIUS_TEMPORAL_PRIVATE_KEY_PATH name files"
            f" in PEM form, and {path} cannot be read: {error.strerror}"
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
