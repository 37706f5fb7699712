"""The bus inside one process: fast, exact in its semantics, and gone when the process ends.

It keeps no message anywhere else, never polls, and uses one timer for all locks together.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta
from itertools import count
from typing import Final

from lucius.buses.filters import accepts, compiled
from lucius.core.errors import BusError, LockLostError
from lucius.ports.bus import DeadLetter, Delivery, Message, Subscription

KEPT_DEAD_LETTERS: Final = 10_000
"""Of each subscription; the oldest are forgotten."""
TOO_MANY: Final = "MAX_DELIVERIES_EXCEEDED"


class _Item:
    """A message on its way through one subscription."""

    __slots__ = ("count", "deadline", "message")

    def __init__(self, message: Message) -> None:
        self.message = message
        self.count = 0
        self.deadline = 0.0


class _Queue:
    """One subscription: what is ready, what is locked (oldest lock first), what was set aside."""

    __slots__ = ("dead", "filters", "group", "in_ring", "lock", "locked", "ready", "spec")

    def __init__(self, spec: Subscription, group: "_Group") -> None:
        self.group = group
        self.ready: deque[_Item] = deque()
        self.locked: OrderedDict[str, _Item] = OrderedDict()
        self.dead: deque[DeadLetter] = deque(maxlen=KEPT_DEAD_LETTERS)
        self.in_ring = False
        self.define(spec)

    def define(self, spec: Subscription) -> None:
        self.spec = spec
        self.lock = spec.lock.total_seconds()
        self.filters = compiled(spec.filters)

    def put(self, item: _Item) -> None:
        self.ready.append(item)
        self.group.offer(self)

    def put_back(self, item: _Item) -> None:
        """Redeliver in the old place, unless it was tried often enough."""
        if item.count >= self.spec.max_deliveries:
            self.set_aside(item.message, TOO_MANY, f"delivered {item.count} times, never settled")
            return
        self.ready.appendleft(item)
        self.group.offer(self)

    def set_aside(self, message: Message, reason: str, detail: str) -> None:
        self.dead.append(DeadLetter(message, self.spec.topic, self.spec.name, reason, detail))

    def expire(self, now: float) -> None:
        expired = []
        while self.locked and next(iter(self.locked.values())).deadline <= now:
            expired.append(self.locked.popitem(last=False)[1])
        for item in reversed(expired):
            self.put_back(item)


class _Waiter:
    __slots__ = ("topics", "woken")

    def __init__(self, topics: Collection[str], woken: "asyncio.Future[None]") -> None:
        self.topics = topics
        self.woken = woken


class _Group:
    """All subscriptions of one name: a ring of the ones that have messages, and who waits for them."""

    __slots__ = ("ring", "waiters")

    def __init__(self) -> None:
        self.ring: deque[_Queue] = deque()
        self.waiters: dict[_Waiter, None] = {}
        """In order of arrival; each removes itself."""

    def offer(self, queue: _Queue) -> None:
        if not queue.in_ring:
            queue.in_ring = True
            self.ring.append(queue)
        if self.waiters:
            self.wake(queue.spec.topic)

    def wake(self, topic: str) -> bool:
        """Wake the longest waiting receiver that listens on the topic."""
        for waiter in self.waiters:
            if topic in waiter.topics and not waiter.woken.done():
                waiter.woken.set_result(None)
                return True
        return False

    def wake_all(self) -> None:
        for waiter in self.waiters:
            _settle(waiter.woken)

    def pass_on(self) -> None:
        """Whoever was woken and leaves messages behind wakes the next, so that none is overlooked."""
        if self.waiters:
            any(queue.ready and self.wake(queue.spec.topic) for queue in self.ring)

    def next(self, topics: Collection[str]) -> _Queue | None:
        """The next queue in turn among those topics; it goes to the end of the ring."""
        ring = self.ring
        for _ in range(len(ring)):
            queue = ring[0]
            if not queue.ready:
                queue.in_ring = False
                ring.popleft()
                continue
            ring.rotate(-1)
            if queue.spec.topic in topics:
                return queue
        return None


class MemoryBus:
    """Implements `lucius.ports.bus.Bus`. All waiting and all deadlines follow the running loop."""

    def __init__(self) -> None:
        self._queues: dict[tuple[str, str], _Queue] = {}
        self._takers: dict[str, list[_Queue]] = {}
        self._catch_alls: dict[str, list[_Queue]] = {}
        self._groups: dict[str, _Group] = {}
        self._tokens = count(1)
        self._timer: asyncio.TimerHandle | None = None
        self._failure: dict[str, BusError] = {}

    @property
    def volatile(self) -> bool:
        return True

    def fail_with(
        self, error: BusError | None, operations: Iterable[str] = ("publish", "receive")
    ) -> None:
        """Play an outage: those operations raise until this is called with None."""
        self._failure = {} if error is None else dict.fromkeys(operations, error)
        if "receive" in self._failure:
            for group in self._groups.values():
                group.wake_all()

    async def ensure(self, subscriptions: Sequence[Subscription]) -> None:
        for spec in subscriptions:
            known = self._queues.get((spec.topic, spec.name))
            if known is None:
                group = self._groups.setdefault(spec.name, _Group())
                self._queues[spec.topic, spec.name] = _Queue(spec, group)
            else:
                known.define(spec)
        self._index()

    def _index(self) -> None:
        self._takers, self._catch_alls = {}, {}
        for queue in self._queues.values():
            side = self._catch_alls if queue.spec.catch_all else self._takers
            side.setdefault(queue.spec.topic, []).append(queue)

    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        self._check("publish")
        takers = self._takers.get(topic, ())
        for message in messages:
            taken = False
            for queue in takers:
                if accepts(queue.filters, message.properties):
                    taken = True
                    queue.put(_Item(message))
            if not taken:
                for queue in self._catch_alls.get(topic, ()):
                    queue.put(_Item(message))

    async def receive(
        self, name: str, topics: Sequence[str], limit: int, wait: timedelta
    ) -> Sequence[Delivery]:
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + wait.total_seconds()
        group = self._groups.setdefault(name, _Group())
        wanted = frozenset(topics)
        await asyncio.sleep(0)  # a receiver of an endless backlog must not starve everyone else
        while True:
            self._check("receive")
            taken = self._take(group, wanted, limit, loop)
            if taken or limit < 1 or loop.time() >= give_up_at:
                if group.ring:
                    group.pass_on()
                return taken
            await self._woken(group, wanted, give_up_at, loop)

    def _take(
        self, group: _Group, topics: Collection[str], limit: int, loop: asyncio.AbstractEventLoop
    ) -> list[Delivery]:
        now = loop.time()
        taken: list[Delivery] = []
        while len(taken) < limit and (queue := group.next(topics)) is not None:
            item = queue.ready.popleft()
            item.count += 1
            item.deadline = now + queue.lock
            token = str(next(self._tokens))
            queue.locked[token] = item
            self._arm(item.deadline, loop)
            spec = queue.spec
            taken.append(Delivery(item.message, spec.topic, spec.name, token, item.count))
        return taken

    async def _woken(
        self,
        group: _Group,
        topics: Collection[str],
        give_up_at: float,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        waiter = _Waiter(topics, loop.create_future())
        group.waiters[waiter] = None
        timer = loop.call_at(give_up_at, _settle, waiter.woken)
        try:
            await waiter.woken
        except asyncio.CancelledError:
            group.pass_on()
            raise
        finally:
            timer.cancel()
            del group.waiters[waiter]

    def _arm(self, deadline: float, loop: asyncio.AbstractEventLoop) -> None:
        """One timer, at the earliest deadline; locks settled before it fires cost nothing."""
        if self._timer is not None:
            if self._timer.when() <= deadline:
                return
            self._timer.cancel()
        self._timer = loop.call_at(deadline, self._expire, loop)

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time()
        for queue in self._queues.values():
            if queue.locked:
                queue.expire(now)
        heads = [next(iter(q.locked.values())).deadline for q in self._queues.values() if q.locked]
        if heads:
            self._arm(min(heads), loop)

    def _check(self, operation: str) -> None:
        if self._failure and operation in self._failure:
            raise self._failure[operation]

    def _unlock(self, delivery: Delivery, operation: str) -> tuple[_Queue, _Item]:
        self._check(operation)
        queue = self._queues.get((delivery.topic, delivery.subscription))
        item = queue.locked.pop(delivery.lock_token, None) if queue else None
        if queue is None or item is None:
            raise LockLostError(f"the lock on {delivery.message.message_id} is gone")
        return queue, item

    async def complete(self, delivery: Delivery) -> None:
        self._unlock(delivery, "complete")

    async def abandon(self, delivery: Delivery) -> None:
        queue, item = self._unlock(delivery, "abandon")
        queue.put_back(item)

    async def dead_letter(self, delivery: Delivery, reason: str, detail: str) -> None:
        queue, item = self._unlock(delivery, "dead_letter")
        queue.set_aside(item.message, reason, detail)

    def _named(self, name: str, topics: Sequence[str]) -> list[_Queue]:
        return [q for topic in topics if (q := self._queues.get((topic, name))) is not None]

    async def dead_letters(self, name: str, topics: Sequence[str]) -> Sequence[DeadLetter]:
        return [letter for queue in self._named(name, topics) for letter in queue.dead]

    async def backlog(self, name: str, topics: Sequence[str]) -> int:
        return sum(len(queue.ready) + len(queue.locked) for queue in self._named(name, topics))

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _settle(woken: "asyncio.Future[None]") -> None:
    if not woken.done():
        woken.set_result(None)
