"""Sends to one topic, in batches, through a sender that stays open."""

import asyncio
from collections.abc import Callable, Sequence

from azure.core.exceptions import AzureError
from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusSender
from azure.servicebus.exceptions import MessageSizeExceededError

from lucius.buses.service_bus.faults import mapped, refuses_content
from lucius.buses.service_bus.held import Held
from lucius.buses.service_bus.wire import outgoing
from lucius.core.errors import BusUnavailableError, PublishRefusedError
from lucius.ports.bus import Message, check_ids


class TopicSender:
    """Sends one batch at a time, because the SDK's sender cannot do more."""

    def __init__(self, topic: str, opens: Callable[[], ServiceBusSender]) -> None:
        self._subject = f"topic {topic}"
        self._opens = opens
        self._held: Held[ServiceBusSender] | None = None
        self._turn = asyncio.Lock()

    async def send(self, messages: Sequence[Message]) -> None:
        """Send. A sender that has lost its connection is replaced once: the broker may have restarted."""
        check_ids(messages)
        async with self._turn:
            fresh = self._held is None
            try:
                await self._try(messages)
            except BusUnavailableError:
                if fresh:
                    raise
                await self._try(messages)

    async def _try(self, messages: Sequence[Message]) -> None:
        try:
            with mapped(self._subject):
                if self._held is None:
                    self._held = Held(self._opens())
                    await self._held.open()
                await self._send(self._held.handler, messages)
        except BusUnavailableError:
            await self._drop()
            raise

    async def _send(self, sender: ServiceBusSender, messages: Sequence[Message]) -> None:
        """Make all batches before the first is sent: what the SDK refuses is found before any is taken."""
        batches = await self._batches(sender, messages)
        for batch in batches:
            try:
                await sender.send_messages(batch)
            except AzureError as error:
                if refuses_content(error):
                    raise PublishRefusedError(f"{self._subject}: {error}") from error
                raise

    async def _batches(
        self, sender: ServiceBusSender, messages: Sequence[Message]
    ) -> list[ServiceBusMessageBatch]:
        batches: list[ServiceBusMessageBatch] = []
        for message in messages:
            if batches and self._fits(batches[-1], message):
                continue
            batches.append(await sender.create_message_batch())
            if not self._fits(batches[-1], message):
                raise PublishRefusedError(
                    f"{self._subject}: message {message.message_id} is larger than the"
                    f" {batches[-1].max_size_in_bytes} bytes that the namespace takes"
                )
        return batches

    def _fits(self, batch: ServiceBusMessageBatch, message: Message) -> bool:
        """Encode it into the batch. This asks nobody, so every error but its size is for its content."""
        try:
            batch.add_message(outgoing(message))
        except MessageSizeExceededError:
            return False
        except Exception as error:
            raise PublishRefusedError(
                f"{self._subject}: the SDK refuses message {message.message_id}: {error}"
            ) from error
        return True

    async def _drop(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            await held.close()

    async def close(self) -> None:
        async with self._turn:
            await self._drop()
