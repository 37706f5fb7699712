"""Which bus, and who creates what it needs."""

import ssl
from types import ModuleType
from typing import Any

from lucius.bootstrap.adapters.unsupported import UnsupportedError, optional
from lucius.buses.memory import MemoryBus
from lucius.core.errors import BusUnavailableError
from lucius.ports.bus import Bus, Provisioner
from lucius.settings import Settings


def open_bus(settings: Settings) -> Bus:
    if settings.bus_backend == "memory":
        return MemoryBus()
    if settings.bus_backend == "servicebus":
        creates = settings.bus_provision == "auto"
        connecting = service_bus()
        plan = service_bus_plan(settings)
        bus: Bus = connecting.open_service_bus(
            settings.servicebus_connection.get_secret_value(), plan, creates=creates
        )
        return bus
    return open_nats(settings)


def open_nats(settings: Settings) -> Bus:
    nats = optional("lucius.buses.nats", "LUCIUS_BUS_BACKEND=nats", "nats")
    servers = [each.strip() for each in settings.nats_url.split(",") if each.strip()]
    options = {**nats_tls(settings), **nats_user(settings)}
    bus: Bus = nats.NatsBus(servers, system=settings.system, **options)
    return bus


def nats_user(settings: Settings) -> dict[str, Any]:
    """Who this process is to NATS: by a credentials file, a user and a password, or a token. One of them."""
    password = settings.nats_password.get_secret_value()
    token = settings.nats_token.get_secret_value()
    given = [
        name
        for name, value in (
            ("LUCIUS_NATS_CREDENTIALS", settings.nats_credentials),
            ("LUCIUS_NATS_USER", settings.nats_user),
            ("LUCIUS_NATS_TOKEN", token),
        )
        if value
    ]
    if len(given) > 1:
        raise UnsupportedError(f"{' and '.join(given)} say who this process is: set one of them")
    if bool(settings.nats_user) != bool(password):
        raise UnsupportedError("LUCIUS_NATS_USER and LUCIUS_NATS_PASSWORD are given together")
    if settings.nats_credentials:
        reading = optional("lucius.buses.nats.credentials", "LUCIUS_NATS_CREDENTIALS", "nats")
        try:
            found: dict[str, Any] = reading.credentials(settings.nats_credentials)
        except BusUnavailableError as error:
            raise UnsupportedError(str(error)) from error
        return found
    if settings.nats_user:
        return {"user": settings.nats_user, "password": password}
    return {"token": token} if token else {}


def nats_tls(settings: Settings) -> dict[str, Any]:
    """Where a certificate is named, or an address that asks for encryption."""
    named = (settings.nats_ca, settings.nats_certificate, settings.nats_private_key_path)
    if not any(named) and not settings.nats_url.startswith("tls://"):
        return {}
    if bool(settings.nats_certificate) != bool(settings.nats_private_key_path):
        raise UnsupportedError(
            "LUCIUS_NATS_CERTIFICATE and LUCIUS_NATS_PRIVATE_KEY_PATH are given together: a certificate"
            " and its key"
        )
    try:
        context = ssl.create_default_context(cafile=settings.nats_ca or None)
        if settings.nats_certificate:
            context.load_cert_chain(settings.nats_certificate, settings.nats_private_key_path)
    except (OSError, ValueError) as error:
        raise UnsupportedError(
            "LUCIUS_NATS_CA, LUCIUS_NATS_CERTIFICATE and LUCIUS_NATS_PRIVATE_KEY_PATH name files in PEM"
            f" form, and one of {', '.join(name for name in named if name)} cannot be used: {error}"
        ) from error
    return {"tls": context}


def service_bus() -> ModuleType:
    return optional("lucius.buses.service_bus.connecting", "LUCIUS_BUS_BACKEND=servicebus", "azure")


def service_bus_plan(settings: Settings) -> Any:
    return service_bus().Plan(
        duplicate_window=settings.servicebus_duplicate_window,
        expiry=settings.servicebus_expiry,
        lock=settings.servicebus_lock,
        max_deliveries=settings.servicebus_max_deliveries,
        sessions=settings.servicebus_sessions,
        prefix=settings.servicebus_prefix,
    )


def open_provisioner(settings: Settings) -> Provisioner:
    """Who creates topics, subscriptions and rules, with rights that running processes do not need."""
    if settings.bus_backend != "servicebus":
        raise UnsupportedError(
            f"LUCIUS_BUS_BACKEND={settings.bus_backend} needs no provisioning: processes create what they"
            " need. For Service Bus, set LUCIUS_BUS_BACKEND=servicebus"
        )
    made: Provisioner = service_bus().open_administrator(
        settings.servicebus_connection.get_secret_value(), service_bus_plan(settings)
    )
    return made
