"""The locks that this process holds: the SDK's receiver and message for each delivery."""

from datetime import UTC, datetime
from typing import Final

from azure.servicebus import ServiceBusReceivedMessage

from lucius.buses.service_bus.intake import Intake
from lucius.core.errors import LockLostError
from lucius.ports.bus import Delivery

MANY: Final = 4096
"""From this number of locks on, expired ones are removed."""


class Locks:
    def __init__(self) -> None:
        self._held: dict[str, tuple[Intake, ServiceBusReceivedMessage]] = {}

    def add(self, source: Intake, message: ServiceBusReceivedMessage) -> str:
        if len(self._held) >= MANY:
            self._forget_lost()
        token = str(message.lock_token)
        self._held[token] = (source, message)
        return token

    def pop(self, delivery: Delivery) -> tuple[Intake, ServiceBusReceivedMessage]:
        """Take the lock for a settlement. A second settlement finds none."""
        found = self._held.pop(delivery.lock_token, None)
        if found is None:
            raise LockLostError(f"the lock on {delivery.message.message_id} is gone")
        return found

    def put_back(self, delivery: Delivery, held: tuple[Intake, ServiceBusReceivedMessage]) -> None:
        """Keep the lock, because the broker was away and the settlement can be tried again."""
        self._held[delivery.lock_token] = held

    def _forget_lost(self) -> None:
        now = datetime.now(UTC)
        for token, (_, message) in list(self._held.items()):
            until = message.locked_until_utc
            if until is not None and until < now:
                del self._held[token]
