"""What the tests of the stand-in share: a topic `t` with the subscription `w`, and the real SDK before it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient

from lucius.dev.standins.service_bus import StandIn
from lucius.dev.standins.service_bus.broker import TopicOptions
from lucius.dev.standins.service_bus.queue import QueueOptions


@asynccontextmanager
async def connected(
    queue: QueueOptions | None = None, topic: TopicOptions | None = None
) -> AsyncIterator[tuple[StandIn, ServiceBusClient]]:
    async with StandIn() as stand_in:
        stand_in.broker.create_topic("t", topic)
        stand_in.broker.subscribe("t", "w", queue)
        async with ServiceBusClient.from_connection_string(
            stand_in.connection_string, retry_total=0
        ) as client:
            yield stand_in, client


async def send(client: ServiceBusClient, *ids: str, session: str | None = None) -> None:
    async with client.get_topic_sender("t") as sender:
        batch = await sender.create_message_batch()
        for one in ids:
            batch.add_message(ServiceBusMessage(b"{}", message_id=one, session_id=session))
        await sender.send_messages(batch)


def names(messages: Sequence[ServiceBusReceivedMessage]) -> list[str | None]:
    return [message.message_id for message in messages]


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)
