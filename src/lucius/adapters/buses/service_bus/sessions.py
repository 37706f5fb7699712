"""Hears what is told to one address: a session of one subscription that all workers share.

A session is opened by its name, with the right Listen alone, and holds what is told before it is opened.
When its lock runs out the broker closes it, and it is opened again.
"""

import asyncio
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from typing import Final

from azure.servicebus import ServiceBusReceiveMode
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver

from lucius.adapters.buses.service_bus.intake import POLL, Intake
from lucius.adapters.buses.service_bus.wire import ADDRESS, LONGEST, NotOursError, incoming
from lucius.core.errors import LockLostError
from lucius.ports.bus import NOTICES, Message

LOOK: Final = 0.1
"""Seconds that one look takes at least."""


def session_of(address: str) -> str:
    return address if len(address) <= LONGEST else sha256(address.encode()).hexdigest()


def addressed(address: str, message: Message) -> Message:
    return replace(message, properties={**message.properties, ADDRESS: session_of(address)})


class SessionInbox:
    """`prefix`: what the names of topics begin with on Service Bus."""

    def __init__(self, address: str, client: ServiceBusClient, prefix: str = "") -> None:
        self._client = client
        self._topic = f"{prefix}{NOTICES.topic}"
        self._session = session_of(address)
        self._intake = Intake(NOTICES.topic, NOTICES.name, self._opened)

    def _opened(self) -> ServiceBusReceiver:
        return self._client.get_subscription_receiver(
            self._topic,
            NOTICES.name,
            session_id=self._session,
            receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE,
        )

    async def receive(self, wait: timedelta) -> list[Message]:
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + wait.total_seconds()
        while True:
            left = timedelta(seconds=max(LOOK, give_up_at - loop.time()))
            message = await self._polled(min(POLL, left))
            if message is not None or loop.time() >= give_up_at:
                return [] if message is None else [message]

    async def _polled(self, wait: timedelta) -> Message | None:
        try:
            found = await self._intake.poll(wait)
            return None if found is None else incoming(found)
        except (LockLostError, NotOursError):
            return None

    async def close(self) -> None:
        await self._intake.close()
