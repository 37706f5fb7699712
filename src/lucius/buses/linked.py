"""The bus of another process, over a socket between the two.

`LinkedBus` is the bus as the process without one has it. `BusLink` is the other end: it does there what it is
asked. Replies and settlements go one way: they are out when the system has them, and nobody answers. That
fits a bus in memory, which refuses nothing. What the far process held when it went away comes again.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from datetime import timedelta
from typing import Any, Final

from orjson import Fragment

from lucius.buses.packets import Packets, encoded
from lucius.core.errors import BusError, BusUnavailableError, PublishRefusedError
from lucius.core.wire import ACK
from lucius.ports.bus import Bus, Delivery, Message, Subscription, check_ids

log = logging.getLogger(__name__)
ONE_WAY: Final = 0
"""The number of what nobody answers."""
GIVE_UP: Final = "give up"
"""Whoever asked this does not wait for the answer any more."""
Aside = Callable[[str, Any], None]
"""Called with a word and a value that are not for the bus: orders one way, reports the other."""


class LinkedBus:
    """Implements `lucius.ports.bus.Bus`, but that nobody hears of a lock that was lost at `complete`."""

    volatile = True
    by_tenant = True

    def __init__(self, heard: Aside, lost: Callable[[], None]) -> None:
        self.packets = Packets(self._received, self._lost)
        self._heard = heard
        self._gone = lost
        self._number = 0
        self._asked: dict[int, asyncio.Future[Any]] = {}

    def report(self, word: str, value: Any = None) -> None:
        self.packets.send((ONE_WAY, word, value))

    # -- the port ----------------------------------------------------------------------------

    async def ensure(self, subscriptions: Sequence[Subscription]) -> None:
        await self._ask("ensure", [_plain(each) for each in subscriptions])

    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        check_ids(messages)
        try:
            self.packets.send((ONE_WAY, "publish", topic, [_sendable(each) for each in messages]))
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
        chosen = None if tenants is None else list(tenants)
        asked = (name, list(topics), limit, wait.total_seconds(), chosen)
        return [_delivery(name, each) for each in await self._ask("receive", *asked)]

    async def complete(self, delivery: Delivery) -> None:
        """It is out before the work begins: what kills this process does not come again."""
        self.packets.send((ONE_WAY, "complete", delivery.lock_token))
        await self._sent()

    async def abandon(self, delivery: Delivery) -> None:
        await self._ask("abandon", delivery.lock_token)

    async def dead_letter(self, delivery: Delivery, reason: str, detail: str) -> None:
        await self._ask("dead_letter", delivery.lock_token, reason, detail)

    async def tell(self, address: str, message: Message) -> None:
        await self._ask("tell", address, _sendable(message))

    async def hear(self, address: str, wait: timedelta) -> Sequence[Message]:
        return [Message(*each) for each in await self._ask("hear", address, wait.total_seconds())]

    async def close(self) -> None:
        self.packets.close()

    # -- the link ----------------------------------------------------------------------------

    async def _ask(self, word: str, *values: Any) -> Any:
        self._number += 1
        number, answer = self._number, asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        self.packets.send((number, word, *values))
        try:
            return await answer
        except asyncio.CancelledError:
            if self._asked.pop(number, None) is not None:
                self.packets.send((ONE_WAY, GIVE_UP, number))
            elif not answer.cancelled() and answer.exception() is None:
                self._return(answer.result())
            raise

    def _received(self, values: list[Any]) -> None:
        for number, word, value in values:
            if number == ONE_WAY:
                self._heard(word, value)
                continue
            answer = self._asked.pop(number, None)
            if answer is None or answer.done():
                self._return(value)
            elif word == "done":
                answer.set_result(value)
            else:
                answer.set_exception(BusUnavailableError(value))

    def _return(self, value: Any) -> None:
        """What came for somebody who has gone meanwhile is given back, if it is messages."""
        for each in value if isinstance(value, list) else ():
            if len(each) == _DELIVERY:
                self.packets.send((ONE_WAY, "abandon", each[-2]))

    def _lost(self) -> None:
        asked, self._asked = self._asked, {}
        for answer in asked.values():
            if not answer.done():
                answer.set_exception(BusUnavailableError("the process that has the bus is gone"))
        self._gone()


class BusLink:
    """`heard` is told what is not for the bus, `lost` that the far process has gone."""

    def __init__(self, bus: Bus, heard: Aside, lost: Callable[[], None]) -> None:
        self.packets = Packets(self._received, self._lost)
        self._bus = bus
        self._heard = heard
        self._gone = lost
        self._held: dict[str, Delivery] = {}
        """What the far process has received and not settled, by its lock."""
        self._begun: set[object] = set()
        """Leases of these that it has acknowledged: their directives have done what they are for."""
        self._tasks: dict[asyncio.Task[None], int] = {}

    def order(self, word: str, value: Any = None) -> None:
        self.packets.send((ONE_WAY, word, value))

    def _received(self, values: list[Any]) -> None:
        """What goes one way is done in its order; what is asked may take its time."""
        one_way = [rest for number, *rest in values if number == ONE_WAY]
        if one_way:
            self._spawn(ONE_WAY, self._follow(one_way))
        for number, word, *rest in values:
            if number != ONE_WAY:
                self._spawn(number, self._answer(number, word, rest))

    def _spawn(self, number: int, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = number
        task.add_done_callback(self._tasks.pop)

    async def _follow(self, values: list[Any]) -> None:
        for word, *rest in values:
            try:
                match word:
                    case "publish":
                        topic, messages = rest[0], [Message(*each) for each in rest[1]]
                        self._begun.update(_acknowledged(messages))
                        await self._bus.publish(topic, messages)
                    case "complete":
                        await self._bus.complete(self._settled(rest[0]))
                    case "abandon":
                        await self._bus.abandon(self._settled(rest[0]))
                    case _ if word == GIVE_UP:
                        self._give_up(rest[0])
                    case _:
                        self._heard(word, *rest)
            except BusError as error:
                log.info("%s of the process beside: %s", word, error)
            except Exception:
                log.exception("%s of the process beside", word)

    def _give_up(self, number: int) -> None:
        for task, asked in self._tasks.items():
            if asked == number:
                task.cancel()

    async def _answer(self, number: int, word: str, values: list[Any]) -> None:
        try:
            self.packets.send((number, "done", await self._done(word, *values)))
        except BusError as error:
            self.packets.send((number, "failed", str(error)))
        except Exception as error:
            log.exception("%s of the process beside", word)
            self.packets.send((number, "failed", repr(error)))

    async def _done(self, word: str, *values: Any) -> Any:
        match word, values:
            case "ensure", [subscriptions]:
                return await self._bus.ensure([_subscription(each) for each in subscriptions])
            case "receive", [name, topics, limit, wait, tenants]:
                seconds = timedelta(seconds=wait)
                found = await self._bus.receive(name, topics, limit, seconds, tenants)
                return [each for one in found for each in await self._handed_out(one)]
            case "abandon", [token]:
                return await self._bus.abandon(self._settled(token))
            case "dead_letter", [token, reason, detail]:
                return await self._bus.dead_letter(self._settled(token), reason, detail)
            case "tell", [address, message]:
                return await self._bus.tell(address, Message(*message))
            case "hear", [address, wait]:
                heard = await self._bus.hear(address, timedelta(seconds=wait))
                return [_sendable(each) for each in heard]
        raise BusUnavailableError(f"{word} is not known here")

    async def _handed_out(self, delivery: Delivery) -> list[Fragment]:
        """One that cannot be sent is set aside, and takes no other with it."""
        try:
            content = Fragment(encoded(_received(delivery)))
        except TypeError as error:
            await self._bus.dead_letter(delivery, "NOT_JSON", str(error))
            return []
        self._held[delivery.lock_token] = delivery
        return [content]

    def _settled(self, token: str) -> Delivery:
        held = self._held.pop(token, None)
        if held is None:
            raise BusUnavailableError(f"nothing is held under {token}")
        self._begun.discard(held.message.body.get("lease_id"))
        return held

    def _lost(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        held, self._held = list(self._held.values()), {}
        task = asyncio.get_running_loop().create_task(self._give_back(held))
        self._tasks[task] = ONE_WAY
        task.add_done_callback(self._tasks.pop)
        self._gone()

    async def _give_back(self, held: Sequence[Delivery]) -> None:
        """All but what was begun: whoever ends its lease has it done again, under another one."""
        for each in held:
            begun = each.message.body.get("lease_id") in self._begun
            try:
                await (self._bus.complete(each) if begun else self._bus.abandon(each))
            except BusError as error:
                log.info("%s comes again: %s", each.message.message_id, error)


_DELIVERY: Final = 6


def _acknowledged(messages: Sequence[Message]) -> Iterator[object]:
    for each in messages:
        if each.body.get("type") == ACK:
            yield each.body.get("lease_id")


def _sendable(message: Message) -> tuple[Any, ...]:
    return message.message_id, message.body, message.properties


def _received(delivery: Delivery) -> tuple[Any, ...]:
    return *_sendable(delivery.message), delivery.topic, delivery.lock_token, delivery.count


def _delivery(name: str, value: Sequence[Any]) -> Delivery:
    message_id, body, properties, topic, token, count = value
    return Delivery(Message(message_id, body, properties), topic, name, token, count)


def _plain(spec: Subscription) -> tuple[Any, ...]:
    times = (spec.lock.total_seconds(), spec.max_deliveries)
    return (
        spec.topic,
        spec.name,
        spec.filters,
        spec.catch_all,
        *times,
        spec.by_topic,
        spec.addressed,
    )


def _subscription(value: Sequence[Any]) -> Subscription:
    topic, name, filters, catch_all, lock, most, by_topic, addressed = value
    taken = {each: tuple(values) for each, values in filters.items()}
    return Subscription(
        topic, name, taken, catch_all, timedelta(seconds=lock), most, by_topic, addressed
    )
