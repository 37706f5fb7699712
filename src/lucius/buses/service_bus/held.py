"""A sender or receiver with its socket. The SDK does not close the socket of a broken connection."""

import logging
from typing import Any, Generic, TypeVar

from azure.servicebus.aio import ServiceBusReceiver, ServiceBusSender

log = logging.getLogger(__name__)
H = TypeVar("H", ServiceBusReceiver, ServiceBusSender)


class Held(Generic[H]):
    def __init__(self, handler: H) -> None:
        self.handler: H = handler
        self._writer: Any = None

    async def open(self) -> None:
        """Open it. If that fails or is cancelled, the SDK may leave its socket open, too."""
        clients: list[Any] = []
        create = self.handler._create_handler

        def created(auth: Any) -> None:
            create(auth)
            clients.append(self.handler._handler)

        self.handler._create_handler = created  # type: ignore[method-assign]
        try:
            await self.handler.__aenter__()
        finally:
            for client in clients:
                connection = getattr(client, "_connection", None)
                self._writer = getattr(getattr(connection, "_transport", None), "writer", None)

    async def close(self) -> None:
        """Close it, which takes the SDK up to a second, and then the socket in any case."""
        try:
            await self.handler.close()
        except Exception as error:
            log.debug("a link could not be closed: %r", error)
        finally:
            if self._writer is not None:
                self._writer.close()
