"""Opens clients of the SDK with a connection string, or with a namespace and the identity of the process."""

import logging
from typing import Any, Final

from azure.core.pipeline.transport import AioHttpTransport
from azure.identity.aio import DefaultAzureCredential
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from lucius.adapters.buses.service_bus.administration import Administrator, Plan
from lucius.adapters.buses.service_bus.bus import ServiceBus
from lucius.core.errors import LuciusError

__all__ = ["ConnectionSettingError", "Plan", "open_administrator", "open_service_bus"]

OPTIONS: Final[dict[str, Any]] = {
    # What fails is tried again by those who know what is at stake, on a new connection.
    "retry_total": 0,
    # How long the SDK blocks on a socket in one step; a poll that must step aside waits as long.
    "socket_timeout": 0.1,
    "timeout": 15,
}
CHATTY: Final = ("azure.core", "azure.identity", "azure.servicebus")
"""Loggers that log every frame and request. Only their warnings are shown."""
EMULATED: Final = "usedevelopmentemulator=true"


class ConnectionSettingError(LuciusError):
    """LUCIUS_SERVICEBUS_CONNECTION cannot be used."""


def open_service_bus(connection: str, plan: Plan, *, creates: bool) -> ServiceBus:
    """`creates`: whether `ensure` may create what is missing."""
    _hush()
    _check(connection)
    administrator = open_administrator(connection, plan) if creates else None
    client, credential = _client(connection)
    return ServiceBus(
        client,
        administrator,
        prefix=plan.prefix,
        credential=credential,
    )


def _client(connection: str) -> tuple[ServiceBusClient, DefaultAzureCredential | None]:
    if not _is_connection_string(connection):
        credential = DefaultAzureCredential()
        return ServiceBusClient(connection, credential, **OPTIONS), credential
    try:
        return ServiceBusClient.from_connection_string(connection, **OPTIONS), None
    except ValueError as error:
        raise ConnectionSettingError(_unusable(error)) from error


def _hush() -> None:
    """Raise the level of these loggers, unless someone has set one."""
    for name in CHATTY:
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.WARNING)


def _check(connection: str) -> None:
    """Refuse a name without a dot: it is no namespace, and the SDK would look for it for ever."""
    if not _is_connection_string(connection) and "." not in connection:
        raise ConnectionSettingError(
            "LUCIUS_SERVICEBUS_CONNECTION is neither a connection string (Endpoint=sb://...) nor a"
            " namespace, such as NAME.servicebus.windows.net"
        )


def open_administrator(connection: str, plan: Plan) -> Administrator:
    _hush()
    _check(connection)
    if not _is_connection_string(connection):
        credential = DefaultAzureCredential()
        client = ServiceBusAdministrationClient(connection, credential)
        return Administrator(client, plan, credential)
    emulated = EMULATED in connection.lower()
    transport = {"transport": PlainTransport()} if emulated else {}
    try:
        client = ServiceBusAdministrationClient.from_connection_string(connection, **transport)
    except ValueError as error:
        raise ConnectionSettingError(_unusable(error)) from error
    return Administrator(client, plan)


def _is_connection_string(connection: str) -> bool:
    if not connection:
        raise ConnectionSettingError(
            "LUCIUS_SERVICEBUS_CONNECTION is empty: it takes a connection string of the namespace,"
            " or its name, such as NAME.servicebus.windows.net, for the identity of the process"
        )
    return "=" in connection


def _unusable(error: ValueError) -> str:
    return f"LUCIUS_SERVICEBUS_CONNECTION is no connection string of Service Bus: {error}"


class PlainTransport(AioHttpTransport):  # type: ignore[misc]  # the SDK loads it lazily, untyped
    """HTTP without TLS, which stand-ins and emulators speak; the SDK knows it only for messages."""

    async def send(self, request: Any, **config: Any) -> Any:
        request.url = "http:" + request.url.removeprefix("https:")
        return await super().send(request, **config)
