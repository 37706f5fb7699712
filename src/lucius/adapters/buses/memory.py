"""The bus inside one process: fast, exact in its semantics, and gone when the process ends.

It keeps no message anywhere else, never polls, and uses one timer for all locks together.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import count

from lucius.adapters.buses.subscriptions import (
    Group,
    Item,
    NoticeInbox,
    Queue,
    Waiter,
    accepts,
    wake,
)
from lucius.core.errors import BusError, LockLostError
from lucius.core.record import Packed
from lucius.ports.bus import IN_MEMORY, Broker, Delivery, Message, Subscription, check_ids


class MemoryBus:
    """Implements `lucius.ports.bus.Bus`. All waiting and all deadlines follow the running loop."""

    def __init__(self) -> None:
        self._queues: dict[tuple[str, str], Queue] = {}
        self._takers: dict[str, list[Queue]] = {}
        self._catch_alls: dict[str, list[Queue]] = {}
        self._groups: dict[str, Group] = {}
        self._tokens = count(1)
        self._timer: asyncio.TimerHandle | None = None
        self._failure: dict[str, BusError] = {}
        self._inboxes: dict[str, NoticeInbox] = {}

    @property
    def broker(self) -> Broker:
        return IN_MEMORY

    @property
    def volatile(self) -> bool:
        return True

    @property
    def by_tenant(self) -> bool:
        return True

    def fail_with(
        self, error: BusError | None, operations: Iterable[str] = ("publish", "receive")
    ) -> None:
        """Simulate an outage: these operations raise the error, until it is called with None."""
        self._failure = {} if error is None else dict.fromkeys(operations, error)
        for group in self._groups.values():
            group.wake_all()

    async def ensure(self, subscriptions: Sequence[Subscription]) -> None:
        self.subscribe(subscriptions)

    def subscribe(self, subscriptions: Sequence[Subscription]) -> None:
        for spec in subscriptions:
            known = self._queues.get((spec.topic, spec.name))
            if known is None:
                group = self._groups.setdefault(spec.name, Group())
                self._queues[spec.topic, spec.name] = Queue(spec, group)
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
        check_ids(messages)
        takers = self._takers.get(topic, ())
        for message in messages:
            taken = False
            for queue in takers:
                if accepts(queue.filters, message.properties):
                    taken = True
                    queue.group.offer(queue, Item(message))
            if not taken:
                for queue in self._catch_alls.get(topic, ()):
                    queue.group.offer(queue, Item(message))

    async def receive(
        self,
        name: str,
        topics: Sequence[str],
        limit: int,
        wait: timedelta,
        tenants: Collection[str] | None = None,
    ) -> Sequence[Delivery]:
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + wait.total_seconds()
        group = self._groups.setdefault(name, Group())
        wanted = frozenset(topics)
        await asyncio.sleep(0)  # a receiver of an endless backlog must not starve everyone else
        while True:
            self._check("receive")
            taken = [_unpacked(each) for each in self._take(group, wanted, tenants, limit, loop)]
            if taken or limit < 1 or loop.time() >= give_up_at:
                if group.waiters:
                    group.pass_on()
                return taken
            await self._woken(group, Waiter(wanted, tenants, loop.create_future()), give_up_at)

    def _take(
        self,
        group: Group,
        topics: Collection[str],
        tenants: Collection[str] | None,
        limit: int,
        loop: asyncio.AbstractEventLoop,
    ) -> list[Delivery]:
        now = loop.time()
        taken: list[Delivery] = []
        while len(taken) < limit and (found := group.next(topics, tenants)) is not None:
            queue, item = found
            item.count += 1
            item.deadline = now + queue.lock
            token = str(next(self._tokens))
            queue.locked[token] = item
            self._arm(item.deadline, loop)
            spec = queue.spec
            taken.append(Delivery(item.message, spec.topic, spec.name, token, item.count))
        return taken

    async def _woken(self, group: Group, waiter: Waiter, give_up_at: float) -> None:
        group.waiters[waiter] = None
        timer = waiter.woken.get_loop().call_at(give_up_at, wake, waiter.woken)
        try:
            await waiter.woken
        except asyncio.CancelledError:
            group.pass_on()
            raise
        finally:
            timer.cancel()
            del group.waiters[waiter]

    def _arm(self, deadline: float, loop: asyncio.AbstractEventLoop) -> None:
        """Set the one timer to the earliest deadline of all locks."""
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

    def _unlock(self, delivery: Delivery, operation: str) -> tuple[Queue, Item]:
        self._check(operation)
        queue = self._queues.get((delivery.topic, delivery.subscription))
        item = queue.locked.pop(delivery.lock_token, None) if queue else None
        if queue is None or item is None:
            raise LockLostError(f"the lock on {delivery.message.message_id} is gone")
        return queue, item

    async def complete(self, delivery: Delivery) -> None:
        self.settle(delivery)

    async def abandon(self, delivery: Delivery) -> None:
        self.put_back(delivery)

    async def dead_letter(self, delivery: Delivery, reason: str, detail: str) -> None:
        self.set_aside(delivery, reason, detail)

    # -- for a receiver on the same loop, which waits for nothing ------------------------------

    def take(self, name: str, topics: Collection[str], limit: int) -> list[Delivery]:
        """What `receive` would give at once. Large payloads stay packed."""
        self._check("receive")
        group = self._groups.setdefault(name, Group())
        return self._take(group, topics, None, limit, asyncio.get_running_loop())

    def line_up(self, name: str, topics: Collection[str], woken: Callable[[], None]) -> Waiter:
        """Wait as a receiver does, behind those who wait already. On `woken`: `take`, then `leave`."""
        waiter = Waiter(topics, None, asyncio.get_running_loop().create_future())
        waiter.woken.add_done_callback(lambda _: woken())
        self._groups.setdefault(name, Group()).waiters[waiter] = None
        return waiter

    def leave(self, name: str, waiter: Waiter) -> None:
        """Wait no more. What was not taken is for the next in line."""
        group = self._groups[name]
        del group.waiters[waiter]
        group.pass_on()

    def settle(self, delivery: Delivery) -> None:
        self._unlock(delivery, "complete")

    def put_back(self, delivery: Delivery) -> None:
        queue, item = self._unlock(delivery, "abandon")
        queue.put_back(item)

    def set_aside(self, delivery: Delivery, reason: str, detail: str) -> None:
        queue, item = self._unlock(delivery, "dead_letter")
        queue.set_aside(item.message, reason, detail)

    async def send_notice(self, address: str, message: Message) -> None:
        self._check("publish")
        if (inbox := self._inboxes.get(address)) is not None:
            inbox.put(message)

    async def receive_notices(self, address: str, wait: timedelta) -> Sequence[Message]:
        self._check("receive")
        return await self._inboxes.setdefault(address, NoticeInbox()).within(wait)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _unpacked(delivery: Delivery) -> Delivery:
    """With its body unpacked. Bodies wait packed, and whoever receives one reads it."""
    payload = delivery.message.body.get("payload")
    if type(payload) is not Packed:
        return delivery
    body = {**delivery.message.body, "payload": payload.opened()}
    return replace(delivery, message=replace(delivery.message, body=body))
