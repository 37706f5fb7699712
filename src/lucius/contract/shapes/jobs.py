"""Jobs, their steps, attempts and events, as the API shows them."""

from typing import Any, NotRequired

from typing_extensions import TypedDict

from lucius.contract.shapes.system import FaultShape


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
    """`started_at` is when a worker took the latest attempt; until then the step only waits."""

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
    started_at: str | None
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
    """`warnings`: fields that are kept though nobody knows them, where a known one may be meant."""

    jobId: str
    state: str
    duplicate: bool
    warnings: NotRequired[list[FaultShape]]


class RedrivenShape(TypedDict):
    jobId: str
    state: str
    duplicate: bool
    redrive_of: str
    warnings: NotRequired[list[FaultShape]]


class RetriedShape(TypedDict):
    """What `POST /v1/admin/outbox/retry` did, counted."""

    published: int
    pending: int
    failed: int


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
