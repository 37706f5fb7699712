"""Azure Service Bus as a bus: durable, shared by processes, filtered by rules of its subscriptions."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final

from azure.identity.aio import DefaultAzureCredential
from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver

from lucius.buses.service_bus.faults import MissingEntityError, MissingRuleError
from lucius.buses.service_bus.hearing import SessionEar, addressed
from lucius.buses.service_bus.intake import Intake
from lucius.buses.service_bus.locks import Locks
from lucius.buses.service_bus.sending import TopicSender
from lucius.buses.service_bus.subscriber import Subscriber
from lucius.core.errors import BusUnavailableError
from lucius.ports.bus import MARK, NOTICES, Broker, Delivery, Message, Provisioner, Subscription

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
        self._hearing: dict[str, SessionEar] = {}

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

    async def tell(self, address: str, message: Message) -> None:
        await self.publish(NOTICES.topic, [addressed(address, message)])

    async def hear(self, address: str, wait: timedelta) -> Sequence[Message]:
        if address not in self._hearing:
            if self._provisioner is not None:
                await self._provisioner.provision([NOTICES])
            self._hearing[address] = SessionEar(address, self._client, self._prefix)
        return await self._hearing[address].heard(wait)

    # -- looking -----------------------------------------------------------------------------

    async def close(self) -> None:
        await asyncio.gather(
            *(hearing.close() for hearing in self._hearing.values()),
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
