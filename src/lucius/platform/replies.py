"""Replies: the ACK, HEARTBEAT, RESULT and RELEASE of an attempt, and the way they take."""

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, Protocol

from lucius.core.record import record
from lucius.core.wire import message_id
from lucius.platform.directive import Directive
from lucius.platform.errors import Failure
from lucius.ports.bus import Bus, Message, Property

ACK: Final = "ACK"
HEARTBEAT: Final = "HEARTBEAT"
RESULT: Final = "RESULT"
RELEASE: Final = "RELEASE"


@record
class ReplyAnswer:
    """What the orchestrator says to a reply, where the way there has a way back."""

    cancel_requested: bool = False


SILENT: Final = ReplyAnswer()


@lru_cache(maxsize=2)
def _second_text(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).isoformat()[:-6]


def utc_text() -> str:
    """The time, as `isoformat()` writes it. Within one second only the fraction is written anew."""
    now = time.time()
    second = int(now)
    return f"{_second_text(second)}.{int((now - second) * 1e6):06d}+00:00"


class Replies(Protocol):
    async def send(self, directive: Directive, message: Message) -> ReplyAnswer:
        """Return once the reply is taken. BusUnavailableError: unknown, to be sent again."""


class BusReplies:
    """Replies over the bus. They are one way: the answer to a heartbeat does not come back."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def send(self, directive: Directive, message: Message) -> ReplyAnswer:
        await self._bus.publish(directive.reply_topic, (message,))
        return SILENT


class ReplyForm:
    """What all replies of one attempt have in common, written once.

    The same attempt and kind give the same message id, so that a repetition is recognised.
    """

    __slots__ = ("_body", "_key", "_properties")

    def __init__(self, directive: Directive, worker_id: str) -> None:
        given = directive.body
        self._key = directive.key
        self._body: dict[str, Any] = {
            "type": "",
            "jobId": directive.job_id,
            "stepId": directive.step_id,
            "tenant_id": directive.tenant_id,
            "attempt_no": directive.attempt_no,
            "lease_id": directive.lease_id,
            "timestamp": "",
            "worker_id": worker_id,
            "correlation_id": given.get("correlation_id"),
            "traceparent": given.get("traceparent"),
        }
        for name in ("tracestate", "callback_token"):
            if name in given:
                self._body[name] = given[name]
        self._properties = _properties(directive)

    def filled(
        self,
        kind: str,
        timestamp: str,
        fields: Mapping[str, Any] | None = None,
        serial: int | None = None,
    ) -> Message:
        body = {**self._body, **fields} if fields else self._body.copy()
        body["type"], body["timestamp"] = kind, timestamp
        named = kind if serial is None else f"{kind}:{serial}"
        return Message(message_id(*self._key, named), body, {**self._properties, "type": kind})


def _properties(directive: Directive) -> dict[str, Property]:
    given = directive.body
    properties: dict[str, Property] = {
        "type": "",
        "step_type": directive.step_type,
        "tenant_id": directive.tenant_id,
        "jobId": directive.job_id,
        "stepId": directive.step_id,
        "attempt_no": directive.attempt_no,
        "lease_id": directive.lease_id,
    }
    for name, source in _COPIED:
        value = given.get(source)
        if value is not None:
            properties[name] = value
    return properties


_COPIED: Final = (
    ("service", "service"),
    ("mode", "mode"),
    ("lane", "lane"),
    ("message_key", "routing_key_used"),
)
"""Properties of a reply, and the fields of its directive that they repeat."""


def succeeded(output_ref: Any) -> dict[str, Any]:
    return {"status": "SUCCEEDED", "output_ref": output_ref}


def failed(failure: Failure) -> dict[str, Any]:
    error = {"code": failure.code, "message": failure.message}
    return {"status": failure.status.value, "error": error}
