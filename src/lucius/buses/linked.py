"""What the server and the process of its services have instead of a bus: packets of many over a socket.

`ServicesLink` is the server's end. It hands out directives as far as the services have room, holds each until
its ACK, and passes replies on. `LinkedBus` is the other end: the bus as the services have it. All goes one
way and in order, and nobody answers. Directives that were not begun when that process dies come again.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any

from orjson import Fragment

from lucius.buses.memory import MemoryBus
from lucius.buses.packets import Packets, encoded
from lucius.core.bounds import SLOTS
from lucius.core.errors import BusError, BusUnavailableError, PublishRefusedError
from lucius.core.wire import ACK
from lucius.ports.bus import Bus, Delivery, Message, Subscription

log = logging.getLogger(__name__)


class Word(StrEnum):
    """How each value begins that is for the bus. Others are orders, or reports."""

    SUBSCRIBE = "subscribe"
    ROOM = "room"
    DIRECTIVES = "directives"
    REPLIES = "replies"
    COMPLETE = "complete"
    ABANDON = "abandon"
    SET_ASIDE = "set aside"


Body = Mapping[str, Any]
Aside = Callable[[str, Any], None]
"""Called with a word and a value that are not for the bus: orders one way, reports the other."""
Took = Callable[[Sequence[Body]], bool]
"""Takes replies. False: it has enough, and `until_room` says when it takes more."""


@dataclass(slots=True)
class _Queue:
    """Directives of one subscription that have come and were not received yet."""

    ready: deque[Delivery] = field(default_factory=deque)
    came: int = 0
    """How many have come, ever."""
    announced: int = 0
    """Up to which number more may come."""
    waiting: asyncio.Future[None] | None = None


class LinkedBus:
    """The bus of services whose server is the process beside: directives come in, replies go out."""

    volatile = True
    by_tenant = False

    def __init__(self, heard: Aside, lost: Callable[[], None]) -> None:
        self.packets = Packets(self._received, lost)
        self._heard = heard
        self._queues: dict[str, _Queue] = {}

    def report(self, word: str, value: Any = None) -> None:
        self.packets.send((word, value))

    # -- the port ----------------------------------------------------------------------------

    async def ensure(self, subscriptions: Sequence[Subscription]) -> None:
        self.packets.send(
            (Word.SUBSCRIBE, [(each.topic, each.name, each.filters) for each in subscriptions])
        )
        await self._sent()

    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        """An ACK is out when this returns, before the work begins: whoever dies by it was heard of."""
        try:
            self.packets.send((Word.REPLIES, [each.body for each in messages]))
        except TypeError as error:
            raise PublishRefusedError(f"a message to {topic} is not JSON: {error}") from error
        await self._sent()

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
        """One receiver has a name. It says how many it can take; others are not sent."""
        queue = self._queues.setdefault(name, _Queue())
        upto = queue.came + limit - len(queue.ready)
        if upto > queue.announced:
            queue.announced = upto
            self.packets.send((Word.ROOM, name, list(topics), upto))
        if not queue.ready:
            queue.waiting = asyncio.get_running_loop().create_future()
            await asyncio.wait((queue.waiting,), timeout=wait.total_seconds())
        return [queue.ready.popleft() for _ in range(min(limit, len(queue.ready)))]

    async def complete(self, delivery: Delivery) -> None:
        self.packets.send((Word.COMPLETE, delivery.lock_token))

    async def abandon(self, delivery: Delivery) -> None:
        self.packets.send((Word.ABANDON, delivery.lock_token))
        await self._sent()

    async def dead_letter(self, delivery: Delivery, reason: str, detail: str) -> None:
        self.packets.send((Word.SET_ASIDE, delivery.lock_token, reason, detail))
        await self._sent()

    async def tell(self, address: str, message: Message) -> None:
        raise BusUnavailableError("services of the process beside tell nobody anything")

    async def hear(self, address: str, wait: timedelta) -> Sequence[Message]:
        """Nothing: what these services must hear are orders of the server."""
        await asyncio.sleep(wait.total_seconds())
        return ()

    async def close(self) -> None:
        self.packets.close()

    # -- the link ----------------------------------------------------------------------------

    def _received(self, values: list[Any]) -> None:
        for word, *rest in values:
            if word == Word.DIRECTIVES:
                self._came(*rest)
            else:
                self._heard(word, *rest)

    def _came(self, name: str, directives: Sequence[Sequence[Any]]) -> None:
        queue = self._queues[name]
        queue.came += len(directives)
        for token, message_id, topic, count, body in directives:
            queue.ready.append(Delivery(Message(message_id, body), topic, name, token, count))
        if queue.waiting is not None and not queue.waiting.done():
            queue.waiting.set_result(None)


@dataclass(slots=True)
class _Receiver:
    """A subscription of the services over there: how many directives it may have been sent, ever."""

    name: str
    topics: frozenset[str]
    upto: int = 0
    sent: int = 0


class ServicesLink:
    """`replies` takes replies, `heard` is told what is not for the bus, `lost` that the process has gone.

    `until_room`: returns when `replies` takes more. Until then nothing is read from the socket.
    """

    def __init__(
        self,
        bus: Bus,
        replies: Took,
        until_room: Callable[[], Any],
        heard: Aside,
        lost: Callable[[], None],
    ) -> None:
        self.packets = Packets(self._received, self._lost)
        self._bus = bus
        self._replies = replies
        self._until_room = until_room
        self._heard = heard
        self._gone = lost
        self._receivers: dict[str, _Receiver] = {}
        self._held: dict[str, Delivery] = {}
        """Directives that the services have and did not begin, by their locks."""
        self._leases: dict[object, str] = {}
        """Their locks by lease."""
        self._waking = False
        self._pause: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()

    def order(self, word: str, value: Any = None) -> None:
        self.packets.send((word, value))

    # -- what comes --------------------------------------------------------------------------

    def _received(self, values: list[Any]) -> None:
        replies: list[Body] = []
        for value in values:
            try:
                word, *rest = value
                if word == Word.REPLIES:
                    replies += [each for each in rest[0] if isinstance(each, dict)]
                else:
                    self._follow(word, *rest)
            except BusError as error:
                log.info("%s of the process beside: %s", value[0], error)
            except Exception:
                log.exception("the process beside says what nobody understands")
        if replies:
            self._take(replies)

    def _take(self, replies: Sequence[Body]) -> None:
        for body in replies:
            if body.get("type") == ACK:
                self._settle(self._leases.get(body.get("lease_id"), ""))
        if not self._replies(replies) and self._pause is None:
            self.packets.pause_reading()
            self._pause = self._loop.create_task(self._read_again())

    async def _read_again(self) -> None:
        await self._until_room()
        self._pause = None
        self.packets.resume_reading()

    def _follow(self, word: str, *values: Any) -> None:
        match word, values:
            case Word.SUBSCRIBE, [subscriptions]:
                self._memory.subscribe([_subscription(*each) for each in subscriptions])
            case Word.ROOM, [name, topics, upto]:
                self._make_room(name, topics, upto)
            case Word.COMPLETE, [token]:
                self._settle(token)
            case Word.ABANDON, [token]:
                self._memory.put_back(self._taken(token))
            case Word.SET_ASIDE, [token, reason, detail]:
                self._memory.set_aside(self._taken(token), reason, detail)
            case _:
                self._heard(word, *values)

    @property
    def _memory(self) -> MemoryBus:
        """Only services without a bus of their own send and take anything here."""
        assert isinstance(self._bus, MemoryBus), "the services have a bus of their own"
        return self._bus

    # -- directives --------------------------------------------------------------------------

    def _make_room(self, name: str, topics: Sequence[str], upto: int) -> None:
        receiver = self._receivers.get(name)
        if receiver is None:
            receiver = self._receivers[name] = _Receiver(name, frozenset(topics))
            self._memory.attend(name, self._wake)
        receiver.upto = upto
        self._send(receiver)

    def _wake(self) -> None:
        """Something was published: send it with all that is published in this turn of the loop."""
        if not self._waking:
            self._waking = True
            self._loop.call_soon(self._send_all)

    def _send_all(self) -> None:
        self._waking = False
        for receiver in self._receivers.values():
            self._send(receiver)

    def _send(self, receiver: _Receiver) -> None:
        room = min(receiver.upto - receiver.sent, SLOTS.high)
        if room < 1 or not self.packets.connected:
            return
        taken = self._memory.take(receiver.name, receiver.topics, room)
        directives = [each for one in taken for each in self._handed_out(one)]
        if directives:
            receiver.sent += len(directives)
            self.packets.send((Word.DIRECTIVES, receiver.name, directives))

    def _handed_out(self, delivery: Delivery) -> list[Fragment]:
        """One that cannot be sent is set aside, and takes no other with it."""
        message, token = delivery.message, delivery.lock_token
        said = (token, message.message_id, delivery.topic, delivery.count, message.body)
        try:
            content = Fragment(encoded(said))
        except TypeError as error:
            self._memory.set_aside(delivery, "NOT_JSON", str(error))
            return []
        self._held[token] = delivery
        self._leases[message.body.get("lease_id")] = token
        return [content]

    def _taken(self, token: str) -> Delivery:
        held = self._held.pop(token, None)
        if held is None:
            raise BusUnavailableError(f"nothing is held under {token}")
        self._leases.pop(held.message.body.get("lease_id"), None)
        return held

    def _settle(self, token: str) -> None:
        """Its ACK has settled it, or what has no ACK is done with."""
        if token in self._held:
            self._memory.settle(self._taken(token))

    def _lost(self) -> None:
        """What was not begun comes again. Whoever ends the leases of the rest has them done again."""
        if self._pause is not None:
            self._pause.cancel()
        for name in self._receivers:
            self._memory.leave(name, self._wake)
        for token in reversed(self._held):
            try:
                self._memory.put_back(self._held[token])
            except BusError as error:
                log.info("%s comes again: %s", self._held[token].message.message_id, error)
        self._held.clear()
        self._gone()


def _subscription(topic: str, name: str, filters: Mapping[str, Sequence[Any]]) -> Subscription:
    return Subscription(topic, name, {each: tuple(values) for each, values in filters.items()})
