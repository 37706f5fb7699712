"""The nodes that answer: `$cbs` takes tokens; `$management` renews, settles, peeks and lists rules."""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from lucius.standins.service_bus.codec import Array, Described, Int, Symbol, Timestamp, ULong
from lucius.standins.service_bus.filters import Rule
from lucius.standins.service_bus.links import SESSION_LOST
from lucius.standins.service_bus.messages import answer, noted, parse, value_of
from lucius.standins.service_bus.queue import Queue

LOCK_LOST: Final = "com.microsoft:message-lock-lost"
NOT_IMPLEMENTED: Final = "amqp:not-implemented"
NOT_FOUND: Final = "amqp:not-found"
TIMESTAMP: Final = 0x83
LIST_RULES: Final = "com.microsoft:enumerate-rules"
DESCRIPTION, NO_ACTION, SQL, CORRELATION = (
    ULong(0x137_0000_0000 + number) for number in (4, 5, 6, 9)
)
"""The types of a rule and its parts in the answer to it."""
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
    ways: dict[str, Callable[[UUID], bool]] = {
        "completed": queue.complete,
        "abandoned": queue.abandon,
        "defered": queue.defer,
        "suspended": lambda token: queue.dead_letter(token, reason, description),
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
