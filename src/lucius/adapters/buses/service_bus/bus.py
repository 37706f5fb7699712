"""Azure Service Bus as a bus: durable, shared by processes, filtered by rules of its subscriptions."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final

from azure.core.exceptions import AzureError
from azure.identity.aio import DefaultAzureCredential
from azure.servicebus import ServiceBusMessageBatch, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from azure.servicebus.exceptions import MessageSizeExceededError

from lucius.adapters.buses.service_bus.intake import Held, Intake
from lucius.adapters.buses.service_bus.sessions import SessionInbox, addressed
from lucius.adapters.buses.service_bus.subscriber import Locks, Subscriber
from lucius.adapters.buses.service_bus.wire import (
    MissingEntityError,
    MissingRuleError,
    mapped,
    outgoing,
    refuses_content,
)
from lucius.core.errors import BusUnavailableError, PublishRefusedError
from lucius.ports.bus import (
    MARK,
    NOTICES,
    Broker,
    Delivery,
    Message,
    Provisioner,
    Subscription,
    check_ids,
)

# Sends to one topic, in batches, through a sender that stays open.


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


AT_ONCE: Final = 16
"""Receivers that are opened at the same time."""


class ServiceBus:
    """`provisioner` None: what is missing is named, not created.

    `prefix`: what the names of topics begin with on Service Bus.
    `credential`: that of the client, which does not close it.
    """

    def __init__(
        self,
        client: ServiceBusClient,
        provisioner: Provisioner | None = None,
        *,
        prefix: str = "",
        credential: DefaultAzureCredential | None = None,
    ) -> None:
        self._client = client
        self._credential = credential
        self._prefix = prefix
        self._provisioner = provisioner
        self._locks = Locks()
        self._senders: dict[str, TopicSender] = {}
        self._subscribers: dict[str, Subscriber] = {}
        self._notice_inboxes: dict[str, SessionInbox] = {}

    @property
    def broker(self) -> Broker:
        return Broker("servicebus", self._client.fully_qualified_namespace, prefix=self._prefix)

    @property
    def volatile(self) -> bool:
        return False

    async def ensure(self, subscriptions: Sequence[Subscription]) -> None:
        if self._provisioner is not None:
            await self._provisioner.provision(subscriptions)
        gate = asyncio.Semaphore(AT_ONCE)
        missing: list[str] = []
        unruled: list[str] = []

        async def check(wanted: Subscription) -> None:
            async with gate:
                try:
                    await self._subscriber(wanted.name).intake(wanted.topic).check()
                except MissingEntityError:
                    missing.append(f"{wanted.topic}/{wanted.name}")
                except MissingRuleError:
                    unruled.append(f"{wanted.topic}/{wanted.name}")

        await asyncio.gather(*(check(each) for each in subscriptions))
        marks = [each for each in missing if f"/{MARK}" in each]
        if marks and marks == missing:
            raise MissingEntityError(
                f"Service Bus has no subscription {marks[0]}: these topics belong to another deployment,"
                " or to none so far. `lucius bus provision` says which, and creates the mark of this one"
            )
        if missing:
            raise MissingEntityError(
                f"these subscriptions are missing on Service Bus: {_some(missing)}."
                " `lucius bus provision` creates them"
            )
        if unruled:
            raise MissingRuleError(
                "no message reaches these subscriptions on Service Bus, because they have no rule:"
                f" {_some(unruled)}. `lucius bus provision` creates their rules"
            )

    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        if topic not in self._senders:
            self._senders[topic] = TopicSender(
                topic, lambda: self._client.get_topic_sender(f"{self._prefix}{topic}")
            )
        await self._senders[topic].send(messages)

    @property
    def by_tenant(self) -> bool:
        return False

    async def receive(
        self,
        name: str,
        topics: Sequence[str],
        limit: int,
        wait: timedelta,
        tenants: Collection[str] | None = None,
    ) -> Sequence[Delivery]:
        return await self._subscriber(name).receive(topics, limit, wait)

    def _subscriber(self, name: str) -> Subscriber:
        if name not in self._subscribers:
            self._subscribers[name] = Subscriber(
                name, lambda topic: self._intake(topic, name), self._locks
            )
        return self._subscribers[name]

    def _intake(self, topic: str, name: str) -> Intake:
        opens = partial(self._client.get_subscription_receiver, f"{self._prefix}{topic}", name)
        return Intake(topic, name, opens)

    # -- settling ----------------------------------------------------------------------------

    async def complete(self, delivery: Delivery) -> None:
        await self._settle(delivery, lambda r, m: r.complete_message(m))

    async def abandon(self, delivery: Delivery) -> None:
        await self._settle(delivery, lambda r, m: r.abandon_message(m))

    async def dead_letter(self, delivery: Delivery, reason: str, detail: str) -> None:
        await self._settle(
            delivery,
            lambda r, m: r.dead_letter_message(m, reason=reason, error_description=detail),
        )

    async def _settle(
        self,
        delivery: Delivery,
        how: Callable[[ServiceBusReceiver, ServiceBusReceivedMessage], Awaitable[Any]],
    ) -> None:
        intake, message = self._locks.pop(delivery)
        try:
            await intake.settle(message, lambda receiver: how(receiver, message))
        except BusUnavailableError:
            self._locks.put_back(delivery, (intake, message))
            raise

    # -- telling -----------------------------------------------------------------------------

    async def send_notice(self, address: str, message: Message) -> None:
        await self.publish(NOTICES.topic, [addressed(address, message)])

    async def receive_notices(self, address: str, wait: timedelta) -> Sequence[Message]:
        if address not in self._notice_inboxes:
            if self._provisioner is not None:
                await self._provisioner.provision([NOTICES])
            self._notice_inboxes[address] = SessionInbox(address, self._client, self._prefix)
        return await self._notice_inboxes[address].receive(wait)

    # -- looking -----------------------------------------------------------------------------

    async def close(self) -> None:
        await asyncio.gather(
            *(inbox.close() for inbox in self._notice_inboxes.values()),
            *(subscriber.close() for subscriber in self._subscribers.values()),
            *(sender.close() for sender in self._senders.values()),
        )
        if self._provisioner is not None:
            await self._provisioner.close()
        await self._client.close()
        if self._credential is not None:
            await self._credential.close()


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(sorted(names)[:5]) + more
