"""A directive as the kit sees it: checked once on arrival, then only read."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from lucius.core.record import record
from lucius.core.routing import reply_topic
from lucius.core.wire import effect_key
from lucius.platform.errors import InvalidDirectiveError
from lucius.telemetry.tracing import NoSpan

AttemptKey = tuple[str, str, int, str]
DEFAULT_ACK_SECONDS: Final = 30.0
DEFAULT_LEASE_SECONDS: Final = 900.0
_NAMES: Final = ("jobId", "stepId", "step_type", "lease_id")
_FOR_WORK: Final = ("output_folder", "ack_timeout_seconds", "lease_seconds")
_OPTIONAL: Final = frozenset({"output_folder"})


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
    body: Mapping[str, Any]

    @property
    def key(self) -> AttemptKey:
        """What makes two directives the same piece of work."""
        return self.job_id, self.step_id, self.attempt_no, self.lease_id

    def under(self, span: NoSpan) -> "Directive":
        """The same work below another span: replies, and what the service calls, go on from there."""
        body = span.below(self.body)
        return self if body is self.body else replace(self, body=body)

    @property
    def workspace(self) -> str:
        """The root of the job's workspace, with a slash at its end."""
        uri = uri_of(self.body.get("workspace_ref"))
        if not uri:
            raise InvalidDirectiveError("/workspace_ref: required")
        return uri.rstrip("/") + "/"

    @property
    def effect_key(self) -> str:
        given = self.body.get("effect_key")
        if isinstance(given, str) and given:
            return given
        body = self.body
        return effect_key(self.job_id, self.step_id, body.get("input_ref"), body.get("payload"))

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
    def overwrite(self) -> bool:
        """Whether the client said that its output may replace what stands at `output_ref`."""
        return self.body.get("overwrite") is True

    @property
    def staging(self) -> str:
        """Where this attempt, and nobody else, writes."""
        return f"{self.workspace}{self.folder}{self.attempt_no}/{self.lease_id}/"


def parse_directive(body: Mapping[str, Any]) -> Directive:
    for name in (*_NAMES, *_OPTIONAL.intersection(body)):
        value = body.get(name)
        if not isinstance(value, str) or not value or "/" in value or value in (".", ".."):
            raise InvalidDirectiveError(f"/{name}: must be a string that can be a file's name")
    if not isinstance(body.get("tenant_id"), str):
        raise InvalidDirectiveError("/tenant_id: must be a string")
    attempt_no = body.get("attempt_no")
    if type(attempt_no) is not int or attempt_no < 1:
        raise InvalidDirectiveError("/attempt_no: must be a whole number from 1")
    return Directive(
        body["jobId"],
        body["stepId"],
        body["tenant_id"],
        body["step_type"],
        body["lease_id"],
        attempt_no,
        _reply_topic(body),
        _seconds(body, "ack_timeout_seconds", DEFAULT_ACK_SECONDS),
        _seconds(body, "lease_seconds", DEFAULT_LEASE_SECONDS),
        body,
    )


def answerable(body: Mapping[str, Any]) -> Directive | None:
    """As much of a faulty directive as its RESULT needs; None if it does not say whom to answer."""
    named = {name: value for name, value in body.items() if name not in _FOR_WORK}
    try:
        return parse_directive({**named, "step_type": str(body.get("step_type") or "?")})
    except InvalidDirectiveError:
        return None


def _reply_topic(body: Mapping[str, Any]) -> str:
    named, lane = body.get("reply_topic"), body.get("lane")
    if isinstance(named, str) and named:
        return named
    if type(lane) is int:
        return reply_topic(lane)
    raise InvalidDirectiveError("/reply_topic: required")


def _seconds(body: Mapping[str, Any], name: str, default: float) -> float:
    value = body.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise InvalidDirectiveError(f"/{name}: must be a number above 0")
    return float(value)


def uri_of(reference: Any) -> str | None:
    """References are URIs: a string, or an object that has one."""
    if isinstance(reference, Mapping):
        reference = reference.get("uri")
    return reference if isinstance(reference, str) else None
