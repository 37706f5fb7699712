"""Jobs, their steps, attempts and events, as the API shows them."""

from typing import Annotated, Any

from pydantic import Field

from lucius.contract.models.base import (
    AT,
    INPUT,
    JOB_ID,
    LATER,
    LATER_WORDS,
    LEASE_ID,
    OUTPUT,
    TRACE,
    Instant,
    JsonObject,
    MayMiss,
    View,
    words,
)
from lucius.contract.words import (
    DecisionSource,
    EntryStatus,
    ExecutionState,
    JobState,
    JobStatus,
    Mode,
    Outcome,
    Phase,
    StepState,
    StepStatus,
)

JobId = Annotated[str, Field(description="The id of the job", examples=[JOB_ID])]
TenantId = Annotated[str, Field(description="The tenant that the job is for", examples=["acme"])]
RequestType = Annotated[
    str, Field(description="The request type, which names a protocol", examples=["OCR"])
]
ProtocolId = Annotated[
    str,
    Field(description="The protocol that the job began with, and its version", examples=["ocr_v1"]),
]
SchemaVersion = Annotated[
    str, Field(description="The version of the envelope, as it was given", examples=["v1"])
]
StepId = Annotated[str, Field(description="The id of the step within the job", examples=["ocr"])]
StepType = Annotated[str, Field(description="What kind of work the step is", examples=["OCR"])]
StepService = Annotated[str, Field(description="The service that does it", examples=["ocr"])]
Stage = Annotated[
    int,
    Field(
        description="Steps of one stage run together; the next stage waits for all of them",
        examples=[0],
    ),
]
Lane = Annotated[
    int, Field(description="The lane of the job's directives, from 0 to 15", examples=[15])
]
AttemptNo = Annotated[
    int, Field(description="Which attempt it is, from 1; 0 before the first", examples=[1])
]
MaxAttempts = Annotated[int, Field(description="How many attempts the step has", examples=[3])]
RoutingKey = Annotated[str, Field(description="What the lane was computed from", examples=["acme"])]
InputRef = Annotated[
    Any,
    Field(
        description="The document: a URI, or an object that has one as `uri`",
        examples=[{"uri": INPUT}],
    ),
]
OutputRef = Annotated[
    Any,
    Field(
        description="Where the result goes: a URI, or an object that has one as `uri`",
        examples=[{"uri": OUTPUT}],
    ),
]
WorkspaceUri = Annotated[
    str,
    Field(
        description="The folder in which the steps of the job keep their work",
        examples=[f"s3://work/{JOB_ID}/"],
    ),
]
Payload = Annotated[
    Any, Field(description="Parameters, as the client gave them", examples=[{"language": "de"}])
]
CreatedAt = Annotated[Instant, Field(description="When it was made", examples=[AT])]

AnyJobState = Annotated[JobState | str, LATER_WORDS, words(*JobState)]
AnyJobStatus = Annotated[JobStatus | str, LATER_WORDS, words(*JobStatus)]
AnyStepState = Annotated[StepState | str, LATER_WORDS, words(*StepState)]
AnyStepStatus = Annotated[StepStatus | str, LATER_WORDS, words(*StepStatus)]
AnyEntryStatus = Annotated[EntryStatus | str, LATER_WORDS, words(*EntryStatus)]
AnyExecutionState = Annotated[ExecutionState | str, LATER_WORDS, words(*ExecutionState)]
AnyPhase = Annotated[Phase | str, LATER_WORDS, words(*Phase)]
AnyMode = Annotated[Mode | str, LATER_WORDS, words(*Mode)]
AnySource = Annotated[DecisionSource | str, LATER_WORDS, words(*DecisionSource)]
AnyOrdered = Annotated[Outcome | str, LATER_WORDS, words(Outcome.APPLIED, Outcome.ALREADY)]


class OutboxView(View):
    """The directive of a step on its way to the bus."""

    state: AnyEntryStatus = Field(description="How far the directive is", examples=["SENT"])
    held: bool = Field(
        description="Held back, because the service has enough for now", examples=[False]
    )
    attempt_no: AttemptNo
    lease_id: str | None = Field(
        description="The lease of the attempt: replies must carry it", examples=[LEASE_ID]
    )
    topic: str = Field(
        description="The topic that the directive goes to", examples=["global-bus-p15"]
    )
    partition: int = Field(description="The number in the name of the topic", examples=[15])
    created_at: CreatedAt
    released_at: Instant | None = Field(description="When it was let go to the bus", examples=[AT])
    sent_at: Instant | None = Field(description="When the bus had taken it", examples=[AT])
    next_attempt_at: Instant | None = Field(
        description="When it is published again after a refusal", examples=[None]
    )


