"""Which bus, and who creates what it needs."""

import ssl
from pathlib import Path
from types import ModuleType
from typing import Any, Final
from urllib.parse import unquote

from lucius.bootstrap.adapters.unsupported import UnsupportedError, key_beside, optional
from lucius.buses.memory import MemoryBus
from lucius.core.errors import BusUnavailableError
from lucius.ports.bus import Bus, Provisioner
from lucius.settings import Settings

CERTIFICATE: Final = b"-----BEGIN CERTIFICATE-----"


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
    options = {**nats_tls(settings), **nats_user(settings)}
    bus: Bus = nats.NatsBus(nats_servers(settings)[0], system=settings.system, **options)
    return bus


def nats_servers(settings: Settings) -> tuple[list[str], str]:
    """Addresses without a user, and that user. One with a password of its own stays as it is."""
    servers: list[str] = []
    users: list[str] = []
    for each in filter(None, map(str.strip, settings.nats_url.split(","))):
        before, _, rest = each.rpartition("@")
        scheme, _, user = before.rpartition("//")
        if user and ":" not in user:
            users.append(unquote(user))
            servers.append(f"{scheme}//{rest}")
        else:
            servers.append(each)
    if len(set(users)) > 1:
        raise UnsupportedError("LUCIUS_NATS_URL names several users: this process is one of them")
    return servers, users[0] if users else ""


def nats_files(settings: Settings) -> tuple[str, str]:
    """The credentials file and the certificate by which NATS servers know this process, as far as given."""
    certificates = [each for each in settings.nats_credentials if _is_certificate(each)]
    credentials = [each for each in settings.nats_credentials if each not in certificates]
    if len(certificates) > 1 or len(credentials) > 1:
        raise UnsupportedError(
            "LUCIUS_NATS_CREDENTIALS names several files of one kind: it takes a credentials file (.creds),"
            " a certificate in PEM form, or one of each"
        )
    return "".join(credentials), "".join(certificates)


def _is_certificate(path: str) -> bool:
    """A file that cannot be read is none: it is named where its credentials are asked for."""
    try:
        return CERTIFICATE in Path(path).read_bytes()
    except OSError:
        return False


def nats_user(settings: Settings) -> dict[str, Any]:
    """This process for NATS: by a credentials file, a user and a password, or a token. One of them."""
    user, password = nats_servers(settings)[1], settings.nats_password.get_secret_value()
    if credentials := nats_files(settings)[0]:
        if user or password:
            raise UnsupportedError(
                "a credentials file in LUCIUS_NATS_CREDENTIALS and LUCIUS_NATS_PASSWORD, or a user in"
                " LUCIUS_NATS_URL, say who this process is: set one of them"
            )
        reading = optional("lucius.buses.nats.credentials", "LUCIUS_NATS_CREDENTIALS", "nats")
        try:
            found: dict[str, Any] = reading.credentials(credentials)
        except BusUnavailableError as error:
            raise UnsupportedError(str(error)) from error
        return found
    if user and not password:
        raise UnsupportedError(
            "LUCIUS_NATS_URL names a user, and LUCIUS_NATS_PASSWORD is not set: set both"
        )
    if user:
        return {"user": user, "password": password}
    return {"token": password} if password else {}


def nats_tls(settings: Settings) -> dict[str, Any]:
    """Where a certificate is named, or an address that asks for encryption."""
    certificate = nats_files(settings)[1]
    if not certificate and not settings.nats_url.startswith("tls://"):
        return {}
    try:
        context = ssl.create_default_context()
        if certificate:
            context.load_cert_chain(certificate, key_beside(certificate))
    except (OSError, ValueError) as error:
        raise UnsupportedError(
            "LUCIUS_NATS_CREDENTIALS names a certificate in PEM form with its private key in the same file or"
            f" beside it in one that ends with .key, and {certificate} cannot be used: {error}"
        ) from error
    return {"tls": context}


def service_bus() -> ModuleType:
    return optional("lucius.buses.service_bus.connecting", "LUCIUS_BUS_BACKEND=servicebus", "azure")


def service_bus_plan(settings: Settings) -> Any:
    return service_bus().Plan(prefix=settings.topic_prefix)


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
