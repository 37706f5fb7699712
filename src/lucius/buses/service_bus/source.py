"""What a subscriber asks for messages: one subscription of one topic, with or without sessions."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusReceiver

Settlement = Callable[[ServiceBusReceiver], Awaitable[Any]]


class Source(Protocol):
    @property
    def topic(self) -> str: ...

    @property
    def subject(self) -> str:
        """Its name in messages for people."""

    async def check(self) -> None:
        """Fail if the subscription does not exist or cannot be received from."""

    async def poll(self) -> ServiceBusReceivedMessage | None:
        """One message; or none after a while, or when it was interrupted."""

    def interrupt(self) -> None:
        """End a poll that only waits."""

    async def settle(self, message: ServiceBusReceivedMessage, how: Settlement) -> None:
        """Settle a message through the receiver that has its lock."""

    async def release(self, message: ServiceBusReceivedMessage) -> None:
        """Give a message back without raising its delivery count."""

    async def rest(self) -> None:
        """Nobody waits any more: lock nothing in vain."""

    async def close(self) -> None: ...
