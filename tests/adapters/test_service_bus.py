"""What is particular to the bus on Service Bus: limits, strangers, restarts, and what is missing."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from lucius.adapters.buses.service_bus import ServiceBus, intake
from lucius.adapters.buses.service_bus.administration import Plan
from lucius.adapters.buses.service_bus.connecting import ConnectionSettingError, open_service_bus
from lucius.adapters.buses.service_bus.wire import MissingEntityError, MissingRuleError
from lucius.core.errors import BusUnavailableError, PublishRefusedError
from lucius.dev.standins.service_bus import StandIn
from lucius.dev.standins.service_bus.queue import Queue
from lucius.ports.bus import Delivery, Message, Subscription
from tests.bus_looks import backlog, dead_letters

TOPICS = ("t0", "t1", "t2")
WAIT = timedelta(seconds=60)


@asynccontextmanager
async def opened(*, creates: bool = True) -> AsyncIterator[tuple[StandIn, ServiceBus]]:
    async with StandIn() as stand_in:
        bus = open_service_bus(stand_in.connection_string, Plan(), creates=creates)
        try:
            if creates:
                await bus.ensure([Subscription(topic, "w") for topic in TOPICS])
            yield stand_in, bus
        finally:
            await bus.close()


def queues(stand_in: StandIn) -> list[Queue]:
    found = (stand_in.broker.queue(f"{topic}/subscriptions/w") for topic in TOPICS)
    return [queue for queue in found if queue is not None]


def locked(stand_in: StandIn) -> int:
    return sum(len(queue.locked) for queue in queues(stand_in))


def nothing_locked(queue: Queue) -> bool:
    return not queue.locked


async def test_what_is_missing_is_named_and_nothing_is_created() -> None:
    async with opened(creates=False) as (stand_in, bus):
        stand_in.broker.create_topic("t0")
        with pytest.raises(MissingEntityError, match=r"t0/w.*lucius bus provision"):
            await bus.ensure([Subscription("t0", "w")])
        assert stand_in.broker.subscription("t0", "w") is None
        with pytest.raises(MissingEntityError, match="topic t9 does not exist"):
            await bus.publish("t9", [Message("m", {})])


async def test_a_subscription_without_a_rule_is_named() -> None:
    """It would get nothing, and the catch-all does not get what it should have had."""
    async with opened() as (stand_in, _):
        for rule in list(stand_in.broker.rules("t1/subscriptions/w")):
            stand_in.broker.topics["t1"].subscriptions["w"].remove(rule.name)
        running = open_service_bus(stand_in.connection_string, Plan(), creates=False)
        try:
            with pytest.raises(
                MissingRuleError, match=r"have no rule: t1/w\. `lucius bus provision"
            ):
                await running.ensure([Subscription(topic, "w") for topic in TOPICS])
        finally:
            await running.close()


async def test_messages_beyond_the_limit_are_given_back_uncounted() -> None:
    async with opened() as (stand_in, bus):
        for topic in TOPICS:
            await bus.publish(topic, [Message(topic, {})])
        taken = await bus.receive("w", TOPICS, 1, WAIT)
        assert len(taken) == 1
        async with asyncio.timeout(120):
            for queue in queues(stand_in):
                if not queue.name.startswith(taken[0].topic):
                    await queue.until(partial(nothing_locked, queue))
        await bus.complete(taken[0])
        rest: list[Delivery] = []
        while len(rest) < 2:
            rest += await bus.receive("w", TOPICS, 3, WAIT)
        assert {delivery.count for delivery in rest} == {1}


async def test_a_receiver_at_rest_locks_nothing() -> None:
    async with opened() as (stand_in, bus):
        assert not await bus.receive("w", TOPICS, 3, timedelta(milliseconds=10))
        queue = queues(stand_in)[0]
        async with asyncio.timeout(120):
            await queue.until(lambda: not any(outlet.credit for outlet in queue.outlets))
        await bus.publish("t0", [Message("m", {})])
        assert locked(stand_in) == 0


async def test_a_message_that_is_not_ours_is_set_aside_and_the_rest_goes_on() -> None:
    async with opened() as (stand_in, bus):
        client = ServiceBusClient.from_connection_string(stand_in.connection_string)
        async with client, client.get_topic_sender("t0") as sender:
            await sender.send_messages(ServiceBusMessage(b"<xml/>", message_id="stranger"))
        await bus.publish("t0", [Message("ours", {})])
        (delivery,) = await bus.receive("w", TOPICS, 1, WAIT)
        assert delivery.message.message_id == "ours"
        (letter,) = await dead_letters(bus, "w", ["t0"])
        assert (letter.message.message_id, letter.reason) == ("stranger", "NOT_OURS")


async def test_properties_that_are_no_text_keep_no_message_from_being_received() -> None:
    """AMQP has binary properties, and a client of another language may set one."""
    async with opened() as (stand_in, bus):
        client = ServiceBusClient.from_connection_string(stand_in.connection_string)
        async with client, client.get_topic_sender("t0") as sender:
            message = ServiceBusMessage(b"{}", message_id="binary")
            message.application_properties = {"trace": bytearray(b"\xff\x00"), "lane": 3}
            await sender.send_messages(message)
        (delivery,) = await bus.receive("w", TOPICS, 1, WAIT)
        assert delivery.message == Message("binary", {}, {"trace": "\ufffd\x00", "lane": 3})


async def test_a_message_that_is_too_large_is_refused_and_none_is_taken() -> None:
    async with opened() as (_, bus):
        large = Message("large", {"text": "x" * 2_000_000})
        with pytest.raises(PublishRefusedError, match="message large is larger than"):
            await bus.publish("t0", [Message("small", {}), large])
        assert await backlog(bus, "w", ["t0"]) == 0


@pytest.mark.parametrize(
    "properties",
    [{"a": 2**70}, {"a": "x" * 40_000}, {f"p{n}": "x" * 30_000 for n in range(3)}],
    ids=["the SDK cannot encode it", "a property is too large", "all properties are too large"],
)
async def test_properties_that_are_refused_stop_nothing_else(properties: dict[str, Any]) -> None:
    """By the SDK or by the broker: it is no outage."""
    async with opened() as (_, bus):
        with pytest.raises(PublishRefusedError):
            await bus.publish("t0", [Message("refused", {}, properties)])
        await bus.publish("t0", [Message("after", {})])
        assert await backlog(bus, "w", ["t0"]) == 1


async def test_what_the_broker_refuses_in_a_later_batch_is_still_no_outage() -> None:
    """Those of the batches before were taken, and come again when each is sent alone."""
    async with opened() as (_, bus):
        large = [Message(f"m{n}", {"text": "x" * 100_000}) for n in range(3)]
        refused = Message("refused", {}, {"a": "x" * 40_000})
        with pytest.raises(PublishRefusedError):
            await bus.publish("t0", [*large, refused])


async def test_a_restart_during_traffic_loses_nothing() -> None:
    async with opened() as (stand_in, bus):
        ids = [f"m{n}" for n in range(60)]
        seen: set[str] = set()

        async def publish() -> None:
            for one in ids:
                while True:
                    try:
                        await bus.publish(TOPICS[len(one) % 3], [Message(one, {})])
                        break
                    except BusUnavailableError:
                        await asyncio.sleep(0)

        async def consume() -> None:
            while len(seen) < len(ids):
                try:
                    for delivery in await bus.receive("w", TOPICS, 8, timedelta(seconds=1)):
                        await bus.complete(delivery)
                        seen.add(delivery.message.message_id)
                        if len(seen) in (15, 30):
                            await stand_in.stop()
                            await stand_in.start()
                except BusUnavailableError:
                    await asyncio.sleep(0)

        async with asyncio.timeout(240):
            await asyncio.gather(publish(), consume())
        assert seen == set(ids)


async def test_a_link_that_was_lost_without_a_word_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(intake, "POLL", timedelta(milliseconds=100))
    monkeypatch.setattr(intake, "STALE", timedelta(milliseconds=200))
    async with opened() as (stand_in, bus):
        assert not await bus.receive("w", TOPICS, 1, timedelta(milliseconds=10))
        for queue in queues(stand_in):
            queue.outlets.clear()
        await bus.publish("t0", [Message("m", {})])
        assert [d.message.message_id for d in await bus.receive("w", TOPICS, 1, WAIT)] == ["m"]


@pytest.mark.parametrize("connection", ["", "Endpoint=sb://x;SharedAccessKeyName=only"])
def test_a_connection_that_cannot_be_used_names_its_setting(connection: str) -> None:
    with pytest.raises(ConnectionSettingError, match="LUCIUS_SERVICEBUS_CONNECTION"):
        open_service_bus(connection, Plan(), creates=False)


async def test_a_namespace_that_cannot_be_reached_is_said_with_its_setting() -> None:
    async with opened(creates=False) as (stand_in, bus):
        await stand_in.stop()
        with pytest.raises(BusUnavailableError, match="SERVICEBUS_CONNECTION cannot be reached"):
            await bus.ensure([Subscription("t0", "w")])


async def test_the_sdk_tells_of_faults_only() -> None:
    chatty = logging.getLogger("azure.servicebus")
    chatty.setLevel(logging.NOTSET)
    async with opened(creates=False):
        assert chatty.level == logging.WARNING