class StepView(View):
    """`started_at` is when a worker took the latest attempt; until then the step only waits."""

    stepId: StepId
    step_id: StepId
    step_index: int = Field(
        description="The place of the step among the steps, from 0", examples=[0]
    )
    step_type: StepType
    service: StepService
    stage: Stage
    state: AnyStepState = Field(description="Where it is, precisely", examples=["SUCCEEDED"])
    status: AnyStepStatus = Field(
        description="Where it is, in coarser words that follow from `state`", examples=["SUCCEEDED"]
    )
    attempt_no: AttemptNo
    max_attempts: MaxAttempts
    lease_id: str | None = Field(
        description="The lease of the attempt: replies must carry it", examples=[LEASE_ID]
    )
    lease_expires_at: Instant | None = Field(
        description="Until when the worker must have said something", examples=[AT]
    )
    lease_owner: str | None = Field(
        description="The worker that holds the lease", examples=["worker-1"]
    )
    resolved_mode: AnyMode = Field(
        description="The mode that was decided when the job was accepted", examples=["DEFAULT"]
    )
    lane: Lane
    routing_key_used: RoutingKey
    decision_source: AnySource = Field(
        description="Who decided the mode", examples=["GLOBAL_CONFIG"]
    )
    decision_reason: str = Field(
        description="Why the mode is this one", examples=["the global default is DEFAULT"]
    )
    input_ref: InputRef
    workspace_ref: WorkspaceUri
    output_ref: OutputRef
    payload: Payload
    result_ref: Any = Field(
        description="The result of the step, once it has succeeded", examples=[{"uri": OUTPUT}]
    )
    retry_at: Instant | None = Field(
        description="When what failed is tried again; null if nothing waits for that",
        examples=[None],
    )
    last_error_code: str | None = Field(
        description="The code with which the latest attempt failed", examples=[None]
    )
    last_error_message: str | None = Field(
        description="What was said of that failure", examples=[None]
    )
    created_at: CreatedAt
    started_at: Instant | None = Field(
        description="When a worker took the latest attempt; null while it only waits", examples=[AT]
    )
    updated_at: Instant | None = Field(description="When it changed last", examples=[LATER])
    completed_at: Instant | None = Field(description="When it ended; null before", examples=[LATER])
    outbox: OutboxView | None = Field(description="The directive of the step on its way to the bus")


class OwedWebhookView(View):
    """A webhook that the client was not told by yet."""

    host: str = Field(description="The host of its address", examples=["hooks.acme.org"])
    tries: int = Field(description="How often it was tried", examples=[3])
    next_at: Instant = Field(description="When it is tried again", examples=[LATER])
    error: str | None = Field(
        description="Why the last try failed, if one has", examples=["it answered 503"]
    )


class ListedJobView(View):
    """A job in a list, which leaves its steps out."""

    jobId: JobId
    tenant_id: TenantId
    request_type: RequestType
    protocol_id: ProtocolId
    schema_version: SchemaVersion
    mode: AnyMode = Field(
        description="How the directives of the job are spread over the lanes", examples=["DEFAULT"]
    )
    lane: Lane
    doc_id: str | None = Field(
        description="The id of the document, as the client gave it", examples=["contract-17"]
    )
    engine: Annotated[str, words("outbox", "temporal")] = Field(
        description="What moves the job", examples=["outbox"]
    )
    state: AnyJobState = Field(description="Where it is, precisely", examples=["SUCCEEDED"])
    status: AnyJobStatus = Field(
        description="Where it is, in coarser words that follow from `state`", examples=["SUCCEEDED"]
    )
    phase: AnyPhase = Field(
        description="Where the job is, computed from its attempts alone", examples=["SUCCEEDED"]
    )
    explanation: str = Field(
        description="Why the job is where it is, in one sentence", examples=["it succeeded"]
    )
    version: int = Field(
        description="How often the job was saved; it grows with every change", examples=[7]
    )
    idempotency_key: str | None = Field(
        description="The client's key: the same key finds the same job",
        examples=["contract-17-january"],
    )
    idempotency_hash: str = Field(
        description="The hash by which the same request finds the same job",
        examples=["9f86d081884c7d65"],
    )
    current_step_id: str | None = Field(
        description="The id of the step that is next or under way; null at the end", examples=[None]
    )
    current_step_index: int | None = Field(
        description="The place of that step among the steps, from 0", examples=[None]
    )
    attempts_total: int = Field(description="Attempts of all steps together", examples=[1])
    retry_at: Instant | None = Field(
        description="When what failed is tried again; null if nothing waits for that",
        examples=[None],
    )
    due_at: Instant | None = Field(
        description="When LUCIUS looks at the job next by itself", examples=[None]
    )
    created_at: CreatedAt
    updated_at: Instant = Field(description="When it changed last", examples=[LATER])
    completed_at: Instant | None = Field(description="When it ended; null before", examples=[LATER])
    cancel_requested_at: Instant | None = Field(
        description="When a cancel was asked for, if ever", examples=[None]
    )
    paused_at: Instant | None = Field(
        description="Since when it is paused or pausing; null if it is not", examples=[None]
    )
    dismissed_at: Instant | None = Field(
        description="When it was taken out of the dead-letter view, if ever", examples=[None]
    )
    error_code: str | None = Field(
        description="The code with which the job failed", examples=[None]
    )
    error_message: str | None = Field(description="What was said of the failure", examples=[None])
    correlation_id: str | None = Field(
        description="The client's own id; logs and directives carry it", examples=["order-4711"]
    )
    traceparent: str | None = Field(
        description="The W3C trace that the job belongs to", examples=[TRACE]
    )
    input_ref: InputRef
    output_ref: OutputRef
    workspace_ref: WorkspaceUri
    final_output: Any = Field(
        description="The result of the last step, once the job has succeeded",
        examples=[{"uri": OUTPUT}],
    )
    redrive_of: str | None = Field(
        description="The failed job that this one took over from", examples=[None]
    )
    redriven_by: str | None = Field(
        description="The job that took over from this failed one", examples=[None]
    )
    webhooks: list[OwedWebhookView] = Field(
        [], description="Webhooks that are not delivered yet", examples=[[]]
    )


