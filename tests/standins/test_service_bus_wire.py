"""The stand-in as the real SDK sees it: locks, counts, dead letters, expiry, duplicates, sessions."""

import asyncio
import socket
from contextlib import suppress
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus._common import message
from azure.servicebus.exceptions import (
    ServiceBusError,
)

from lucius.standins.service_bus.server import StandIn
from tests.standins.service_bus import connected, names, send


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
