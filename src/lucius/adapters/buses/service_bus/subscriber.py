"""All topics of one subscription name: the receivers that wait, and messages that came without one.

Every topic on which a receiver waits is asked for one message. Messages beyond a receiver's limit are
kept for the next receive, for half a second at most; then they are given back.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final

from azure.servicebus import ServiceBusReceivedMessage

from lucius.adapters.buses.service_bus.intake import Intake
from lucius.adapters.buses.service_bus.wire import NotOursError, incoming
from lucius.core.errors import BusError, BusUnavailableError, LockLostError
from lucius.ports.bus import Delivery

# The locks that this process holds: the SDK's receiver and message for each delivery.

MANY: Final = 4096
"""From this number of locks on, expired ones are removed."""


class Locks:
    def __init__(self) -> None:
        self._held: dict[str, tuple[Intake, ServiceBusReceivedMessage]] = {}

    def add(self, source: Intake, message: ServiceBusReceivedMessage) -> str:
        if len(self._held) >= MANY:
            self._forget_lost()
        token = str(message.lock_token)
        self._held[token] = (source, message)
        return token

    def pop(self, delivery: Delivery) -> tuple[Intake, ServiceBusReceivedMessage]:
        """Take the lock for a settlement. A second settlement finds none."""
        found = self._held.pop(delivery.lock_token, None)
        if found is None:
            raise LockLostError(f"the lock on {delivery.message.message_id} is gone")
        return found

    def put_back(self, delivery: Delivery, held: tuple[Intake, ServiceBusReceivedMessage]) -> None:
        """Keep the lock, because the broker was away and the settlement can be tried again."""
        self._held[delivery.lock_token] = held

    def _forget_lost(self) -> None:
        now = datetime.now(UTC)
        for token, (_, message) in list(self._held.items()):
            until = message.locked_until_utc
            if until is not None and until < now:
                del self._held[token]


log = logging.getLogger("lucius.buses.service_bus.subscriber")

KEPT: Final = timedelta(milliseconds=500)
"""How long a message without a receiver is kept: long enough for a receive that begins at once."""
LINGER: Final = timedelta(milliseconds=100)
"""How long topics are still asked after the last receiver has left."""
NOT_OURS: Final = "NOT_OURS"


class Waiter:
    def __init__(self, topics: frozenset[str], limit: int) -> None:
        self.topics = topics
        self.limit = limit
        self.got: list[Delivery] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def deliver(self, delivery: Delivery) -> None:
        self.got.append(delivery)
        self._finish(None)

    def fail(self, error: BusError) -> None:
        self._finish(error)

    def _finish(self, error: BusError | None) -> None:
        if self.done.done():
            return
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)


class Subscriber:
    """`intake` makes the intake of a topic."""

    def __init__(self, name: str, intake: Callable[[str], Intake], locks: Locks) -> None:
        self._name = name
        self._make = intake
        self._locks = locks
        self._intakes: dict[str, Intake] = {}
        self._waiters: list[Waiter] = []
        self._kept: deque[Delivery] = deque()
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._asides: set[asyncio.Task[None]] = set()

    def intake(self, topic: str) -> Intake:
        if topic not in self._intakes:
            self._intakes[topic] = self._make(topic)
        return self._intakes[topic]

    async def receive(
        self, topics: Sequence[str], limit: int, wait: timedelta
    ) -> Sequence[Delivery]:
        waiter = Waiter(frozenset(topics), limit)
        self._take_kept(waiter)
        if waiter.got or limit < 1:
            return waiter.got
        self._waiters.append(waiter)
        for topic in topics:
            self._ask(topic)
        try:
            await asyncio.wait([waiter.done], timeout=wait.total_seconds())
        except asyncio.CancelledError:
            self._leave(waiter)
            for delivery in waiter.got:
                self._offer(delivery)
            raise
        self._leave(waiter)
        error = waiter.done.exception() if waiter.done.done() else None
        if error is not None and not waiter.got:
            raise error
        return waiter.got

    def _take_kept(self, waiter: Waiter) -> None:
        for _ in range(len(self._kept)):
            delivery = self._kept.popleft()
            if delivery.topic in waiter.topics and len(waiter.got) < waiter.limit:
                waiter.got.append(delivery)
            else:
                self._kept.append(delivery)

    def _leave(self, waiter: Waiter) -> None:
        self._waiters.remove(waiter)
        asyncio.get_running_loop().call_later(LINGER.total_seconds(), self._interrupt)

    def _interrupt(self) -> None:
        for topic in self._asking:
            if not self._wanted(topic):
                self._intakes[topic].interrupt()

    async def close(self) -> None:
        self._waiters.clear()
        running = [*self._asking.values(), *self._asides]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await asyncio.gather(*(intake.close() for intake in self._intakes.values()))

    # -- asking ------------------------------------------------------------------------------

    def _wanted(self, topic: str) -> bool:
        return any(topic in waiter.topics for waiter in self._waiters)

    def _ask(self, topic: str) -> None:
        if topic not in self._asking:
            self._asking[topic] = asyncio.create_task(self._ask_on(self.intake(topic)))

    async def _ask_on(self, intake: Intake) -> None:
        """Ask this topic until no receiver wants its messages. If it fails, those who wait get the error."""
        try:
            while self._wanted(intake.topic):
                message = await intake.poll()
                if message is not None:
                    await self._take(intake, message)
                if not self._wanted(intake.topic):
                    await asyncio.sleep(LINGER.total_seconds())
                if not self._wanted(intake.topic):
                    await intake.rest()
        except BusError as error:
            self._fail(intake.topic, error)
        except Exception as error:
            log.exception("%s: the receiver failed", intake.subject)
            self._fail(intake.topic, BusUnavailableError(f"{intake.subject}: {error!r}"))
        finally:
            del self._asking[intake.topic]

    def _fail(self, topic: str, error: BusError) -> None:
        for waiter in self._waiters:
            if topic in waiter.topics:
                waiter.fail(error)

    # -- taking ------------------------------------------------------------------------------

    async def _take(self, intake: Intake, message: ServiceBusReceivedMessage) -> None:
        try:
            body = incoming(message)
        except NotOursError as error:
            said = str(error)
            log.warning("%s: %s is set aside: %s", intake.subject, message.message_id, said)
            await intake.settle(
                message,
                lambda r: r.dead_letter_message(message, reason=NOT_OURS, error_description=said),
            )
            return
        token = self._locks.add(intake, message)
        count = (message.delivery_count or 0) + 1
        self._offer(Delivery(body, intake.topic, self._name, token, count))

    def _offer(self, delivery: Delivery) -> None:
        able = [w for w in self._waiters if delivery.topic in w.topics and len(w.got) < w.limit]
        if able:
            min(able, key=lambda waiter: waiter.done.done()).deliver(delivery)
            return
        self._kept.append(delivery)
        asyncio.get_running_loop().call_later(KEPT.total_seconds(), self._give_back, delivery)

    def _give_back(self, delivery: Delivery) -> None:
        if delivery in self._kept:
            self._kept.remove(delivery)
            task = asyncio.create_task(self._released(delivery))
            self._asides.add(task)
            task.add_done_callback(self._asides.discard)

    async def _released(self, delivery: Delivery) -> None:
        """Give a message back. If that fails, its lock expires later."""
        with suppress(BusError):
            intake, message = self._locks.pop(delivery)
            await intake.release(message)
