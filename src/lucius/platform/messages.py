"""A directive as the kit sees it: checked once on arrival, then only read."""

import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, Protocol

from lucius.core.record import record
from lucius.core.routing import reply_topic
from lucius.core.wire import effect_key, message_id
from lucius.platform.errors import Failure, InvalidDirectiveError
from lucius.ports.bus import Bus, Message, Property
from lucius.system.tracing import NoSpan

AttemptKey = tuple[str, str, int, str]
DEFAULT_ACK_SECONDS: Final = 30.0
DEFAULT_LEASE_SECONDS: Final = 900.0
_NAMES: Final = ("jobId", "stepId", "step_type", "lease_id")
_OPTIONAL: Final = "output_folder"
_FOR_WORK: Final = (_OPTIONAL, "ack_timeout_seconds", "lease_seconds", "input_ref", "payload")


@record
class Directive:
    job_id: str
    step_id: str
    tenant_id: str
    step_type: str
    lease_id: str
    attempt_no: int
    reply_topic: str
    ack_seconds: float
    lease_seconds: float
    root: str
    """The job's workspace, with a slash at its end; empty where the directive names none."""
    effect_key: str
    """The same for every attempt of the step, and for the redrives that repeat it."""
    origin: str
    """The workspace of the job where the effect began: a redriven job meets its record there."""
    body: Mapping[str, Any]
    key: AttemptKey
    """What makes two directives the same piece of work."""

    def under(self, span: NoSpan) -> "Directive":
        """The same work below another span: replies, and what the service calls, go on from there."""
        body = span.below(self.body)
        return self if body is self.body else replace(self, body=body)

    @property
    def workspace(self) -> str:
        """The root of the job's workspace, with a slash at its end."""
        if not self.root:
            raise InvalidDirectiveError("/workspace_ref: required")
        return self.root

    @property
    def folder(self) -> str:
        """Where the step's promoted output lives, inside the workspace."""
        named = self.body.get("output_folder") or self.step_type.lower()
        return f"{named}/"

    @property
    def redrive_no(self) -> int:
        """How many redrives led to this job: among jobs of one origin, the highest is the latest."""
        given = self.body.get("redrive_no")
        return given if type(given) is int and given > 0 else 0

    @property
    def first(self) -> bool:
        """Whether it is the first attempt, in the job where the effect began."""
        return self.attempt_no == 1 and not self.redrive_no and self.origin == self.root

    @property
    def overwrite(self) -> bool:
        """Whether the client said that its output may replace what stands at `output_ref`."""
        return self.body.get("overwrite") is True

    @property
    def staging(self) -> str:
        """Where this attempt, and nobody else, writes."""
        return f"{self.workspace}{self.folder}{self.attempt_no}/{self.lease_id}/"


def parse_directive(body: Mapping[str, Any]) -> Directive:
    for name in _NAMES if _OPTIONAL not in body else (*_NAMES, _OPTIONAL):
        value = body.get(name)
        if not isinstance(value, str) or not value or "/" in value or value in (".", ".."):
            raise InvalidDirectiveError(f"/{name}: must be a string that can be a file's name")
    if not isinstance(body.get("tenant_id"), str):
        raise InvalidDirectiveError("/tenant_id: must be a string")
    attempt_no = body.get("attempt_no")
    if type(attempt_no) is not int or attempt_no < 1:
        raise InvalidDirectiveError("/attempt_no: must be a whole number from 1")
    job_id, root, effect = body["jobId"], _root(body), _effect_key(body)
    step_id, lease_id = body["stepId"], body["lease_id"]
    return Directive(
        job_id,
        step_id,
        body["tenant_id"],
        body["step_type"],
        lease_id,
        attempt_no,
        _reply_topic(body),
        _seconds(body, "ack_timeout_seconds", DEFAULT_ACK_SECONDS),
        _seconds(body, "lease_seconds", DEFAULT_LEASE_SECONDS),
        root,
        effect,
        _origin(job_id, root, effect),
        body,
        (job_id, step_id, attempt_no, lease_id),
    )


def _root(body: Mapping[str, Any]) -> str:
    uri = uri_of(body.get("workspace_ref"))
    return uri.rstrip("/") + "/" if uri else ""


def _effect_key(body: Mapping[str, Any]) -> str:
    given = body.get("effect_key")
    if isinstance(given, str) and given:
        return given
    try:
        return effect_key(body["jobId"], body["stepId"], body.get("input_ref"), body.get("payload"))
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidDirectiveError(f"/payload: is not JSON ({error})") from error


def _origin(job_id: str, root: str, effect: str) -> str:
    began, own = effect.partition(":")[0], f"/{job_id}/"
    if began and began != job_id and root.endswith(own):
        return f"{root[: -len(own)]}/{began}/"
    return root


def answerable(body: Mapping[str, Any]) -> Directive | None:
    """As much of a faulty directive as its RESULT needs; None if it does not say whom to answer."""
    named = {name: value for name, value in body.items() if name not in _FOR_WORK}
    try:
        return parse_directive({**named, "step_type": str(body.get("step_type") or "?")})
    except InvalidDirectiveError:
        return None


def _reply_topic(body: Mapping[str, Any]) -> str:
    """By the lane: the bus of the kit adds the prefix of its topics itself, which the name has already."""
    named, lane = body.get("reply_topic"), body.get("lane")
    if type(lane) is int:
        return reply_topic(lane)
    if isinstance(named, str) and named:
        return named
    raise InvalidDirectiveError("/reply_topic: required")


def _seconds(body: Mapping[str, Any], name: str, default: float) -> float:
    value = body.get(name, default)
    if type(value) not in (float, int) or value <= 0:
        raise InvalidDirectiveError(f"/{name}: must be a number above 0")
    return float(value)


def uri_of(reference: Any) -> str | None:
    """References are URIs: a string, or an object that has one."""
    if isinstance(reference, Mapping):
        reference = reference.get("uri")
    return reference if isinstance(reference, str) else None


# Replies: the ACK, HEARTBEAT, RESULT and RELEASE of an attempt, and the way they take.

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
