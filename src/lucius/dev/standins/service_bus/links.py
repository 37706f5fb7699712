"""The links of a connection: where messages come in and go out."""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID, uuid4

from lucius.dev.standins.service_bus.codec import (
    Array,
    Described,
    Flow,
    Int,
    Symbol,
    Timestamp,
    Transfer,
    UInt,
    ULong,
    error,
)
from lucius.dev.standins.service_bus.filters import Rule
from lucius.dev.standins.service_bus.messages import answer, noted, parse, value_of
from lucius.dev.standins.service_bus.queue import Item, Queue

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


# The nodes that answer: `$cbs` takes tokens; `$management` renews, settles, peeks and lists rules.

LOCK_LOST: Final = "com.microsoft:message-lock-lost"
NOT_IMPLEMENTED: Final = "amqp:not-implemented"
NOT_FOUND: Final = "amqp:not-found"
TIMESTAMP: Final = 0x83
LIST_RULES: Final = "com.microsoft:enumerate-rules"
DESCRIPTION, NO_ACTION = ULong(0x137_0000_0004), ULong(0x137_0000_0005)
SQL, CORRELATION = ULong(0x13_7000_0006), ULong(0x13_7000_0009)
"""The types of a rule and its parts in the answer to it: filters have fewer zeros."""
CORRELATED: Final = (
    "correlation_id",
    "message_id",
    "to",
    "reply_to",
    "subject",
    "session_id",
    "reply_to_session_id",
    "content_type",
)
"""In the order in which a correlation filter has them."""


class Answer(NamedTuple):
    status: int
    body: Any = None
    condition: str | None = None


def token_answer(raw: bytes, *, good: bool) -> bytes:
    status, words = (202, "Accepted") if good else (401, "InvalidSignature")
    said = {"status-code": Int(status), "status-description": words}
    return answer(parse(raw).system.get("message_id"), said, None)


def answer_of(queue: Queue | None, raw: bytes, rules: Sequence[Rule] = ()) -> bytes:
    """`rules`: those of the subscription."""
    request = parse(raw)
    operation = str(request.application.get("operation"))
    body = value_of(raw) or {}
    if operation not in (*OPERATIONS, LIST_RULES):
        given = Answer(501, None, NOT_IMPLEMENTED)
    elif queue is None:
        given = Answer(404, None, NOT_FOUND)
    elif operation == LIST_RULES:
        given = _listed(rules, body)
    else:
        given = OPERATIONS[operation](queue, body)
    said: dict[str, Any] = {
        "statusCode": Int(given.status),
        "statusDescription": given.condition or "OK",
    }
    if given.condition is not None:
        said["errorCondition"] = Symbol(given.condition)
    return answer(request.system.get("message_id"), said, given.body or {})


def _tokens(body: dict[str, Any]) -> list[UUID]:
    found = body["lock-tokens"]
    return list(found.items if isinstance(found, Array) else found)


def _renew(queue: Queue, body: dict[str, Any]) -> Answer:
    renewed = [queue.renew(token) for token in _tokens(body)]
    if None in renewed:
        return Answer(410, None, LOCK_LOST)
    until = tuple(Timestamp(int(each * 1000)) for each in renewed if each is not None)
    return Answer(200, {"expirations": Array(TIMESTAMP, until)})


def _settle(queue: Queue, body: dict[str, Any]) -> Answer:
    reason = str(body.get("deadletter-reason", ""))
    description = str(body.get("deadletter-description", ""))
    changes = body.get("properties-to-modify")
    ways: dict[str, Callable[[UUID], bool]] = {
        "completed": queue.complete,
        "abandoned": lambda token: queue.abandon(token, changes=changes),
        "defered": lambda token: queue.defer(token, changes),
        "suspended": lambda token: queue.dead_letter(token, reason, description, changes),
    }
    way = ways.get(str(body["disposition-status"]))
    if way is None:
        return Answer(501, None, NOT_IMPLEMENTED)
    settled = [way(token) for token in _tokens(body)]
    return Answer(200) if all(settled) else Answer(410, None, LOCK_LOST)


def _peek(queue: Queue, body: dict[str, Any]) -> Answer:
    first, most = body["from-sequence-number"], body["message-count"]
    found = [item for item in queue if item.sequence >= first][:most]
    shown = [
        {"message": item.message.encoded(item.failed, noted(item.sequence, item.enqueued_at, None))}
        for item in found
    ]
    return Answer(200 if shown else 204, {"messages": shown})


def _renew_session(queue: Queue, body: dict[str, Any]) -> Answer:
    until = queue.sessions.renew(str(body["session-id"]))
    if until is None:
        return Answer(410, None, SESSION_LOST)
    return Answer(200, {"expiration": Timestamp(int(until * 1000))})


def _listed(rules: Sequence[Rule], body: dict[str, Any]) -> Answer:
    asked = rules[body["skip"] : body["skip"] + body["top"]]
    shown = [{"rule-description": Described(DESCRIPTION, _described(rule))} for rule in asked]
    return Answer(200, {"rules": shown}) if shown else Answer(204)


def _described(rule: Rule) -> list[Any]:
    if rule.sql is not None:
        test = Described(SQL, [rule.sql])
    else:
        own = [rule.system.get(name) for name in CORRELATED]
        test = Described(CORRELATION, [*own, dict(rule.correlation)])
    return [test, Described(NO_ACTION, []), rule.name]


OPERATIONS: Final[dict[str, Callable[[Queue, dict[str, Any]], Answer]]] = {
    "com.microsoft:renew-lock": _renew,
    "com.microsoft:renew-session-lock": _renew_session,
    "com.microsoft:update-disposition": _settle,
    "com.microsoft:peek-message": _peek,
}
"""What `$management` does; the rest is answered with amqp:not-implemented."""