class JobView(ListedJobView):
    """A job with its steps. Answers to orders say the outcome."""

    steps: list[StepView] = Field(description="The steps, in their order")
    outcome: MayMiss[AnyOrdered] = Field(
        None, description="What became of the order", examples=["applied"]
    )


class ExecutionView(View):
    """One attempt of one step; `exec_id` is its lease id."""

    exec_id: str = Field(
        description="The id of the attempt, which is its lease id", examples=[LEASE_ID]
    )
    jobId: JobId
    stepId: StepId
    step_id: StepId
    attempt_no: AttemptNo
    state: AnyExecutionState = Field(description="Where the attempt is", examples=["DONE"])
    status: AnyExecutionState = Field(description="The same as `state`", examples=["DONE"])
    lease_owner: str | None = Field(
        description="The worker that holds the lease", examples=["worker-1"]
    )
    leased_at: Instant = Field(description="When the attempt began", examples=[AT])
    lease_expires_at: Instant | None = Field(
        description="Until when the worker must have said something", examples=[AT]
    )
    started_at: Instant | None = Field(
        description="When a worker took the latest attempt; null while it only waits", examples=[AT]
    )
    finished_at: Instant | None = Field(
        description="When the attempt ended; null before", examples=[LATER]
    )
    reason: str | None = Field(
        description="Why the attempt was given up; null if it was not", examples=[None]
    )


class EventView(View):
    """One line of a job's history. `seq` begins at 1 and has no gaps."""

    seq: int = Field(description="The number of the event: from 1, without gaps", examples=[1])
    event_type: str = Field(description="What happened", examples=["submitted"])
    created_at: CreatedAt
    jobId: JobId
    stepId: str | None = Field(
        description="The step that it is about; null for the whole job", examples=[None]
    )
    attempt_no: int | None = Field(description="The attempt that it is about", examples=[None])
    lease_id: str | None = Field(description="The lease of that attempt", examples=[None])
    moves: list[str] = Field(
        description="What moved, from where to where", examples=[["job QUEUED->DISPATCHING"]]
    )
    payload: JsonObject | None = Field(description="What was said with it", examples=[None])


class StepsView(View):
    """The steps of one job."""

    steps: list[StepView] = Field(description="The steps, in their order")


class ExecutionsView(View):
    """The attempts of one job, and the phase they add up to."""

    phase: AnyPhase = Field(
        description="Where the job is, computed from its attempts alone", examples=["SUCCEEDED"]
    )
    executions: list[ExecutionView] = Field(description="Every attempt of every step, in order")


class EventsView(View):
    """A page of the history of one job."""

    events: list[EventView] = Field(description="The events, in order")


class JobsView(View):
    """A page may be short, or even empty, while `next_cursor` is set: only null means the end."""

    jobs: list[ListedJobView] = Field(description="The jobs, newest first")
    next_cursor: str | None = Field(
        description="Give it as `cursor` for the next page; null: there is none", examples=[None]
    )


# What LUCIUS sends to the webhooks that a client names: how a job ended.


class EndedJob(View):
    """The job at its end."""

    jobId: JobId
    tenant_id: TenantId
    request_type: RequestType
    state: AnyJobState = Field(description="How it ended", examples=["SUCCEEDED"])
    status: AnyJobStatus = Field(
        description="How it ended, in coarser words that follow from `state`",
        examples=["SUCCEEDED"],
    )
    phase: AnyPhase = Field(
        description="Where the job is, computed from its attempts alone", examples=["SUCCEEDED"]
    )
    final_output: Any = Field(
        description="The result of the last step, once the job has succeeded",
        examples=[{"uri": OUTPUT}],
    )
    error_code: str | None = Field(
        description="The code with which the job failed", examples=[None]
    )
    error_message: str | None = Field(description="What was said of the failure", examples=[None])
    correlation_id: str | None = Field(
        description="The client's own id; logs and directives carry it", examples=["order-4711"]
    )


class JobEndedWebhook(View):
    """The body of a webhook, as Standard Webhooks have it. Its headers carry its id and its signature."""

    type: Annotated[str, words("job.succeeded", "job.failed_final", "job.cancelled")] = Field(
        description="How the job ended", examples=["job.succeeded"]
    )
    timestamp: Instant = Field(description="When it ended", examples=[LATER])
    data: EndedJob = Field(description="The job at its end")
