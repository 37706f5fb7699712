"""What never changes about a job: written once when it is accepted, stored apart from what moves."""

from collections.abc import Mapping, Sequence
from dataclasses import field, fields, replace
from datetime import datetime, timedelta
from typing import Any, Final

from lucius.contract.words import DecisionSource as DecisionSource
from lucius.contract.words import Mode as Mode
from lucius.core.record import opened, record

Json = Mapping[str, Any]
EMPTY: Final[Json] = {}
OUTBOX: Final = "outbox"
TEMPORAL: Final = "temporal"
FIRST_SHARD: Final = {OUTBOX: 0, TEMPORAL: 16}
"""By engine. A shard is a lane of one engine: whoever owns it moves that engine's jobs of that lane."""
_IN_MODE: Final = "|"
"""In the name of a queue, before its mode. No service has it in its name."""


@record
class Routing:
    """Where the directives of a job go. Every attempt uses these values, whatever is configured by then."""

    resolved_mode: Mode
    lane: int
    routing_key_used: str
    decision_source: DecisionSource
    decision_reason: str
    topic: str
    reply_topic: str


@record
class RetryPolicy:
    """How often a step is tried and how long each wait is. A list of waits repeats its last value."""

    max_attempts: int = 3
    ack_timeout: timedelta = timedelta(seconds=30)
    lease: timedelta = timedelta(minutes=15)
    publish_backoff: tuple[timedelta, ...] = (
        timedelta(seconds=30),
        timedelta(minutes=2),
        timedelta(minutes=10),
    )
    ack_backoff: tuple[timedelta, ...] = (
        timedelta(minutes=1),
        timedelta(minutes=5),
        timedelta(minutes=15),
    )
    execution_backoff: tuple[timedelta, ...] = (
        timedelta(seconds=30),
        timedelta(minutes=2),
        timedelta(minutes=10),
    )


BACKOFFS: Final = tuple(each.name for each in fields(RetryPolicy) if each.name.endswith("_backoff"))
"""The waits of a policy, one a track: settings, protocols and ledgers read and write them by these names."""


@record
class Sla:
    """How long a job may live, or stay paused, before someone is told (or the job fails)."""

    job: timedelta = timedelta(hours=24)
    pause: timedelta = timedelta(days=7)
    fail_job: bool = False
    fail_pause: bool = False
    limit: timedelta | None = None
    """How long the workflow of a job may run at all; then the job fails."""


@record
class StepPlan:
    step_id: str
    step_type: str
    service: str
    stage: int
    policy: RetryPolicy = RetryPolicy()
    pool: str | None = None
    """The workers that alone take it, where the tenant has some of its own; pinned with the job."""


@record
class Carried:
    """The result of a step that an earlier job, now redriven, had already completed."""

    result_ref: Any
    job_id: str


@record
class Plan:
    job_id: str
    tenant_id: str
    request_type: str
    protocol_id: str
    schema_version: str
    input_ref: Any
    output_ref: Any
    payload: Json
    """Packed, where it came from outside or from the ledger."""
    steps: tuple[StepPlan, ...]
    routing: Routing
    accepted_at: datetime
    workspace_ref: str
    engine: str = OUTBOX
    doc_id: str | None = None
    correlation_id: str | None = None
    traceparent: str | None = None
    idempotency_key: str | None = None
    idempotency_hash: str = ""
    callback_urls: tuple[str, ...] = ()
    sla: Sla = Sla()
    redrive_of: str | None = None
    redrive_no: int = 0
    """How many redrives led to this job."""
    root_job_id: str | None = None
    moved_output: bool = False
    """A redrive has given the output another place, so its last step has an effect of its own."""
    carried: Mapping[str, Carried] = field(default_factory=dict)
    extra: Json = field(default_factory=dict)
    """Envelope fields that this version does not know: kept, and passed on in directives."""

    @property
    def root(self) -> str:
        return self.root_job_id or self.job_id

    @property
    def on_temporal(self) -> bool:
        """Whether a workflow runs the job: then nothing starts that the workflow did not ask for."""
        return self.engine == TEMPORAL

    @property
    def limit_at(self) -> datetime | None:
        return self.accepted_at + self.sla.limit if self.sla.limit is not None else None

    @property
    def shard(self) -> int:
        return self.routing.lane + FIRST_SHARD[self.engine]

    def payload_of(self, step_id: str) -> Any:
        """One step: the payload is its own. Several: `payload.steps.<step_id>`, or the whole for each."""
        whole = opened(self.payload)
        by_step = whole.get("steps") if len(self.steps) > 1 else None
        return by_step.get(step_id, EMPTY) if isinstance(by_step, dict) else whole

    def payloads(self) -> Mapping[str, Any]:
        """The payload of every step, unpacked once for all of them."""
        open_plan = replace(self, payload=opened(self.payload))
        return {step.step_id: open_plan.payload_of(step.step_id) for step in self.steps}

    def queue_name(self, service: str) -> str:
        """What waits in one queue on a lane, with a window of its own: a service in one mode."""
        if self.routing.resolved_mode is Mode.DEFAULT:
            return service
        return f"{service}{_IN_MODE}{self.routing.resolved_mode.value}"

    def index_of(self, step_id: str) -> int | None:
        for index, step in enumerate(self.steps):
            if step.step_id == step_id:
                return index
        return None


def output_folders(steps: Sequence[StepPlan]) -> tuple[str, ...]:
    """Where in the workspace each step's output lies: under its type, in lower case.

    Steps whose type is there several times have their ids instead, so that each has its own place.
    """
    kinds = [step.step_type.lower() for step in steps]
    return tuple(
        kind if kinds.count(kind) == 1 else step.step_id
        for kind, step in zip(kinds, steps, strict=True)
    )


def service_of(queue_name: str) -> str:
    """The service that a queue leads to."""
    return queue_name.partition(_IN_MODE)[0]


def mode_of(queue_name: str) -> Mode:
    """The mode that a queue is for."""
    return Mode(queue_name.partition(_IN_MODE)[2] or Mode.DEFAULT)
