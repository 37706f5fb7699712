"""Looks at what a bus holds, past its port: the product takes messages and never counts them."""

from collections.abc import Iterator, Sequence

from azure.servicebus import ServiceBusReceivedMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusReceiver
from nats.js.errors import NotFoundError

from lucius.adapters.buses.memory import MemoryBus
from lucius.adapters.buses.nats import NatsBus
from lucius.adapters.buses.nats.session import decoded, token, topic_of
from lucius.adapters.buses.service_bus.administration import Administrator
from lucius.adapters.buses.service_bus.bus import ServiceBus
from lucius.adapters.buses.service_bus.wire import seen
from lucius.adapters.buses.subscriptions import DeadLetter, Queue
from lucius.ports.bus import Bus
from lucius.system.spans import TracedBus


async def dead_letters(bus: Bus, name: str, topics: Sequence[str]) -> list[DeadLetter]:
    """What was set aside."""
    match bus:
        case TracedBus():
            return await dead_letters(bus._bus, name, topics)
        case MemoryBus():
            return [letter for queue in _queues(bus, name, topics) for letter in queue.dead]
        case NatsBus():
            return [letter for letter in await _set_aside(bus, name) if letter.topic in topics]
        case ServiceBus():
            return [letter for topic in topics for letter in await _dead(bus, name, topic)]
    raise AssertionError(f"nobody knows how to look into {bus}")


async def backlog(bus: Bus, name: str, topics: Sequence[str]) -> int:
    """How many messages wait or are locked."""
    match bus:
        case TracedBus():
            return await backlog(bus._bus, name, topics)
        case MemoryBus():
            queues = _queues(bus, name, topics)
            return sum(queue.ready + len(queue.locked) for queue in queues)
        case NatsBus():
            return await _stored(bus, name, topics)
        case ServiceBus():
            return sum([await _counted(bus, name, topic) for topic in topics])
    raise AssertionError(f"nobody knows how to look into {bus}")


def _queues(bus: MemoryBus, name: str, topics: Sequence[str]) -> Iterator[Queue]:
    return (queue for topic in topics if (queue := bus._queues.get((topic, name))) is not None)


# -- NATS ------------------------------------------------------------------------------------


async def _set_aside(bus: NatsBus, name: str) -> list[DeadLetter]:
    found: list[DeadLetter] = []
    js, place = (await bus._connection.get()).session.js, 1
    stream, subject = bus._names.dead_stream, f"{bus._names.system}.dead.*.{token(name)}"
    while True:
        try:
            stored = await js.get_msg(stream, place, subject, direct=True, next=True)
        except NotFoundError:
            return found
        message, beside = decoded(stored.data or b"")
        topic = topic_of(stored.subject or "")
        found.append(DeadLetter(message, topic, name, beside["reason"], beside["detail"]))
        place = (stored.seq or place) + 1


async def _stored(bus: NatsBus, name: str, topics: Sequence[str]) -> int:
    js, subjects = (await bus._connection.get()).session.js, bus._names.all_subjects(name)
    info = await js.stream_info(bus._names.stream, subjects_filter=subjects)
    counts = info.state.subjects or {}
    return sum(count for subject, count in counts.items() if topic_of(subject) in topics)


# -- Service Bus -----------------------------------------------------------------------------


async def _counted(bus: ServiceBus, name: str, topic: str) -> int:
    """Asked of the management API: a receiver of a session would see that session only."""
    administrator = bus._provisioner
    assert isinstance(administrator, Administrator)
    said = await administrator._client.get_subscription_runtime_properties(topic, name)
    return said.active_message_count or 0


async def _dead(bus: ServiceBus, name: str, topic: str) -> list[DeadLetter]:
    aside = ServiceBusSubQueue.DEAD_LETTER
    async with bus._client.get_subscription_receiver(topic, name, sub_queue=aside) as receiver:
        return [_letter(topic, name, message) for message in await _peeked(receiver)]


async def _peeked(receiver: ServiceBusReceiver) -> list[ServiceBusReceivedMessage]:
    """All that wait or are locked, without taking them."""
    found: list[ServiceBusReceivedMessage] = []
    following = 1
    while page := await receiver.peek_messages(100, sequence_number=following):
        found += page
        following = (page[-1].sequence_number or 0) + 1
    return found


def _letter(topic: str, name: str, message: ServiceBusReceivedMessage) -> DeadLetter:
    reason = message.dead_letter_reason or ""
    return DeadLetter(
        seen(message), topic, name, reason, message.dead_letter_error_description or ""
    )
