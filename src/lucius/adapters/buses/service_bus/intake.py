"""One subscription of one topic: an SDK receiver that is asked for one message at a time.

The SDK reads its socket only during a call, also to wait for settlements. So one call uses the
receiver at a time, and a poll that only waits ends as soon as another call needs the receiver.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final, Generic, TypeVar

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusReceiver, ServiceBusSender
from azure.servicebus.exceptions import OperationTimeoutError

from lucius.adapters.buses.service_bus.wire import MissingRuleError, mapped
from lucius.core.errors import BusUnavailableError

# Asks whether a subscription has a rule: without one it gets nothing, and nobody else would say so.
#
# The right Listen is enough for the question. The SDK does not ask it, but has a function for such requests.

LIST_RULES: Final = b"com.microsoft:enumerate-rules"
PATIENCE: Final = 10.0
"""Seconds within which the broker answers."""


async def has_rule(receiver: ServiceBusReceiver) -> bool:
    """Whether it has one, or the broker does not say."""
    transport: Any = receiver._amqp_transport
    page = {"top": transport.AMQP_INT_VALUE(1), "skip": transport.AMQP_INT_VALUE(0)}
    try:
        return bool(
            await receiver._mgmt_request_response_with_retry(
                LIST_RULES, page, _found, timeout=PATIENCE
            )
        )
    except OperationTimeoutError:
        return True


def _found(status: int, answer: Any, description: object, **others: object) -> bool:
    if status == 204:
        return False
    return status != 200 or bool(answer.value.get(b"rules"))


# A sender or receiver with its socket. The SDK does not close the socket of a broken connection.

log = logging.getLogger("lucius.buses.service_bus.held")
H = TypeVar("H", ServiceBusReceiver, ServiceBusSender)


class Held(Generic[H]):
    def __init__(self, handler: H) -> None:
        self.handler: H = handler
        self._writer: Any = None

    async def open(self) -> None:
        """Open it. If that fails or is cancelled, the SDK may leave its socket open, too."""
        clients: list[Any] = []
        create = self.handler._create_handler

        def created(auth: Any) -> None:
            create(auth)
            clients.append(self.handler._handler)

        self.handler._create_handler = created  # type: ignore[method-assign]
        try:
            await self.handler.__aenter__()
        finally:
            for client in clients:
                connection = getattr(client, "_connection", None)
                self._writer = getattr(getattr(connection, "_transport", None), "writer", None)

    async def close(self) -> None:
        """Close it, which takes the SDK up to a second, and then the socket in any case."""
        try:
            await self.handler.close()
        except Exception as error:
            log.debug("a link could not be closed: %r", error)
        finally:
            if self._writer is not None:
                self._writer.close()


T = TypeVar("T")
Settlement = Callable[[ServiceBusReceiver], Awaitable[Any]]

POLL: Final = timedelta(seconds=5)
"""How long one call to the SDK waits for a message."""
STUCK: Final = timedelta(seconds=20)
"""A call that takes this much longer than it should is given up, and its receiver is closed."""
UNUSED: Final = timedelta(minutes=1)
"""A receiver that was opened only for a check is closed after this time without a poll."""
STALE: Final = timedelta(minutes=10)
"""A receiver that got nothing for this long is replaced: its link may be dead without an error."""


class Intake:
    """`opens` makes a receiver. Each is used until it fails, hangs or has been silent for too long."""

    def __init__(self, topic: str, name: str, opens: Callable[[], ServiceBusReceiver]) -> None:
        self.topic = topic
        self.subject = f"subscription {name} of topic {topic}"
        self._opens = opens
        self._held: Held[ServiceBusReceiver] | None = None
        self._turn = asyncio.Lock()
        self._polling: asyncio.Task[list[ServiceBusReceivedMessage]] | None = None
        self._heard_at = 0.0
        self._polled = False
        self._closing: set[asyncio.Task[None]] = set()

    async def check(self) -> None:
        """Open a receiver, which fails if the subscription does not exist. Fail if it has no rule."""
        takes_some = await self.alone(self._looked_at)
        if not self._polled:
            later = asyncio.get_running_loop().call_later
            later(UNUSED.total_seconds(), self._drop_unused)
        if not takes_some:
            raise MissingRuleError(f"{self.subject} has no rule")

    async def _looked_at(self, receiver: ServiceBusReceiver) -> bool:
        takes_some = await has_rule(receiver)
        await self._give_back(receiver)
        return takes_some

    def _drop_unused(self) -> None:
        if not self._polled and not self._turn.locked():
            self.drop()

    async def open(self) -> None:
        """Open a receiver."""
        async with self._turn:
            await self._open()

    async def poll(self, most: timedelta | None = None) -> ServiceBusReceivedMessage | None:
        """One message; or none after `most` (or POLL), or when another call needs the receiver."""
        self._polled = True
        async with self._turn:
            receiver = await self._open()
            wait = (most or POLL).total_seconds()
            with mapped(self.subject):
                self._polling = asyncio.create_task(
                    receiver.receive_messages(max_message_count=1, max_wait_time=wait)
                )
                try:
                    found = await self._patiently(self._polling, wait)
                finally:
                    self._polling = None
            if found:
                self._heard_at = asyncio.get_running_loop().time()
            return found[0] if found else None

    async def _patiently(
        self, polling: "asyncio.Task[list[ServiceBusReceivedMessage]]", wait: float
    ) -> list[ServiceBusReceivedMessage]:
        """Wait for a message. If this is cancelled, the SDK keeps what it has read for the next call."""
        try:
            done, _ = await asyncio.wait([polling], timeout=wait + STUCK.total_seconds())
        finally:
            polling.cancel()
        if not done:
            self.drop()
            raise BusUnavailableError(f"{self.subject}: the receiver does not answer")
        if polling.cancelled():
            return []
        if polling.exception() is not None:
            self.drop()
        return polling.result()

    def interrupt(self) -> None:
        if self._polling is not None:
            self._polling.cancel()

    async def release(self, message: ServiceBusReceivedMessage) -> None:
        """Give a message back; where the SDK can, without raising its delivery count."""

        async def use(receiver: ServiceBusReceiver) -> None:
            settle = getattr(receiver._handler, "settle_messages_async", None)
            if settle is None:
                await receiver.abandon_message(message)
            else:
                await settle(message._delivery_id, message._delivery_tag, "released")

        await self.alone(use)

    async def settle(self, message: ServiceBusReceivedMessage, how: Settlement) -> None:
        """Settle through this receiver, or through its successor: the broker knows the lock."""
        await self.alone(how)

    async def alone(self, use: Callable[[ServiceBusReceiver], Awaitable[T]]) -> T:
        """Use the receiver alone. A poll that waits ends for it.

        A receiver that is no longer connected is replaced once: the broker may have restarted.
        """
        self.interrupt()
        async with self._turn:
            fresh = self._held is None
            try:
                return await self._use(use)
            except BusUnavailableError:
                if fresh:
                    raise
                return await self._use(use)

    async def _use(self, use: Callable[[ServiceBusReceiver], Awaitable[T]]) -> T:
        try:
            receiver = await self._open()
            with mapped(self.subject):
                return await use(receiver)
        except BusUnavailableError:
            self.drop()
            raise

    async def rest(self) -> None:
        """Take the credit back when nobody waits any more, so that no message is locked in vain."""
        async with self._turn:
            if self._held is not None:
                with mapped(self.subject):
                    await self._give_back(self._held.handler)

    async def _give_back(self, receiver: ServiceBusReceiver) -> None:
        """Withdraw the link's credit and release what came meanwhile: its count does not rise.

        The SDK does this only when it closes a receiver, so its own function is called; without
        it the receiver is closed.
        """
        drain = getattr(receiver._amqp_transport, "drain_and_release_messages_async", None)
        if drain is None or receiver._handler is None:
            self.drop()
        else:
            await drain(receiver._handler)

    async def _open(self) -> ServiceBusReceiver:
        now = asyncio.get_running_loop().time()
        if self._held is not None and now - self._heard_at > STALE.total_seconds():
            self.drop()
        if self._held is None:
            self._held = Held(self._opens())
            self._heard_at = now
            try:
                with mapped(self.subject):
                    await self._held.open()
            except BaseException:
                self.drop()
                raise
        return self._held.handler

    def drop(self) -> None:
        """Close it in the background."""
        held, self._held = self._held, None
        if held is not None:
            closing = asyncio.create_task(held.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        self.interrupt()
        self.drop()
        await asyncio.gather(*self._closing)
