"""The shape of every answer, in one place: the views return them, the client reads them, OpenAPI lists them.

Ids are `jobId` and `stepId`; every other field is snake_case. Instants are RFC 3339 in UTC.
"""

from typing import Any, NotRequired

from typing_extensions import TypedDict


class OutboxShape(TypedDict):
    """The directive of a step on its way to the bus. `state` is PENDING, SENT or FAILED_FINAL."""

    state: str
    held: bool
    attempt_no: int
    lease_id: str | None
    topic: str
    partition: int
    created_at: str
    released_at: str | None
    sent_at: str | None
    next_attempt_at: str | None


class StepShape(TypedDict):
    stepId: str
    step_id: str
    step_index: int
    step_type: str
    service: str
    stage: int
    state: str
    status: str
    attempt_no: int
    max_attempts: int
    lease_id: str | None
    lease_expires_at: str | None
    lease_owner: str | None
    resolved_mode: str
    lane: int
    routing_key_used: str
    decision_source: str
    decision_reason: str
    input_ref: Any
    workspace_ref: str
    output_ref: Any
    payload: Any
    result_ref: Any
    retry_at: str | None
    last_error_code: str | None
    last_error_message: str | None
    created_at: str
    updated_at: str | None
    completed_at: str | None
    outbox: OutboxShape | None


class JobShape(TypedDict):
    jobId: str
    tenant_id: str
    request_type: str
    protocol_id: str
    schema_version: str
    mode: str
    lane: int
    doc_id: str | None
    engine: str
    state: str
    status: str
    phase: str
    explanation: str
    version: int
    idempotency_key: str | None
    idempotency_hash: str
    current_step_id: str | None
    current_step_index: int | None
    attempts_total: int
    retry_at: str | None
    due_at: str | None
    created_at: str
    updated_at: str
    completed_at: str | None
    cancel_requested_at: str | None
    paused_at: str | None
    dismissed_at: str | None
    error_code: str | None
    error_message: str | None
    correlation_id: str | None
    traceparent: str | None
    input_ref: Any
    output_ref: Any
    workspace_ref: str
    final_output: Any
    redrive_of: str | None
    redriven_by: str | None
    steps: NotRequired[list[StepShape]]
    outcome: NotRequired[str]


class ExecutionShape(TypedDict):
    """One attempt of one step; `exec_id` is its lease id."""

    exec_id: str
    jobId: str
    stepId: str
    step_id: str
    attempt_no: int
    state: str
    status: str
    lease_owner: str | None
    leased_at: str
    lease_expires_at: str | None
    started_at: str | None
    finished_at: str | None
    reason: str | None


class EventShape(TypedDict):
    """One line of a job's history. `seq` begins at 1 and has no gaps."""

    seq: int
    event_type: str
    created_at: str
    jobId: str
    stepId: str | None
    attempt_no: int | None
    lease_id: str | None
    moves: list[str]
    payload: dict[str, Any] | None


class StepsShape(TypedDict):
    steps: list[StepShape]


class ExecutionsShape(TypedDict):
    phase: str
    executions: list[ExecutionShape]


class EventsShape(TypedDict):
    events: list[EventShape]


class JobsShape(TypedDict):
    """A page may be short, or even empty, while `next_cursor` is set: only null means the end."""

    jobs: list[JobShape]
    next_cursor: str | None


class SubmittedShape(TypedDict):
    jobId: str
    state: str
    duplicate: bool


class RedrivenShape(TypedDict):
    jobId: str
    state: str
    duplicate: bool
    redrive_of: str


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


class ProtocolStepShape(TypedDict):
    stepId: str
    step_id: str
    step_type: str
    service: str
    stage: int
    max_attempts: int
    ack_timeout_seconds: float
    lease_seconds: float
    payload_schema: dict[str, Any] | None


class ProtocolShape(TypedDict):
    protocol_id: str
    request_type: str
    description: str
    steps: list[ProtocolStepShape]


class ProtocolsShape(TypedDict):
    version: str
    protocols: list[ProtocolShape]


class BacklogRowShape(TypedDict):
    """`window`: how many directives may be out and not acknowledged. `oldest_seconds`: for how long the
    longest of them has waited for its ACK."""

    service: str
    mode: str
    lane: int
    held: int
    released: int
    in_progress: int
    window: int
    oldest_seconds: float


class PauseShape(TypedDict):
    """Who paused a service, when, and why if they said so. A caller bound to tenants reads only when."""

    at: str
    by: str | None
    reason: str | None


class WorkerShape(TypedDict):
    """`running`: steps at work. `slots`: how many it takes at once, if it says so, as `version`."""

    worker_id: str
    last_seen: str
    running: int
    slots: int | None
    version: str | None


