"""What workers are given, and what they are answered."""

from typing import Any, NotRequired

from typing_extensions import TypedDict


class CallbackShape(TypedDict):
    """`late` and `duplicate` are recorded and change nothing else."""

    outcome: str


class HeartbeatShape(CallbackShape):
    lease_expires_at: str | None
    cancel_requested: bool


class AnswerShape(CallbackShape):
    """The answer to a reply of any kind; the last two only to a heartbeat."""

    lease_expires_at: NotRequired[str | None]
    cancel_requested: NotRequired[bool]


class CallbackUrlsShape(TypedDict):
    ack: str
    result: str
    heartbeat: str
    release: str


class DirectiveShape(TypedDict):
    """One attempt of one step, as on the bus. Envelope fields that LUCIUS does not know are here too.

    References are objects with a `uri`. `previous` has the results of the stages before, by step id.
    `effect_key` is the same for every attempt of a step, redrives included: whatever is done under it
    should be done once.
    """

    type: str
    jobId: str
    tenant_id: str
    stepId: str
    protocol_id: str
    request_type: str
    step_type: str
    service: str
    attempt_no: int
    lease_id: str
    input_ref: Any
    workspace_ref: dict[str, str]
    output_folder: str
    output_ref: Any
    payload: Any
    previous: dict[str, Any]
    final_step: bool
    redrive_no: int
    effect_key: str
    ack_timeout_seconds: float
    lease_seconds: float
    mode: str
    lane: int
    routing_key_used: str
    reply_topic: str
    schema_version: str
    doc_id: str | None
    correlation_id: str
    traceparent: str
    callback_urls: NotRequired[CallbackUrlsShape]
    callback_token: str


class DirectivesShape(TypedDict):
    directives: list[DirectiveShape]


class ReplyOutcomeShape(TypedDict):
    """The answer to one reply of a batch: an outcome, or the code of a problem."""

    status: int
    outcome: NotRequired[str]
    lease_expires_at: NotRequired[str | None]
    cancel_requested: NotRequired[bool]
    code: NotRequired[str]
    detail: NotRequired[str]


class RepliesShape(TypedDict):
    outcomes: list[ReplyOutcomeShape]
