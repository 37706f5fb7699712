"""Sessions of the stand-in as the real SDK sees them: taken, waited for, renewed, given back, lost."""

import asyncio

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)

from lucius.dev.standins.service_bus import StandIn
from lucius.dev.standins.service_bus.queue import Queue, QueueOptions
from tests.standins.service_bus import connected, names, send

SESSIONS = QueueOptions(sessions=True)


def next_session(client: ServiceBusClient, wait: float = 30) -> ServiceBusReceiver:
    return client.get_subscription_receiver(
        "t", "w", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=wait
    )


def queue_of(stand_in: StandIn) -> Queue:
    queue = stand_in.broker.queue("t/subscriptions/w")
    assert queue is not None
    return queue


async def test_a_receiver_waits_for_a_session() -> None:
    async with connected(SESSIONS) as (_, client):
        receiver = next_session(client)
        opening = asyncio.create_task(receiver.__aenter__())
        await send(client, "a1", session="a")
        await opening
        assert receiver.session.session_id == "a"
        assert names(await receiver.receive_messages(1, max_wait_time=30)) == ["a1"]
        await receiver.close()


async def test_a_wait_ends_when_there_is_no_session() -> None:
    async with connected(SESSIONS) as (_, client):
        with pytest.raises(OperationTimeoutError):
            await next_session(client, 0.1).__aenter__()


async def test_the_next_session_is_one_that_nobody_has() -> None:
    async with connected(SESSIONS) as (_, client):
        await send(client, "a1", session="a")
        await send(client, "b1", session="b")
        async with next_session(client) as first, next_session(client) as second:
            assert (first.session.session_id, second.session.session_id) == ("a", "b")
            with pytest.raises(SessionCannotBeLockedError):
                await client.get_subscription_receiver("t", "w", session_id="a").__aenter__()


async def test_a_session_that_is_closed_goes_back_uncounted_and_a_lost_one_counted() -> None:
    async with connected(SESSIONS) as (stand_in, client):
        await send(client, "a1", session="a")
        async with next_session(client) as closed:
            await closed.receive_messages(1, max_wait_time=30)
        async with next_session(client) as lost:
            (message,) = await lost.receive_messages(1, max_wait_time=30)
            assert message.delivery_count == 0
            queue_of(stand_in).sessions.expire("a")
            with pytest.raises((SessionLockLostError, ServiceBusError)):
                await lost.complete_message(message)
        async with next_session(client) as again:
            (message,) = await again.receive_messages(1, max_wait_time=30)
            assert message.delivery_count == 1
            await again.complete_message(message)


async def test_a_session_is_renewed_while_it_is_held_only() -> None:
    async with connected(SESSIONS) as (stand_in, client):
        await send(client, "a1", session="a")
        async with next_session(client) as receiver:
            held = queue_of(stand_in).sessions
            before = held.until("a")
            await receiver.session.renew_lock()
            assert held.until("a") > before
            held.expire("a")
            with pytest.raises(ServiceBusError):
                await receiver.session.renew_lock()


async def test_a_message_without_a_session_is_set_aside() -> None:
    async with connected(SESSIONS) as (_, client):
        await send(client, "m1")
        dead = client.get_subscription_receiver("t", "w", sub_queue=ServiceBusSubQueue.DEAD_LETTER)
        async with dead:
            (letter,) = await dead.receive_messages(1, max_wait_time=30)
            assert letter.dead_letter_reason == "Session ID is null"


@pytest.mark.parametrize("sessions", [True, False])
async def test_receivers_of_the_other_kind_are_refused(sessions: bool) -> None:
    async with connected(QueueOptions(sessions=sessions)) as (_, client):
        other = client.get_subscription_receiver("t", "w") if sessions else next_session(client)
        with pytest.raises(ServiceBusError, match="not-allowed"):
            await other.__aenter__()
