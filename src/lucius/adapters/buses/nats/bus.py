"""`NatsBus`: topics, filtered subscriptions, locks and dead letters on JetStream.

The publisher stores one copy of a message for each subscription that takes it, in one work queue. A
copy is deleted when it is settled, so what the queue holds is what waits or is locked.
"""

import asyncio
import logging
from collections.abc import Collection, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from nats.aio.msg import Msg

from lucius.adapters.buses.nats.connection import Connected, Connection, Row
from lucius.adapters.buses.nats.receiving import OpenPulls, Pull
from lucius.adapters.buses.nats.session import (
    Names,
    NothingDeliveredError,
    Session,
    consumer_name,
    decoded,
    encoded,
    stored_at,
    topic_of,
)
from lucius.adapters.buses.subscriptions import NoticeInbox
from lucius.core.errors import BusError, BusUnavailableError, LockLostError, PublishRefusedError
from lucius.ports.bus import Broker, Delivery, Message, Subscription, check_ids

# The locks of this process: which deliveries it holds, and until when.
#
# The broker accepts a settlement after the lock has expired, so this refuses it.


def held(spec: Subscription) -> float:
    """Seconds for which a lock counts here: fewer than at the broker, whose clock started earlier."""
    lock = spec.lock.total_seconds()
    return lock - min(1.0, lock / 10)


class Locks:
    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def hold(self, token: str, seconds: float) -> None:
        now = asyncio.get_running_loop().time()
        self._forget(now)
        self._until[token] = now + seconds

    def _forget(self, now: float) -> None:
        """Forget expired locks. The oldest come first, so this stops at the first that still holds."""
        while self._until:
            token = next(iter(self._until))
            if self._until[token] > now:
                return
            del self._until[token]

    def check(self, delivery: Delivery) -> float:
        """When the lock expires. Raises LockLostError if it has expired or was settled."""
        until = self._until.get(delivery.lock_token)
        if until is None or until <= asyncio.get_running_loop().time():
            raise LockLostError(f"the lock on {delivery.message.message_id} is gone")
        return until

    def release(self, delivery: Delivery) -> float:
        until = self.check(delivery)
        del self._until[delivery.lock_token]
        return until

    def keep(self, delivery: Delivery, until: float) -> None:
        """Keep a lock whose settlement failed, so that it can be tried again."""
        self._until[delivery.lock_token] = until


# Hears what is told to one address, on a plain subject: the broker keeps nothing of it.

log = logging.getLogger("lucius.buses.nats.hearing")


class SubjectInbox:
    def __init__(self, subject: str) -> None:
        self._subject = subject
        self._session: Session | None = None
        self._notices = NoticeInbox()

    async def receive(self, session: Session, wait: timedelta) -> list[Message]:
        """A new session is listened to anew; what came over the earlier one is still heard."""
        if session is not self._session:
            await session.listen(self._subject, self._take)
            await session.asked(session.client.flush())  # the broker knows of it from here on
            self._session = session
        try:
            async with asyncio.timeout(wait.total_seconds()):
                await session.asked(self._notices.wait())
        except TimeoutError:
            pass
        return self._notices.take_all()

    def _take(self, message: Msg) -> None:
        try:
            self._notices.put(decoded(message.data)[0])
        except ValueError as error:
            log.warning("a message on %s is not ours: %s", self._subject, error)


ACK: Final = b"+ACK"
NAK: Final = b"-NAK"
HEADERS: Final = 64
"""How many bytes a message needs besides its payload and its id."""
PATIENCE: Final = timedelta(seconds=2)
TOO_MANY: Final = "MAX_DELIVERIES_EXCEEDED"
UNREADABLE: Final = "UNREADABLE"


