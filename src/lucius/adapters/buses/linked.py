"""What the server and the process of its services have instead of a bus: packets of many over a socket.

`ServicesLink` is the server's end. It takes directives from the bus in memory as far as the services have
room, holds each until its ACK, and passes replies on without a bus. `LinkedBus` is the other end: the bus as
the services have it. Everything goes one way and in order, and nothing is answered. When the process dies,
the directives that it held go back to the bus.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import Any, Final

from lucius.adapters.buses.memory import MemoryBus
from lucius.adapters.buses.packets import NotSendableError, Packets, encoded
from lucius.adapters.buses.subscriptions import Waiter
from lucius.core.errors import BusError, BusUnavailableError, LockLostError, PublishRefusedError
from lucius.core.limits import SLOTS
from lucius.core.wire import ACK
from lucius.ports.bus import IN_MEMORY, Delivery, Message, Subscription

log = logging.getLogger("lucius.buses.linked")
NOT_SENDABLE: Final = "NOT_SENDABLE"


class Word(StrEnum):
    """How each value begins that is for the bus. Others are orders, or reports."""

    SUBSCRIBE = "subscribe"
    CAPACITY = "room"
    DIRECTIVE = "directive"
    REPLY = "reply"
    COMPLETE = "complete"
    ABANDON = "abandon"
    SET_ASIDE = "set aside"


Aside = Callable[[str, Any], None]
"""Called with a word and a value that are not for the bus: orders one way, reports the other."""
Took = Callable[[Sequence[Mapping[str, Any]]], bool]
"""Takes replies. False: it has enough for now."""


@dataclass(slots=True)
class _Inbox:
    """Directives of one subscription that have come and were not received yet."""

    ready: deque[Delivery] = field(default_factory=deque)
    came: int = 0
    """How many have come, ever."""
    announced: int = 0
    """Up to which number more may come."""
    waiting: asyncio.Future[None] | None = None


class LinkedBus:
    """The bus of services whose server is the process beside. Locks are named after leases."""

    broker = IN_MEMORY
    volatile = True
    by_tenant = False

    def __init__(self, heard: Aside, lost: Callable[[], None]) -> None:
        self.packets = Packets(self._received, lost)
        self._heard = heard
        self._inboxes: dict[str, _Inbox] = {}
        self._acknowledged: set[object] = set()
        """Leases whose ACK is out and whose directive is not completed yet."""

    def report(self, word: str, value: Any = None) -> None:
        self.packets.send((word, value))

    # -- the port ----------------------------------------------------------------------------

    async def ensure(self, subscriptions: Sequence[Subscription]) -> None:
        for each in subscriptions:
            self.packets.send((Word.SUBSCRIBE, each.topic, each.name, each.filters))
        await self._sent()

    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        """The system has them on return. So the server hears the ACK of a step that kills this process."""
        try:
            for each in messages:
                self.packets.send((Word.REPLY, each.body))
        except NotSendableError as error:
            raise PublishRefusedError(f"a message to {topic} cannot be sent: {error}") from error
        await self._sent()
        for each in messages:
            if each.body.get("type") == ACK:
                self._acknowledged.add(each.body.get("lease_id"))

    async def _sent(self) -> None:
        try:
            await self.packets.sent()
        except ConnectionError as error:
            raise BusUnavailableError(str(error)) from error

    async def receive(
        self,
        name: str,
        topics: Sequence[str],
        limit: int,
        wait: timedelta,
        tenants: Collection[str] | None = None,
    ) -> Sequence[Delivery]:
        """Each name has one receiver. The server sends it no more than it has said it can take."""
        inbox = self._inboxes.setdefault(name, _Inbox())
        upto = inbox.came + limit - len(inbox.ready)
        if upto > inbox.announced:
            inbox.announced = upto
            self.packets.send((Word.CAPACITY, name, list(topics), upto))
        if not inbox.ready:
            inbox.waiting = asyncio.get_running_loop().create_future()
            await asyncio.wait((inbox.waiting,), timeout=wait.total_seconds())
        return [inbox.ready.popleft() for _ in range(min(limit, len(inbox.ready)))]

    async def complete(self, delivery: Delivery) -> None:
        """Its ACK has completed it, if one was sent."""
        if delivery.lock_token in self._acknowledged:
            self._acknowledged.remove(delivery.lock_token)
        else:
            self.packets.send((Word.COMPLETE, delivery.lock_token))

    async def abandon(self, delivery: Delivery) -> None:
        self.packets.send((Word.ABANDON, delivery.lock_token))
        await self._sent()

    async def dead_letter(self, delivery: Delivery, reason: str, detail: str) -> None:
        self.packets.send((Word.SET_ASIDE, delivery.lock_token, reason, detail))
        await self._sent()

    async def send_notice(self, address: str, message: Message) -> None:
        raise BusUnavailableError("services of the process beside tell nobody anything")

    async def receive_notices(self, address: str, wait: timedelta) -> Sequence[Message]:
        """Nothing: what these services must hear are orders of the server."""
        await asyncio.sleep(wait.total_seconds())
        return ()

    async def close(self) -> None:
        self.packets.close()

    # -- the link ----------------------------------------------------------------------------

    def _received(self, values: list[Any]) -> None:
        for word, *said in values:
            if word == Word.DIRECTIVE:
                self._came(*said)
            else:
                self._heard(word, *said)

    def _came(
        self, name: str, lease_id: str, message_id: str, topic: str, count: int, body: Any
    ) -> None:
        inbox = self._inboxes[name]
        inbox.came += 1
        inbox.ready.append(Delivery(Message(message_id, body), topic, name, lease_id, count))
        if inbox.waiting is not None and not inbox.waiting.done():
            inbox.waiting.set_result(None)


@dataclass(slots=True)
class _Receiver:
    """A subscription of the services over there: how many directives it may have been sent, ever."""

    name: str
    topics: frozenset[str]
    upto: int = 0
    sent: int = 0
    in_line: Waiter | None = None


class ServicesLink:
    """`replies` takes replies, `heard` is told what is not for the bus, `lost` that the process has gone.

    `bus`: where directives wait; None: only replies and reports come this way. `until_capacity` returns when
    `replies` takes more. Until then nothing is read from the socket.
    """

    def __init__(
        self,
        bus: MemoryBus | None,
        replies: Took,
        until_capacity: Callable[[], Awaitable[None]],
        heard: Aside,
        lost: Callable[[], None],
    ) -> None:
        self.packets = Packets(self._received, self._lost)
        self._bus = bus
        self._replies = replies
        self._until_capacity = until_capacity
        self._heard = heard
        self._gone = lost
        self._receivers: dict[str, _Receiver] = {}
        self._held: dict[str, Delivery] = {}
        """Directives that the services have and have not acknowledged, by their leases."""
        self._pause: asyncio.Task[None] | None = None
        self._to_the_end = False

    def order(self, word: str, value: Any = None) -> None:
        self.packets.send((word, value))

    def read_to_the_end(self) -> None:
        """The process ends, or has ended: read what it has said, whether there is room for it or not."""
        self._to_the_end = True
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
            self.packets.resume_reading()

    # -- what comes --------------------------------------------------------------------------

    def _received(self, values: list[Any]) -> None:
        """Whatever the values are, neither this process nor the rest of the packet suffers by one of them."""
        replies, faulty = [], []
        for value in values:
            match value:
                case [Word.REPLY, dict(body)]:
                    self._acknowledged(body)
                    replies.append(body)
                case _:
                    if not self._followed(value):
                        faulty.append(value)
        if faulty:
            said = (len(faulty), faulty[0])
            log.error(
                "%d of the things that the services' process says make no sense: %.200r", *said
            )
        if replies and not self._replies(replies) and not self._to_the_end and self._pause is None:
            self.packets.pause_reading()
            self._pause = asyncio.get_running_loop().create_task(self._read_again())

    async def _read_again(self) -> None:
        await self._until_capacity()
        self._pause = None
        self.packets.resume_reading()

    def _acknowledged(self, body: Mapping[str, Any]) -> None:
        lease_id = body.get("lease_id")
        if body.get("type") == ACK and isinstance(lease_id, str):
            self._end(lease_id, MemoryBus.settle)

    def _followed(self, value: Any) -> bool:
        try:
            match value:
                case [Word.SUBSCRIBE, str(topic), str(name), dict(filters)]:
                    taken = {each: tuple(values) for each, values in filters.items()}
                    self._memory.subscribe([Subscription(topic, name, taken)])
                case [Word.CAPACITY, str(name), list(topics), int(upto)]:
                    self._make_room(name, topics, upto)
                case [Word.COMPLETE, str(lease_id)]:
                    self._end(lease_id, MemoryBus.settle)
                case [Word.ABANDON, str(lease_id)]:
                    self._end(lease_id, MemoryBus.put_back)
                case [Word.SET_ASIDE, str(lease_id), str(reason), str(detail)]:
                    self._end(lease_id, lambda bus, held: bus.set_aside(held, reason, detail))
                case [str(word), said]:
                    self._heard(word, said)
                case _:
                    return False
        except Exception as error:
            log.debug("the services' process: %r", error)
            return False
        return True

    @property
    def _memory(self) -> MemoryBus:
        assert self._bus is not None, "only replies come this way"
        return self._bus

    # -- directives --------------------------------------------------------------------------

    def _make_room(self, name: str, topics: Sequence[str], upto: int) -> None:
        receiver = self._receivers.get(name)
        if receiver is None:
            receiver = self._receivers[name] = _Receiver(name, frozenset(topics))
        receiver.upto = max(receiver.upto, min(upto, receiver.sent + SLOTS.high))
        if receiver.in_line is None:
            self._send(receiver)

    def _send(self, receiver: _Receiver) -> None:
        """Send what there is room for. While there is room for more, stand in line with other receivers."""
        capacity = receiver.upto - receiver.sent
        if capacity < 1 or not self.packets.connected:
            return
        try:
            taken = self._memory.take(receiver.name, receiver.topics, capacity)
        except BusError as error:
            log.info("no directives for the services' process: %s", error)
            taken = []
        for delivery in taken:
            receiver.sent += self._handed_out(receiver.name, delivery)
        self._leave_line(receiver)
        if len(taken) < capacity:
            woken = partial(self._woken, receiver)
            receiver.in_line = self._memory.line_up(receiver.name, receiver.topics, woken)

    def _woken(self, receiver: _Receiver) -> None:
        if receiver.in_line is not None:
            self._send(receiver)

    def _leave_line(self, receiver: _Receiver) -> None:
        waiter, receiver.in_line = receiver.in_line, None
        if waiter is not None:
            self._memory.leave(receiver.name, waiter)

    def _handed_out(self, name: str, delivery: Delivery) -> bool:
        """A directive that cannot be sent is set aside, and takes no other with it."""
        message = delivery.message
        lease_id = str(message.body.get("lease_id"))
        said = (lease_id, message.message_id, delivery.topic, delivery.count, message.body)
        try:
            content = encoded((Word.DIRECTIVE, name, *said))
        except NotSendableError as error:
            self._memory.set_aside(delivery, NOT_SENDABLE, str(error))
            return False
        self._held[lease_id] = delivery
        self.packets.put(content)
        return True

    def _end(self, lease_id: str, how: Callable[[MemoryBus, Delivery], None]) -> None:
        """Hold it no more. A lock that has run out is no matter: the directive has come again."""
        held = self._held.pop(lease_id, None)
        if held is not None:
            with suppress(LockLostError):
                how(self._memory, held)

    def _lost(self) -> None:
        """What was not begun comes again. The leases of the rest are ended, and others follow them."""
        self.read_to_the_end()
        for receiver in self._receivers.values():
            self._leave_line(receiver)
        for lease_id in reversed(list(self._held)):
            self._end(lease_id, MemoryBus.put_back)
        self._gone()
