"""The locks that this process holds: which receiver and message of the SDK each delivery is."""

from datetime import UTC, datetime
from typing import Final

from azure.servicebus import ServiceBusReceivedMessage

from lucius.buses.service_bus.intake import Intake
from lucius.core.errors import LockLostError
from lucius.ports.bus import Delivery

MANY: Final = 4096
"""So many locks and more are looked through for those that ran out."""


class Locks:
    def __init__(self) -> None:
        self._held: dict[str, tuple[Intake, ServiceBusReceivedMessage]] = {}

    def add(self, intake: Intake, message: ServiceBusReceivedMessage) -> str:
        if len(self._held) >= MANY:
            self._forget_lost()
        token = str(message.lock_token)
        self._held[token] = (intake, message)
        return token

    def pop(self, delivery: Delivery) -> tuple[Intake, ServiceBusReceivedMessage]:
        """Whoever settles takes the lock; a second time there is none."""
        found = self._held.pop(delivery.lock_token, None)
        if found is None:
            raise LockLostError(f"the lock on {delivery.message.message_id} is gone")
        return found

    def put_back(self, delivery: Delivery, held: tuple[Intake, ServiceBusReceivedMessage]) -> None:
        """The settlement failed for want of a broker: it may be tried again."""
        self._held[delivery.lock_token] = held

    def _forget_lost(self) -> None:
        now = datetime.now(UTC)
        for token, (_, message) in list(self._held.items()):
            until = message.locked_until_utc
            if until is not None and until < now:
                del self._held[token]
