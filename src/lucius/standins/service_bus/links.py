"""The links of a connection: where messages come in and go out."""

from collections.abc import Callable
from typing import Any, Protocol
from uuid import UUID, uuid4

from lucius.standins.service_bus.codec import UInt
from lucius.standins.service_bus.frames import Flow, Transfer, error
from lucius.standins.service_bus.messages import noted
from lucius.standins.service_bus.queue import Item, Queue

CREDIT = 1000
"""What a sender may have under way."""
SETTLED_BY_SENDER = 1
WINDOW = 0x7FFFFFFF
SESSION_LOST = "com.microsoft:session-lock-lost"


class Session(Protocol):
    """What a link needs of the session that it is in."""

    def say(self, said: Any, payload: bytes = b"") -> None: ...

    def next_delivery(self) -> int: ...

    def remember(self, delivery_id: int, queue: Queue, token: UUID) -> None: ...

    def detach(self, handle: int, problem: Any) -> None: ...

    @property
    def largest_payload(self) -> int: ...


def flow(handle: int, delivery_count: int, credit: int, *, drain: bool = False) -> Flow:
    return Flow(
        next_incoming_id=UInt(0),
        incoming_window=UInt(WINDOW),
        next_outgoing_id=UInt(0),
        outgoing_window=UInt(WINDOW),
        handle=UInt(handle),
        delivery_count=UInt(delivery_count),
        link_credit=UInt(credit),
        available=UInt(0),
        drain=drain or None,
    )


class Inlet:
    """Messages come in. `take` gets each whole one with its format."""

    def __init__(self, session: Session, handle: int, take: Callable[[bytes, int], Any]) -> None:
        self._session = session
        self._handle = handle
        self._take = take
        self._count = 0
        self._left = 0
        self._parts: list[bytes] = []
        self._first: Transfer | None = None

    def open(self) -> None:
        self._left = CREDIT
        self._session.say(flow(self._handle, self._count, CREDIT))

    def transfer(self, said: Transfer, payload: bytes) -> tuple[int, Any] | None:
        """The id of a delivery that is complete, and the outcome that `take` gave it."""
        if self._first is None:
            self._first = said
        self._parts.append(payload)
        if said.more:
            return None
        first, raw = self._first, b"".join(self._parts)
        self._first, self._parts = None, []
        self._count += 1
        self._left -= 1
        result = self._take(raw, first.message_format or 0)
        if self._left <= CREDIT // 2:
            self.open()
        return (first.delivery_id or 0), result


class OutgoingLink:
    """Messages go out, as far as there is credit."""

    def __init__(self, session: Session, handle: int) -> None:
        self._session = session
        self._handle = handle
        self._count = 0
        self.credit = 0

    def flow(self, said: Flow) -> None:
        known = said.delivery_count if said.delivery_count is not None else self._count
        self.credit = max(0, known + (said.link_credit or 0) - self._count)

    def drained(self) -> None:
        """Give back the credit that cannot be used."""
        self._count += self.credit
        self.credit = 0
        self._session.say(flow(self._handle, self._count, 0, drain=True))

    def send(self, tag: bytes, raw: bytes, *, settled: bool) -> int:
        delivery_id = self._session.next_delivery()
        self._count += 1
        self.credit -= 1
        size = self._session.largest_payload
        parts = [raw[at : at + size] for at in range(0, len(raw), size)] or [b""]
        for number, part in enumerate(parts):
            more = number < len(parts) - 1
            self._session.say(
                Transfer(
                    UInt(self._handle), UInt(delivery_id), tag, UInt(0), settled, more or None
                ),
                part,
            )
        return delivery_id

    def reply(self, raw: bytes) -> None:
        self.send(uuid4().bytes, raw, settled=True)


class QueueOutlet(OutgoingLink):
    """A receiver of a queue. The tag of a delivery is its lock token."""

    def __init__(
        self, session: Session, handle: int, *, settled: bool, session_id: str | None
    ) -> None:
        super().__init__(session, handle)
        self._settled = settled
        self.session = session_id

    def lose(self) -> None:
        """The lock of its session has run out."""
        self._session.detach(self._handle, error(SESSION_LOST, "The session lock has expired."))

    def deliver(self, item: Item, token: UUID, queue: Queue) -> bool:
        until = None if self._settled else item.locked_until
        raw = item.message.encoded(item.failed, noted(item.sequence, item.enqueued_at, until))
        delivery_id = self.send(token.bytes_le, raw, settled=self._settled)
        if not self._settled:
            self._session.remember(delivery_id, queue, token)
        return self._settled
