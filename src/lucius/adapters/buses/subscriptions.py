"""What the memory bus keeps for each subscription: messages that are ready or locked, and dead letters.

Tenants take turns, and within a tenant its topics. Messages of one tenant on one topic keep their
order.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Final, NamedTuple

from lucius.ports.bus import ABSENT, Message, Property, Subscription

# Whether a subscription takes a message, for buses whose broker does not decide it.

Filters = tuple[tuple[str, frozenset[Property]], ...]


def compiled(filters: Mapping[str, tuple[Property, ...]]) -> Filters:
    return tuple((name, frozenset(values)) for name, values in filters.items())


def accepts(filters: Filters, properties: Mapping[str, Property]) -> bool:
    for name, accepted in filters:  # noqa: SIM110 - without a generator: it runs for every message
        if properties.get(name, ABSENT) not in accepted:
            return False
    return True


# An inbox of notices: those to one address of a bus that have not been received yet.

KEPT: Final = 1000
"""Messages that wait to be received; the oldest are dropped."""


class NoticeInbox:
    def __init__(self) -> None:
        self._messages: deque[Message] = deque(maxlen=KEPT)
        self._some = asyncio.Event()

    def put(self, message: Message) -> None:
        self._messages.append(message)
        self._some.set()

    async def wait(self) -> None:
        """Return when there is something to receive."""
        while not self._messages:
            self._some.clear()
            await self._some.wait()

    def take_all(self) -> list[Message]:
        found = list(self._messages)
        self._messages.clear()
        return found

    async def within(self, wait: timedelta) -> list[Message]:
        try:
            async with asyncio.timeout(wait.total_seconds()):
                await self.wait()
        except TimeoutError:
            pass
        return self.take_all()


KEPT_DEAD_LETTERS: Final = 10_000
"""Dead letters that are kept of each subscription. The oldest are dropped."""
TOO_MANY: Final = "MAX_DELIVERIES_EXCEEDED"


class DeadLetter(NamedTuple):
    message: Message
    topic: str
    subscription: str
    reason: str
    detail: str


class Item:
    """A message on its way through one subscription."""

    __slots__ = ("count", "deadline", "message", "tenant")

    def __init__(self, message: Message) -> None:
        self.message = message
        self.tenant = message.properties.get("tenant_id")
        self.count = 0
        self.deadline = 0.0


class Queue:
    """One subscription: the number of ready messages, the locked ones (oldest first), the dead letters."""

    __slots__ = ("dead", "filters", "group", "lock", "locked", "ready", "spec", "topic")

    def __init__(self, spec: Subscription, group: "Group") -> None:
        self.group = group
        self.ready = 0
        self.locked: OrderedDict[str, Item] = OrderedDict()
        self.dead: deque[DeadLetter] = deque(maxlen=KEPT_DEAD_LETTERS)
        self.define(spec)

    def define(self, spec: Subscription) -> None:
        self.spec = spec
        self.topic = spec.topic
        self.lock = spec.lock.total_seconds()
        self.filters = compiled(spec.filters)

    def put_back(self, item: Item) -> None:
        """Put a message back in its old place, or make it a dead letter after the last delivery."""
        if item.count >= self.spec.max_deliveries:
            self.set_aside(item.message, TOO_MANY, f"delivered {item.count} times, never settled")
            return
        self.group.offer(self, item, first=True)

    def set_aside(self, message: Message, reason: str, detail: str) -> None:
        self.dead.append(DeadLetter(message, self.spec.topic, self.spec.name, reason, detail))

    def expire(self, now: float) -> None:
        expired = []
        while self.locked and next(iter(self.locked.values())).deadline <= now:
            expired.append(self.locked.popitem(last=False)[1])
        for item in reversed(expired):
            self.put_back(item)


class Waiter:
    __slots__ = ("tenants", "topics", "woken")

    def __init__(
        self,
        topics: Collection[str],
        tenants: Collection[str] | None,
        woken: "asyncio.Future[None]",
    ) -> None:
        self.topics = topics
        self.tenants = tenants
        self.woken = woken


class Group:
    """All subscriptions of one name: a ring of the tenants with messages, and the receivers that wait."""

    __slots__ = ("ring", "waiters")

    def __init__(self) -> None:
        self.ring: OrderedDict[Property | None, dict[Queue, deque[Item]]] = OrderedDict()
        self.waiters: dict[Waiter, None] = {}
        """Receivers that wait, in order of arrival. Each removes itself."""

    def offer(self, queue: Queue, item: Item, *, first: bool = False) -> None:
        queues = self.ring.get(item.tenant)
        if queues is None:
            queues = self.ring[item.tenant] = {}
        items = queues.get(queue)
        if items is None:
            items = queues[queue] = deque()
        if first:
            items.appendleft(item)
        else:
            items.append(item)
        queue.ready += 1
        if self.waiters:
            self._wake(queue.topic, item.tenant)

    def _wake(self, topic: str, tenant: Property | None) -> None:
        """Wake the longest waiting receiver that may have such a message."""
        for waiter in self.waiters:
            bound = waiter.tenants is None or tenant in waiter.tenants
            if bound and topic in waiter.topics and not waiter.woken.done():
                waiter.woken.set_result(None)
                return

    def wake_all(self) -> None:
        for waiter in self.waiters:
            wake(waiter.woken)

    def pass_on(self) -> None:
        """A receiver that leaves messages behind wakes the next one, so that none is overlooked."""
        for waiter in self.waiters:
            if not waiter.woken.done() and self._has(waiter.topics, waiter.tenants):
                waiter.woken.set_result(None)
                return

    def _has(self, topics: Collection[str], tenants: Collection[str] | None) -> bool:
        if tenants is not None and self.ring.keys().isdisjoint(tenants):
            return False
        return any(
            queue.topic in topics
            for tenant, queues in self.ring.items()
            if tenants is None or tenant in tenants
            for queue in queues
        )

    def next(
        self, topics: Collection[str], tenants: Collection[str] | None
    ) -> tuple[Queue, Item] | None:
        """The next message in turn; its tenant, and its topic among the tenant's, go to the end."""
        if tenants is not None and self.ring.keys().isdisjoint(tenants):
            return None
        for tenant, queues in self.ring.items():
            if tenants is None or tenant in tenants:
                for queue in queues:
                    if queue.topic in topics:
                        return queue, self._taken(tenant, queues, queue)
        return None

    def _taken(
        self, tenant: Property | None, queues: dict[Queue, deque[Item]], queue: Queue
    ) -> Item:
        items = queues.pop(queue)
        item = items.popleft()
        queue.ready -= 1
        if items:
            queues[queue] = items
        if queues:
            self.ring.move_to_end(tenant)
        else:
            del self.ring[tenant]
        return item


def wake(woken: "asyncio.Future[None]") -> None:
    if not woken.done():
        woken.set_result(None)
