"""Receives from a subscription topic by topic. One request for each topic stays open at the broker.

Messages beyond a receiver's limit wait here, locked, for the next receive. A receive asks for its
limit in all, but for at least one message of each topic.
"""

import asyncio
import json
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Any, Final

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as Inbox

from lucius.adapters.buses.nats.session import (
    ANSWER,
    ENDS,
    GOES_ON,
    Names,
    NothingDeliveredError,
    Session,
    Status,
    consumer_name,
    status_of,
    token,
    topic_of,
)
from lucius.core.errors import BusUnavailableError

# One receive of a whole subscription. It takes no more than was asked for, and leaves no request behind.


class Pull:
    """Asks for messages that are there. If none are, waits for one, and asks for those that came with it.

    It never waits with a request for many: one that outlived the receive would lock messages for nobody.
    """

    def __init__(self, session: Session, subject: str) -> None:
        self._session = session
        self._subject = subject
        self._arrived: list[Msg] = []
        self._left = 0
        self._end: Status | None = None
        self._moved = asyncio.Event()
        self._address = session.client.new_inbox()
        self._inbox: Inbox | None = None

    async def take(self, limit: int, wait: timedelta) -> Sequence[Msg]:
        self._inbox = await self._session.listen(self._address, self._heard)
        await self._ask(limit, {"no_wait": True}, ANSWER)
        if not self._arrived and wait > timedelta():
            seconds = wait.total_seconds()
            await self._ask(1, {"expires": int(seconds * 1e9)}, seconds + ANSWER)
            if self._arrived and limit > 1:
                await self._ask(limit - 1, {"no_wait": True}, ANSWER)
        await self._session.asked(self._inbox.unsubscribe())
        return self._arrived

    async def _ask(self, batch: int, how: dict[str, Any], patience: float) -> None:
        """Ask once, and return when the broker has sent all or says that there are no more."""
        self._left, self._end = batch, None
        ask = json.dumps({"batch": batch, **how}).encode()
        asking = self._session.client.publish(self._subject, ask, reply=self._address)
        await self._session.asked(asking)
        try:
            await self._session.asked(asyncio.wait_for(self._answered(), patience))
        except BusUnavailableError:
            if not self._arrived:
                raise
        if self._end is not None and self._end.code not in ENDS and not self._arrived:
            raise NothingDeliveredError(self._end)

    async def _answered(self) -> None:
        while self._left > 0 and self._end is None:
            self._moved.clear()
            await self._moved.wait()

    def _heard(self, message: Msg) -> None:
        if message.reply:
            self._arrived.append(message)
            self._left -= 1
        elif (status := status_of(message)).code != GOES_ON:
            self._end = status
        self._moved.set()

    async def give_up(self) -> Sequence[Msg]:
        """End the request. The caller gives back the messages that had come by then."""
        if self._inbox is not None and not self._session.is_lost:
            with suppress(BusUnavailableError):  # it may have been taken back already
                await self._session.asked(self._inbox.drain())  # type: ignore[no-untyped-call]
        return self._arrived


STANDS: Final = 30.0
"""Seconds that a request stays open; then it is made again."""
LOOK: Final = 0.1
"""Seconds that a receive waits at least: the broker does not say that an open request found nothing."""


@dataclass(slots=True)
class _Asked:
    reply: str
    left: int
    until: float


class OpenPulls:
    def __init__(self, names: Names, name: str, give_back: Callable[[Msg], None]) -> None:
        self._names = names
        self._name = name
        self._give_back = give_back
        self._session: Session | None = None
        self._address = ""
        self._asked: dict[str, _Asked] = {}
        """The open requests, by topic."""
        self._numbers = count(1)
        self._fault: Status | None = None
        self._kept: OrderedDict[str, deque[tuple[float, Msg]]] = OrderedDict()
        """Messages that wait, by topic, each with its arrival. The topic that is next in turn comes first."""
        self._wanted: frozenset[str] = frozenset()
        self._waiters: set[asyncio.Event] = set()

    async def take(
        self, session: Session, topics: Sequence[str], limit: int, wait: timedelta, lock: float
    ) -> Sequence[Msg]:
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + max(wait.total_seconds(), LOOK)
        await self._use(session)
        self._want(frozenset(topics))
        while True:
            taken = self._taken(limit, loop.time() - lock)
            if taken or loop.time() >= give_up_at:
                return taken
            await self._ask(session, topics, max(1, limit // len(topics)), loop.time())
            await self._arrival(session, give_up_at - loop.time())
            if self._fault is not None:
                fault, self._fault = self._fault, None
                raise NothingDeliveredError(fault)

    async def _use(self, session: Session) -> None:
        """Use a new session. The requests of the earlier one are gone; its messages are still locked here."""
        if session is not self._session:
            self._session, self._asked, self._fault = session, {}, None
            self._address = session.client.new_inbox()
            await session.listen(f"{self._address}.*.*", self._heard)

    def _want(self, topics: frozenset[str]) -> None:
        """Receive from these topics. Messages of other topics that wait here are given back."""
        self._wanted = topics
        for topic in [topic for topic in self._kept if topic not in topics]:
            for _, message in self._kept.pop(topic):
                self._give_back(message)

    def _taken(self, limit: int, not_before: float) -> list[Msg]:
        """Messages that wait, one of each topic in turn. Those whose lock may have expired are dropped."""
        taken: list[Msg] = []
        while self._kept and len(taken) < limit:
            topic, kept = next(iter(self._kept.items()))
            came_at, message = kept.popleft()
            if came_at > not_before:
                taken.append(message)
            if kept:
                self._kept.move_to_end(topic)
            else:
                del self._kept[topic]
        return taken

    async def _ask(self, session: Session, topics: Sequence[str], batch: int, now: float) -> None:
        ask = json.dumps({"batch": batch, "expires": int(STANDS * 1e9)}).encode()
        for topic in topics:
            asked = self._asked.get(topic)
            if asked is None or asked.until <= now:
                reply = f"{self._address}.{token(topic)}.{next(self._numbers)}"
                self._asked[topic] = _Asked(reply, batch, now + 2 * STANDS)
                where = self._names.next_message(consumer_name(self._name, topic))
                await session.asked(session.client.publish(where, ask, reply=reply))

    async def _arrival(self, session: Session, seconds: float) -> None:
        arrived = asyncio.Event()
        self._waiters.add(arrived)
        try:
            async with asyncio.timeout(max(0.0, min(seconds, STANDS))):
                await session.asked(arrived.wait())
        except TimeoutError:
            pass
        finally:
            self._waiters.discard(arrived)

    def _heard(self, message: Msg) -> None:
        """Take a message, which has the subject of its publication, or a status, which has our inbox."""
        topic = topic_of(message.subject)
        asked = self._asked.get(topic)
        if message.reply:
            self._keep(topic, message)
            if asked is not None:
                asked.left -= 1
        elif asked is not None and asked.reply == message.subject:
            status = status_of(message)
            if status.code != GOES_ON:
                asked.left = 0
                self._fault = None if status.code in ENDS else status
        if asked is not None and asked.left <= 0:
            self._asked.pop(topic, None)
        for waiter in self._waiters:
            waiter.set()

    def _keep(self, topic: str, message: Msg) -> None:
        if topic in self._wanted:
            came_at = asyncio.get_running_loop().time()
            self._kept.setdefault(topic, deque()).append((came_at, message))
        else:
            self._give_back(message)

    def give_up(self) -> None:
        self._want(frozenset())