class NatsBus:
    """Implements `lucius.ports.bus.Bus`.

    `system` names the installation: several may share a broker. `patience` is how long an operation
    waits for a lost connection to come back before it raises.
    """

    def __init__(
        self,
        servers: Sequence[str],
        *,
        system: str = "lucius",
        patience: timedelta = PATIENCE,
        **options: Any,
    ) -> None:
        """`options` go to the NATS client, for example credentials and TLS."""
        self._names = Names(system)
        self._connection = Connection(servers, self._names, patience=patience, options=options)
        self._patience = patience.total_seconds()
        self._locks = Locks()
        self._open_pulls: dict[str, OpenPulls] = {}
        self._notice_inboxes: dict[str, SubjectInbox] = {}
        self._chores: set[asyncio.Task[None]] = set()

    @property
    def broker(self) -> Broker:
        server = self._connection.server
        return Broker("nats", *server) if server is not None else Broker("nats")

    @property
    def volatile(self) -> bool:
        return False

    async def ensure(self, subscriptions: Sequence[Subscription]) -> None:
        await self._connection.ensure(subscriptions)

    # -- publishing --------------------------------------------------------------------------

    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        check_ids(messages)
        connected = await self._connection.get()
        sends: list[tuple[str, bytes, str]] = []
        for message in messages:
            takers = connected.routes.takers(topic, message.properties)
            payload = encoded(message) if takers else b""
            for name in takers:
                subject = self._names.subject(topic, name)
                sends.append((subject, payload, _copy_id(subject, message)))
        for _, payload, copy_id in sends:
            size = len(payload) + len(copy_id) + HEADERS
            if size > connected.largest:
                raise PublishRefusedError(
                    f"message {copy_id} has {size} bytes, and NATS takes {connected.largest}:"
                    " set max_payload of the server (and max_msg_size of the stream) higher"
                )
        await connected.session.store(sends)

    # -- receiving ---------------------------------------------------------------------------

    @property
    def by_tenant(self) -> bool:
        return False

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
        await asyncio.sleep(0)  # a receiver of an endless backlog must not starve everyone else
        while limit > 0:
            left = timedelta(seconds=max(0.0, give_up_at - loop.time()))
            connected = await self._connection.get()
            row = self._row(connected, name, topics)
            found = await self._found(connected, name, row, topics, limit, left)
            read = [await self._delivery(name, row, message) for message in found]
            deliveries = [delivery for delivery in read if delivery is not None]
            if deliveries or not found:
                return deliveries
        return ()

    def _row(self, connected: Connected, name: str, topics: Sequence[str]) -> Row:
        row = connected.routes.row(name)
        if not row.keys() & set(topics):
            raise BusUnavailableError(f"nobody has subscribed {name} to {', '.join(topics)[:200]}")
        by_topic = next(iter(row.values())).by_topic
        if not by_topic and (unnamed := row.keys() - set(topics)):
            raise BusError(
                f"{name} is received as a whole, and {', '.join(sorted(unnamed)[:3])} is not named:"
                " name all its topics, or subscribe it by topic"
            )
        return row

    async def _found(
        self,
        connected: Connected,
        name: str,
        row: Row,
        topics: Sequence[str],
        limit: int,
        wait: timedelta,
    ) -> Sequence[Msg]:
        session, spec = connected.session, next(iter(row.values()))
        try:
            if spec.by_topic:
                open_pulls = self._open_pulls.setdefault(
                    name, OpenPulls(self._names, name, self._return)
                )
                there = [topic for topic in topics if topic in row]
                return await open_pulls.take(session, there, limit, wait, held(spec))
            pull = Pull(session, self._names.next_message(consumer_name(name)))
            try:
                return await pull.take(limit, wait)
            except (asyncio.CancelledError, BusUnavailableError):
                self._do(self._take_back(pull))
                raise
        except NothingDeliveredError as error:
            if error.status.consumer_gone:
                await session.close()  # the next one makes again what is missing
            raise

    async def _take_back(self, pull: Pull) -> None:
        for message in await pull.give_up():
            self._return(message)

    def _return(self, message: Msg) -> None:
        self._do(self._answer(message.reply, NAK))

    def _do(self, chore: Coroutine[Any, Any, None]) -> None:
        """Run it in the background. If it fails, the lock expires later, which has the same effect."""

        async def tried() -> None:
            with suppress(BusError):
                await chore

        task = asyncio.create_task(tried())
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)

    async def _delivery(self, name: str, row: Row, message: Msg) -> Delivery | None:
        """The delivery; None if it came too often or is not ours. Such a message becomes a dead letter."""
        topic, times = topic_of(message.subject), message.metadata.num_delivered
        spec = row.get(topic) or next(iter(row.values()))
        self._locks.hold(message.reply, held(spec))
        try:
            read, _ = decoded(message.data)
        except ValueError as error:
            raw = Message("", {"raw": message.data.decode(errors="replace")})
            await self.dead_letter(
                Delivery(raw, topic, name, message.reply, times), UNREADABLE, str(error)
            )
            return None
        delivery = Delivery(read, topic, name, message.reply, times)
        if times <= spec.max_deliveries:
            return delivery
        await self.dead_letter(delivery, TOO_MANY, _never_settled(times - 1))
        return None

    # -- settling ----------------------------------------------------------------------------

    async def complete(self, delivery: Delivery) -> None:
        await self._settle(delivery, ACK)

    async def abandon(self, delivery: Delivery) -> None:
        row = (await self._connection.get()).routes.row(delivery.subscription)
        spec = row.get(delivery.topic)
        if spec is not None and delivery.count >= spec.max_deliveries:
            await self.dead_letter(delivery, TOO_MANY, _never_settled(delivery.count))
        else:
            await self._settle(delivery, NAK)

    async def dead_letter(self, delivery: Delivery, reason: str, detail: str) -> None:
        """Store a dead letter first, then settle. If the process dies in between, both are done again."""
        self._locks.check(delivery)
        subject = self._names.dead_subject(delivery.topic, delivery.subscription)
        payload = _letter(delivery.message, reason=reason, detail=detail)
        copy_id = f"{_copy_id(subject, delivery.message)}/{stored_at(delivery.lock_token)}"
        await (await self._connection.get()).session.store([(subject, payload, copy_id)])
        await self._settle(delivery, ACK)

    async def _settle(self, delivery: Delivery, how: bytes) -> None:
        held_until = self._locks.release(delivery)
        try:
            await self._answer(delivery.lock_token, how)
        except BusUnavailableError:
            self._locks.keep(delivery, held_until)
            raise

    async def _answer(self, lock_token: str, how: bytes) -> None:
        await (await self._connection.get()).session.request(lock_token, how)

    # -- telling -----------------------------------------------------------------------------

    async def send_notice(self, address: str, message: Message) -> None:
        session = (await self._connection.get()).session
        await session.asked(
            session.client.publish(self._names.notice_subject(address), encoded(message))
        )

    async def receive_notices(self, address: str, wait: timedelta) -> Sequence[Message]:
        session = (await self._connection.get()).session
        inbox = self._notice_inboxes.setdefault(
            address, SubjectInbox(self._names.notice_subject(address))
        )
        return await inbox.receive(session, wait)

    # -- looking -----------------------------------------------------------------------------

    async def close(self) -> None:
        """Close the connection. Messages that nobody received are given back first."""
        if self._connection.is_up:
            for open_pulls in self._open_pulls.values():
                open_pulls.give_up()
            if self._chores:
                await asyncio.wait(tuple(self._chores), timeout=self._patience)
        await self._connection.close()


def _copy_id(subject: str, message: Message) -> str:
    return f"{subject}/{message.message_id}"


def _letter(message: Message, **why: str) -> bytes:
    """What is nested as deep as Python can read may be too deep to be written: it leaves its body behind."""
    try:
        return encoded(message, **why)
    except PublishRefusedError:
        return encoded(replace(message, body={}), **why)


def _never_settled(times: int) -> str:
    return f"delivered {times} times, never settled"
