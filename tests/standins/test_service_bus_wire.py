"""The stand-in as the real SDK sees it: locks, counts, dead letters, expiry, duplicates, sessions."""

import asyncio
import socket
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus._common import message
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageSizeExceededError,
    MessagingEntityNotFoundError,
    ServiceBusError,
)

from lucius.dev.standins.service_bus.broker import TopicOptions
from lucius.dev.standins.service_bus.queue import QueueOptions
from lucius.dev.standins.service_bus.server import StandIn
from tests.standins.service_bus import connected, names, seconds, send


async def test_messages_come_in_order_and_are_settled() -> None:
    async with connected() as (_, client):
        await send(client, "1", "2", "3")
        async with client.get_subscription_receiver("t", "w") as receiver:
            one, two, three = await receiver.receive_messages(3, max_wait_time=5)
            assert names([one, two, three]) == ["1", "2", "3"]
            await receiver.complete_message(one)
            await receiver.abandon_message(two)
            await receiver.dead_letter_message(three, reason="BAD", error_description="why")
            (again,) = await receiver.receive_messages(1, max_wait_time=5)
            assert (again.message_id, again.delivery_count) == ("2", 1)
            assert names(await receiver.peek_messages(9, sequence_number=1)) == ["2"]
        dead = client.get_subscription_receiver("t", "w", sub_queue=ServiceBusSubQueue.DEAD_LETTER)
        async with dead:
            (letter,) = await dead.peek_messages(9, sequence_number=1)
            assert letter.dead_letter_reason == "BAD"
            assert letter.dead_letter_error_description == "why"


async def test_a_renewed_lock_holds_and_a_lost_one_is_refused() -> None:
    async with connected(QueueOptions(lock=seconds(30))) as (stand_in, client):
        await send(client, "1")
        async with client.get_subscription_receiver("t", "w") as receiver:
            (message,) = await receiver.receive_messages(1, max_wait_time=5)
            before = message.locked_until_utc
            await receiver.renew_message_lock(message)
            assert before is not None
            assert message.locked_until_utc is not None
            assert message.locked_until_utc >= before
            queue = stand_in.broker.queue("t/subscriptions/w")
            assert queue is not None
            queue.locked.clear()
            with pytest.raises(MessageLockLostError):
                await receiver.complete_message(message)


async def test_what_has_expired_is_set_aside() -> None:
    options = QueueOptions(dead_letter_expired=True)
    async with connected(options) as (_, client):
        async with client.get_topic_sender("t") as sender:
            await sender.send_messages(ServiceBusMessage(b"{}", time_to_live=seconds(0.001)))
        dead = client.get_subscription_receiver("t", "w", sub_queue=ServiceBusSubQueue.DEAD_LETTER)
        async with dead:
            (letter,) = await dead.receive_messages(1, max_wait_time=5)
            assert letter.dead_letter_reason == "TTLExpiredException"


async def test_a_duplicate_is_dropped() -> None:
    topic = TopicOptions(duplicate_window=seconds(60))
    async with connected(topic=topic) as (_, client):
        await send(client, "1", "1", "2")
        async with client.get_subscription_receiver("t", "w") as receiver:
            assert names(await receiver.peek_messages(9, sequence_number=1)) == ["1", "2"]


async def test_a_session_is_one_receivers() -> None:
    async with connected(QueueOptions(sessions=True)) as (_, client):
        await send(client, "a1", session="a")
        await send(client, "b1", session="b")
        await send(client, "a2", session="a")
        async with client.get_subscription_receiver(
            "t", "w", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=5
        ) as receiver:
            assert names(await receiver.receive_messages(2, max_wait_time=5)) == ["a1", "a2"]
            other = client.get_subscription_receiver("t", "w", session_id="a")
            with pytest.raises(ServiceBusError):
                await other.receive_messages(1, max_wait_time=1)


async def test_what_is_not_there_or_too_large_is_refused_by_name() -> None:
    async with connected() as (_, client):
        with pytest.raises(MessagingEntityNotFoundError, match="t/Subscriptions/nobody"):
            await client.get_subscription_receiver("t", "nobody").receive_messages(
                1, max_wait_time=1
            )
        async with client.get_topic_sender("t") as sender:
            with pytest.raises(MessageSizeExceededError):
                await sender.send_messages(ServiceBusMessage(b"x" * 300_000))


@pytest.mark.parametrize("name", ["message_id", "session_id"])
async def test_an_id_of_more_than_128_characters_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The SDK looks at it too. Other clients may not."""
    monkeypatch.setattr(message, "MESSAGE_PROPERTY_MAX_LENGTH", 1000)
    async with connected() as (_, client), client.get_topic_sender("t") as sender:
        long: dict[str, Any] = {name: "x" * 129}
        with pytest.raises(ServiceBusError, match="longer than 128 characters"):
            await sender.send_messages(ServiceBusMessage(b"{}", **long))
        longest: dict[str, Any] = {name: "x" * 128}
        await sender.send_messages(ServiceBusMessage(b"{}", **longest))


@pytest.mark.parametrize(
    ("value", "said"),
    [({"a": 1}, "type of property p is not supported"), ([1, 2], "not supported")],
)
async def test_a_property_of_a_compound_type_is_refused(value: Any, said: str) -> None:
    async with connected() as (_, client), client.get_topic_sender("t") as sender:
        with pytest.raises(ServiceBusError, match=said):
            await sender.send_messages(
                ServiceBusMessage(b"{}", application_properties={"p": value})
            )


async def test_properties_beyond_the_quotas_are_refused() -> None:
    async with connected() as (_, client), client.get_topic_sender("t") as sender:
        for count, size in ((1, 32_768), (3, 30_000)):
            given: dict[Any, Any] = {f"p{n}": "x" * size for n in range(count)}
            with pytest.raises(MessageSizeExceededError):
                await sender.send_messages(ServiceBusMessage(b"{}", application_properties=given))


async def test_what_is_not_supported_says_so() -> None:
    async with connected() as (_, client), client.get_topic_sender("t") as sender:
        with pytest.raises(ServiceBusError, match="not-implemented"):
            await sender.schedule_messages(ServiceBusMessage(b"{}"), datetime.now(UTC))


async def test_messages_survive_the_server() -> None:
    async with connected() as (stand_in, client):
        await send(client, "1")
        await stand_in.stop()
        await stand_in.start()
        async with client.get_subscription_receiver("t", "w") as receiver:
            assert names(await receiver.receive_messages(1, max_wait_time=5)) == ["1"]


@pytest.mark.parametrize("turns", range(3, 8))
async def test_a_connection_that_comes_as_the_broker_stops_is_closed(turns: int) -> None:
    """However many turns of the loop ago it was accepted. In earlier turns asyncio alone knows it."""
    stand_in = StandIn()
    await stand_in.start()
    with socket.create_connection(("127.0.0.1", stand_in.port)) as client:
        client.setblocking(False)
        for _ in range(turns):
            await asyncio.sleep(0)
        await stand_in.stop()
        async with asyncio.timeout(30):
            with suppress(ConnectionResetError):
                assert await asyncio.get_running_loop().sock_recv(client, 1) == b""