class ServiceShape(TypedDict):
    """`waiting`: directives that are held or sent; `sent`: those of them that are with the bus, the oldest
    since `oldest_sent_at`. `rate_per_minute`: attempts that ended, lately, and `failure_rate` the part of
    them that failed. Callers bound to tenants read neither numbers nor workers: they belong to all tenants.
    """

    service: str
    step_types: list[str]
    subscribed: bool
    paused: PauseShape | None
    first_seen: str | None
    last_seen: str | None
    waiting: int | None
    sent: int | None
    running: int | None
    oldest_sent_at: str | None
    rate_per_minute: float | None
    failure_rate: float | None
    workers: list[WorkerShape]


class ServicesShape(TypedDict):
    services: list[ServiceShape]


class ServiceOrderShape(TypedDict):
    """`outcome` is `applied`, or `already` if that held."""

    service: str
    outcome: str


class EvidenceShape(TypedDict):
    """One fact that led to a cause, and when it was so."""

    what: str
    at: str | None


class NextShape(TypedDict):
    """What happens by itself, and when, if that is known."""

    what: str
    at: str | None


class WhyShape(TypedDict):
    """A cause. `cause` is stable and has a reference page; `severity` is FINE, WAITS, PROBLEM or OUTAGE."""

    cause: str
    severity: str
    summary: str
    since: str | None
    evidence: list[EvidenceShape]
    next: NextShape
    command: str
    service: str | None


class JobWhyShape(WhyShape):
    jobId: str


class SystemWhyShape(TypedDict):
    causes: list[WhyShape]


class FailureGroupShape(TypedDict):
    """Failed attempts that are alike, of the tenants that the caller may see. `message` is what they have in
    common; `trend` counts each five minutes of the last hour, the latest last; `example` failed so last.
    `tenants` names the first twenty, `tenant_count` says how many there are.
    """

    group: str
    step_id: str
    service: str
    code: str
    message: str
    place: str | None
    count: int
    first_at: str
    last_at: str
    tenants: list[str]
    tenant_count: int
    trend: list[int]
    example: str


class FailuresShape(TypedDict):
    groups: list[FailureGroupShape]


class RedrivePlanShape(TypedDict):
    """A redrive of many. `state` is CANARY, RUNNING, DONE or STOPPED. `matched`: jobs at the start;
    `redriven`, `succeeded`, `failed`, `refused` and `under_way` count what became of them. `said`: why it
    stopped, or what it waits for.
    """

    planId: str
    state: str
    filter: dict[str, Any]
    canary: int
    rate: float
    stop_after: str
    created_at: str
    updated_at: str
    by: str
    reason: str | None
    matched: int
    redriven: int
    succeeded: int
    failed: int
    refused: int
    under_way: int
    said: str


class RedrivePlansShape(TypedDict):
    plans: list[RedrivePlanShape]


class BacklogShape(TypedDict):
    backlog: list[BacklogRowShape]


class ServiceBacklogShape(TypedDict):
    """Held, released and in progress, together."""

    backlog: int


class RetriedShape(TypedDict):
    """What `POST /v1/admin/outbox/retry` did, counted."""

    published: int
    pending: int
    failed: int


class FaultShape(TypedDict):
    """`pointer` is a JSON pointer into the body; `parameter` the name of a query parameter or header."""

    detail: str
    pointer: NotRequired[str]
    parameter: NotRequired[str]


class RefusalShape(TypedDict):
    """Why one job did not take an order for many."""

    jobId: str
    code: str
    detail: str
    errors: NotRequired[list[FaultShape]]


class BulkShape(TypedDict):
    """What one order did to all jobs that match; a dry run counts them all and moves none.

    `refused` counts by code, `refusals` lists the first hundred. `more`: the limit was reached and jobs
    are left, so the same request again goes on; in a dry run, that one request would not take them all.
    """

    dry_run: bool
    matched: int
    applied: int
    already: int
    refused: dict[str, int]
    refusals: list[RefusalShape]
    more: bool


class CallbackUrlsShape(TypedDict):
    ack: str
    result: str
    heartbeat: str
    release: str


class DirectiveShape(TypedDict):
    """One attempt of one step, as on the bus. Envelope fields that LUCIUS does not know are here too.

    `previous` has the results of the stages before, by step id. `effect_key` is the same for every
    attempt of a step, redrives included: whatever is done under it should be done once.
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
    workspace_ref: str
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
    correlation_id: str | None
    traceparent: str | None
    callback_urls: CallbackUrlsShape
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


class HealthShape(TypedDict):
    status: str


class ReadinessShape(TypedDict):
    """`checks` names every dependency: `ok`, `failed` or `no answer in time`; operators read why.

    `warnings` does not make the process unready: it goes on with what was in force before.
    """

    status: str
    checks: dict[str, str]
    warnings: dict[str, str]


class ProblemShape(TypedDict):
    """RFC 9457. `code` is stable; each has a reference page."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    errors: NotRequired[list[FaultShape]]


class UnreadyShape(ProblemShape):
    """`/readyz` while a dependency is down: a problem that names every dependency, as `ReadinessShape`."""

    checks: NotRequired[dict[str, str]]
    warnings: NotRequired[dict[str, str]]
