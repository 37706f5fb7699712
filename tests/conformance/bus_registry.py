"""The buses that the suite runs on. A new adapter is one class here and one line in `ADAPTERS`.

The suite asks for capabilities, never for names, and never assumes that time can be bent.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol
from uuid import uuid4

from lucius.adapters.buses.memory import MemoryBus
from lucius.adapters.buses.nats import NatsBus
from lucius.adapters.buses.service_bus.administration import Plan
from lucius.adapters.buses.service_bus.connecting import open_service_bus
from lucius.core.errors import BusError
from lucius.dev.standins.service_bus import StandIn
from lucius.ports.bus import Bus, Delivery, Message, Property, Subscription
from tests.bus_looks import dead_letters
from tests.conformance.on_every import SERVER
from tests.nats_server import shared_server
from tests.virtual import VirtualLoop, run_virtually

OUTAGE = "outage"
"""The adapter can be cut off from its broker and connected again."""
REFUSAL = "refusal"
"""The adapter can be made to refuse a publish."""
TOPICS = "topics"
"""A receiver may name some topics of a subscription, and topics take turns."""
EXACT_WAKE = "exact wake"
"""A waiting receiver is woken by the publish itself, in no time at all."""
SETTLED = "settled"
"""Whoever settles a message hears whether its lock still held."""
BY_TENANT = "by tenant"
"""A receiver can ask for the messages of some tenants alone."""

ENCODES = "encodes"
"""Messages leave the process as JSON."""
SIZES = "sizes"
"""The broker bounds the size of a message."""


@dataclass
class Harness:
    """One bus under test, with names that no other test uses."""

    bus: Bus
    capabilities: frozenset[str]
    lock: timedelta
    """The shortest lock that the broker grants."""
    advance: Callable[[float], Awaitable[None]]
    """Let that many seconds go by for the broker."""
    fail_with: Callable[[BusError | None], None] = lambda error: None
    by_topic: bool = False
    """Whether subscriptions are received by topic, where nothing else is said."""
    prefix: str = field(default_factory=lambda: uuid4().hex[:8])
    patience: timedelta = timedelta(seconds=60)
    """How long a message that is certain to come may take."""

    def topic(self, name: str = "a") -> str:
        return f"{self.prefix}-{name}"

    async def subscribe(
        self,
        name: str = "worker",
        topic: str = "a",
        *,
        catch_all: bool = False,
        max_deliveries: int = 10,
        **filters: tuple[Property, ...],
    ) -> None:
        await self.bus.ensure(
            [
                Subscription(
                    self.topic(topic),
                    name,
                    filters,
                    catch_all=catch_all,
                    lock=self.lock,
                    max_deliveries=max_deliveries,
                    by_topic=self.by_topic,
                )
            ]
        )

    async def publish(self, *ids: str, topic: str = "a", **properties: Property) -> None:
        messages = [Message(one, {"said": one}, properties) for one in ids]
        await self.bus.publish(self.topic(topic), messages)

    async def receive(self, name: str = "worker", *topics: str, limit: int = 1) -> list[Delivery]:
        """What is certain to come."""
        named = [self.topic(topic) for topic in topics or ("a",)]
        return list(await self.bus.receive(name, named, limit, self.patience))

    async def one(self, name: str = "worker", *topics: str) -> Delivery:
        (delivery,) = await self.receive(name, *topics)
        return delivery

    async def nothing(self, name: str = "worker", *topics: str) -> bool:
        named = [self.topic(topic) for topic in topics or ("a",)]
        return not await self.bus.receive(name, named, 10, timedelta(milliseconds=50))

    async def dead(self, name: str = "worker", topic: str = "a") -> list[tuple[str, str]]:
        letters = await dead_letters(self.bus, name, [self.topic(topic)])
        return [(letter.message.message_id, letter.reason) for letter in letters]


Body = Callable[[Harness], Awaitable[None]]


class Adapter(Protocol):
    name: str
    capabilities: frozenset[str]

    def run(self, body: Body) -> None:
        """Run one test against a fresh bus, from connecting to closing."""


class MemoryAdapter:
    name = "memory"
    capabilities = frozenset({OUTAGE, REFUSAL, TOPICS, EXACT_WAKE, SETTLED, BY_TENANT})

    def run(self, body: Body) -> None:
        async def main(loop: VirtualLoop) -> None:
            bus = MemoryBus()
            harness = Harness(
                bus, self.capabilities, timedelta(seconds=30), asyncio.sleep, bus.fail_with
            )
            try:
                await body(harness)
            finally:
                await bus.close()

        run_virtually(main)


class NatsAdapter:
    """On a real server. An outage is its end by SIGKILL, and its return on the same folder."""

    def __init__(self, name: str, *more: str, by_topic: bool) -> None:
        self.name = name
        self.capabilities = frozenset({OUTAGE, SETTLED, ENCODES, SIZES, SERVER, *more})
        self._by_topic = by_topic

    def run(self, body: Body) -> None:
        server = shared_server()
        server.start()

        def fail_with(error: BusError | None) -> None:
            server.start() if error is None else server.kill()

        async def main() -> None:
            bus = NatsBus([server.url], system=f"t-{uuid4().hex[:8]}")
            lock = timedelta(seconds=1)
            harness = Harness(
                bus, self.capabilities, lock, asyncio.sleep, fail_with, self._by_topic
            )
            try:
                await body(harness)
            finally:
                await bus.close()

        asyncio.run(main())


class ServiceBusAdapter:
    """The real SDK before the stand-in, or before LUCIUS_SERVICEBUS_CONNECTION where it is set."""

    def __init__(self) -> None:
        self.name = "servicebus"
        self._given = os.environ.get("LUCIUS_SERVICEBUS_CONNECTION", "")
        always = frozenset({SETTLED, TOPICS, ENCODES, SIZES, SERVER})
        self.capabilities = always if self._given else always | {OUTAGE}

    def run(self, body: Body) -> None:
        async def main() -> None:
            async with AsyncExitStack() as stack:
                stand_in = None if self._given else await stack.enter_async_context(StandIn())
                connection = self._given or stand_in_connection(stand_in)
                bus = open_service_bus(
                    connection, Plan(lock=None, max_deliveries=None), creates=True
                )
                stack.push_async_callback(bus.close)

                def fail_with(error: BusError | None) -> None:
                    assert stand_in is not None
                    if error is None:
                        stand_in.restore()
                    else:
                        stand_in.cut_off()

                lock = timedelta(seconds=5 if self._given else 2)
                await body(Harness(bus, self.capabilities, lock, asyncio.sleep, fail_with))

        asyncio.run(main())


def stand_in_connection(stand_in: StandIn | None) -> str:
    assert stand_in is not None
    return stand_in.connection_string


ADAPTERS: tuple[Adapter, ...] = (
    MemoryAdapter(),
    NatsAdapter("nats", by_topic=False),
    NatsAdapter("nats by topic", TOPICS, by_topic=True),
    ServiceBusAdapter(),
)
