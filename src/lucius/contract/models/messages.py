"""What workers are given and what they say, over the bus and over HTTP; and what they are answered."""

from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field
from pydantic.annotated_handlers import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from lucius.contract.models.base import (
    AT,
    INPUT,
    JOB_ID,
    LATER_WORDS,
    LEASE_ID,
    OUTPUT,
    TOKEN,
    TRACE,
    AnyCase,
    AnyWhole,
    Instant,
    JsonObject,
    MayMiss,
    RequestBody,
    View,
    words,
)
from lucius.contract.models.jobs import (
    AnyMode,
    JobId,
    Lane,
    RequestType,
    RoutingKey,
    SchemaVersion,
    StepId,
    StepService,
    StepType,
    TenantId,
)
from lucius.contract.words import ERROR_CODE, MAX_ATTEMPT_NO, MAX_SLOTS, UNCLASSIFIED, Outcome

MAX_REPLIES: Final = 256
"""Of one batch."""
_REPLIED: Final = (Outcome.APPLIED, Outcome.DUPLICATE, Outcome.LATE)
AnyReplied = Annotated[Outcome | str, LATER_WORDS, words(*_REPLIED)]
LeaseId = Annotated[
    str, Field(description="The lease of the attempt: replies must carry it", examples=[LEASE_ID])
]
LiveAttemptNo = Annotated[int, Field(description="Which attempt it is, from 1", examples=[1])]
WorkerSlots = Annotated[int, Field(ge=1, le=MAX_SLOTS), AnyWhole]

# -- what workers are given ------------------------------------------------------------------


class CallbackUrlsView(View):
    """Where replies over HTTP go, by kind."""

    ack: str = Field(
        description="For the ACK", examples=["https://lucius.example/v1/callbacks/ack"]
    )
    result: str = Field(
        description="For the RESULT", examples=["https://lucius.example/v1/callbacks/result"]
    )
    heartbeat: str = Field(
        description="For heartbeats", examples=["https://lucius.example/v1/callbacks/heartbeat"]
    )
    release: str = Field(
        description="For giving the lease back",
        examples=["https://lucius.example/v1/callbacks/release"],
    )


class DirectiveMessage(View):
    """One attempt of one step, on the bus and over HTTP. Envelope fields that LUCIUS does not know are here
    too. References are objects with a `uri`.
    """

    type: Literal["DIRECTIVE"] = Field(
        description="What kind of message it is", examples=["DIRECTIVE"]
    )
    jobId: JobId
    tenant_id: TenantId
    stepId: StepId
    protocol_id: str = Field(
        description="The protocol that the job follows, as it was when the job was accepted",
        examples=["ocr_v1"],
    )
    request_type: RequestType
    step_type: StepType
    service: StepService
    attempt_no: LiveAttemptNo
    lease_id: LeaseId
    input_ref: Any = Field(
        description="The client's reference to the document: an object with a `uri`, also where"
        " the client gave a text, and with what else it put into it",
        examples=[{"uri": INPUT}],
    )
    workspace_ref: dict[str, str] = Field(
        description="Its `uri` says where this job's steps keep their output: staged output under"
        " `<output_folder>/<attempt_no>/`, promoted output under `<output_folder>/`",
        examples=[{"uri": f"s3://work/{JOB_ID}/"}],
    )
    output_folder: str = Field(
        description="This step's own folder there: its type in lower case, or its id where the"
        " protocol has the type more than once",
        examples=["ocr"],
    )
    output_ref: Any = Field(
        description="Where the result goes, as `input_ref`; the job's id stands for `{jobId}` in it",
        examples=[{"uri": OUTPUT}],
    )
    payload: Any = Field(description="The parameters of this step", examples=[{"language": "de"}])
    previous: JsonObject = Field(
        description="What the steps of earlier stages gave back, by step id; a text that one gave"
        " is the `uri` of an object here",
        examples=[{"split": {"uri": f"s3://work/{JOB_ID}/split/pages.json"}}],
    )
    final_step: bool = Field(
        description="Whether it is the last step: its output belongs at `output_ref`",
        examples=[True],
    )
    redrive_no: int = Field(
        description="How many redrives led to this job: of two jobs that share a workspace and an"
        " `output_ref`, the higher one counts, and the other must not replace its"
        " output",
        examples=[0],
    )
    effect_key: str = Field(
        description="The same for every attempt of the step, redrives included: do under it once"
        " what should be done once",
        examples=[f"{JOB_ID}:ocr:9c1185a5c5e9fc54"],
    )
    ack_timeout_seconds: float = Field(
        description="How long the ACK may take, from the publish on", examples=[30.0]
    )
    lease_seconds: float = Field(
        description="How long the work may go on after the ACK without heartbeat or RESULT",
        examples=[900.0],
    )
    mode: AnyMode = Field(
        description="How the job's directives are spread over the lanes; pinned when it was accepted",
        examples=["DEFAULT"],
    )
    lane: int = Field(
        description="The lane of the job's directives, from 0 to 15; pinned like the mode",
        examples=[15],
    )
    routing_key_used: RoutingKey
    reply_topic: str = Field(
        description="Where replies over the bus go: the topic's name on the broker, with"
        " `LUCIUS_SERVICEBUS_PREFIX`",
        examples=["global-bus-replies-p15"],
    )
    schema_version: SchemaVersion
    doc_id: str | None = Field(
        description="The id of the document, as the client gave it", examples=["contract-17"]
    )
    correlation_id: str = Field(
        description="The client's own id; the job's id where it gave none", examples=["order-4711"]
    )
    traceparent: str = Field(
        description="The client's trace, or a span of LUCIUS in it. Where the client gave none,"
        " all directives of a job have one that LUCIUS made",
        examples=[TRACE],
    )
    pool: MayMiss[str] = Field(
        None,
        description="The workers that alone take it, where the tenant has some of its own",
        examples=["acme"],
    )
    callback_urls: MayMiss[CallbackUrlsView] = Field(
        None,
        description="Where replies over HTTP go, by kind. Left out where the process that"
        " publishes knows no URL of the API: set `LUCIUS_PUBLIC_URL` for `lucius"
        " reconciler` and `lucius invoker`",
    )
    callback_token: str = Field(
        description="Opens the callbacks of this one attempt, and nothing else: goes back with"
        " every reply",
        examples=[TOKEN],
    )


class DirectivesView(View):
    """The answer to a pull."""

    directives: list[DirectiveMessage] = Field(
        description="Directives that are handed to this worker"
    )


class PullBody(RequestBody):
    """What a worker asks for."""

    max: Annotated[int, Field(ge=1, le=256), AnyWhole] = Field(
        1,
        description="The worker's free slots: at most this many directives are handed out",
        examples=[8],
    )
    wait_seconds: Annotated[float, Field(ge=0, le=60)] = Field(
        0.0, description="How long to wait if there is nothing yet", examples=[20]
    )
    worker_id: str | None = Field(
        None,
        description="Who asks, for `GET /v1/services`; else the name of the caller",
        examples=["worker-1"],
    )
    slots: WorkerSlots | None = Field(
        None, description="How many steps the worker takes at once", examples=[8]
    )
    version: str | None = Field(
        None, description="Which release of the service it runs", examples=["1.4.0"]
    )


# -- what workers say ------------------------------------------------------------------------

BoundId = Annotated[str, Field(min_length=1, max_length=256)]


class ReplyMessage(RequestBody):
    """What every reply says. Its job, step, attempt and lease are those of the directive."""

    jobId: BoundId = Field(description="The id of the job", examples=[JOB_ID])
    stepId: BoundId = Field(description="The id of the step within the job", examples=["ocr"])
    attempt_no: Annotated[int, Field(ge=1, le=MAX_ATTEMPT_NO), AnyWhole] = Field(
        description="Which attempt it is, from 1", examples=[1]
    )
    lease_id: BoundId = Field(description="The lease of the attempt", examples=[LEASE_ID])
    tenant_id: MayMiss[str] = Field(
        None, description="The tenant that the job is for, and no other", examples=["acme"]
    )
    worker_id: str | None = Field(
        None, description="What the worker calls itself", examples=["worker-1"]
    )
    timestamp: str | None = Field(
        None,
        description="When the worker said it, by its own clock; recorded, never compared",
        examples=[AT],
    )
    correlation_id: str | None = Field(
        None, description="As in the directive", examples=["order-4711"]
    )
    traceparent: str | None = Field(
        None, description="The span of the worker that the reply comes from", examples=[TRACE]
    )
    callback_token: MayMiss[str] = Field(
        None,
        description="As in the directive: needed on the bus and in a batch. A callback has it as"
        " `Authorization: Bearer` instead",
        examples=[TOKEN],
    )


_TYPE: Final = "What kind of reply it is. Over HTTP the path says it"


class AckMessage(ReplyMessage):
    """A slot was taken and the work has begun: the lease runs from now."""

    type: Annotated[Literal["ACK"], AnyCase] = Field("ACK", description=_TYPE, examples=["ACK"])
    slots: WorkerSlots | None = Field(
        None, description="How many steps the worker takes at once", examples=[8]
    )
    version: str | None = Field(
        None, description="Which release of the service it runs", examples=["1.4.0"]
    )


class HeartbeatMessage(ReplyMessage):
    """The work goes on: the lease is extended."""

    type: Annotated[Literal["HEARTBEAT"], AnyCase] = Field(
        "HEARTBEAT", description=_TYPE, examples=["HEARTBEAT"]
    )
    progress: str | None = Field(
        None,
        description="How far the work is, in the worker's own words: `lucius why` shows the last",
        examples=["page 3 of 9"],
    )


class ReleaseMessage(ReplyMessage):
    """The work is given back by a service that drains. The first two of a step use up no attempt."""

    type: Annotated[Literal["RELEASE"], AnyCase] = Field(
        "RELEASE", description=_TYPE, examples=["RELEASE"]
    )


class FailureBody(RequestBody):
    """Why an attempt failed."""

    code: MayMiss[str] = Field(
        None,
        description=f"Matches `^{ERROR_CODE}$`; any other text is put before the message, and the code is"
        f" `{UNCLASSIFIED}`",
        examples=["MODEL_GONE"],
    )
    message: MayMiss[str] = Field(
        None, description="What was said of the failure", examples=["the page has no text"]
    )


def _class(value: Any) -> Any:
    return value.upper().replace("-", "_") if isinstance(value, str) else value


class ResultMessage(ReplyMessage):
    """How the attempt ended."""

    type: Annotated[Literal["RESULT"], AnyCase] = Field(
        "RESULT", description=_TYPE, examples=["RESULT"]
    )
    status: Annotated[Literal["SUCCEEDED", "FAILED", "FAILED_RETRY", "FAILED_FINAL"], AnyCase] = (
        Field(
            description="How it ended. `FAILED` is `FAILED_RETRY` unless `failure_class` says otherwise",
            examples=["SUCCEEDED"],
        )
    )
    failure_class: (
        Annotated[Literal["RETRYABLE", "NON_RETRYABLE"], BeforeValidator(_class)] | None
    ) = Field(None, description="With `FAILED`: whether to try again", examples=["RETRYABLE"])
    output_ref: Any = Field(None, description="Where the output is", examples=[{"uri": OUTPUT}])
    artifact_refs: Any = Field(
        None,
        description="References of the result; they count where `output_ref` is not given",
        examples=[[OUTPUT]],
    )
    error: FailureBody | None = Field(
        None,
        description="Why it failed",
        examples=[{"code": "MODEL_GONE", "message": "no such model"}],
    )
    error_code: str | None = Field(
        None, description="As `error.code`, where that is not given", examples=["MODEL_GONE"]
    )
    error_message: str | None = Field(
        None, description="As `error.message`, where that is not given", examples=["no such model"]
    )
    reason: str | None = Field(
        None, description="As `error.message`, where that is not given", examples=["no such model"]
    )


AnyReply = AckMessage | ResultMessage | HeartbeatMessage | ReleaseMessage


class _ShownAsReply:
    """Each reply of a batch is judged by itself: one that is none is refused by an outcome that says why."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        replies = handler.generate_schema(AnyReply)
        return core_schema.no_info_plain_validator_function(
            lambda value: value, json_schema_input_schema=replies
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonObject:
        shown = handler(schema)
        else_ = {
            "title": "Anything else",
            "description": "Refused by itself, with an outcome that says why",
        }
        return {"anyOf": [*shown["anyOf"], else_]}


class RepliesBody(RequestBody):
    """Replies to many directives."""

    replies: Annotated[list[Annotated[Any, _ShownAsReply()]], Field(max_length=MAX_REPLIES)] = (
        Field(
            description="The replies, each with its `type` and `callback_token`",
            examples=[
                [
                    {
                        "type": "RESULT",
                        "jobId": JOB_ID,
                        "stepId": "ocr",
                        "attempt_no": 1,
                        "lease_id": LEASE_ID,
                        "status": "SUCCEEDED",
                        "output_ref": {"uri": INPUT},
                        "callback_token": TOKEN,
                    }
                ]
            ],
        )
    )


# -- what workers are answered ---------------------------------------------------------------


class CallbackView(View):
    """`late` and `duplicate` are recorded and change nothing else."""

    outcome: AnyReplied = Field(description="What became of the reply", examples=["applied"])


class HeartbeatView(CallbackView):
    """What a heartbeat is answered."""

    lease_expires_at: Instant | None = Field(
        description="Until when the worker must have said something", examples=[AT]
    )
    cancel_requested: bool = Field(
        description="Whether the worker should stop, because the job is being cancelled",
        examples=[False],
    )


class AnswerView(CallbackView):
    """The answer to a reply of any kind; the last two only to a heartbeat."""

    lease_expires_at: Instant | None = Field(
        None, description="Until when the worker must have said something", examples=[AT]
    )
    cancel_requested: MayMiss[bool] = Field(
        None,
        description="Whether the worker should stop, because the job is being cancelled",
        examples=[False],
    )


class ReplyOutcomeView(View):
    """The answer to one reply of a batch: an outcome, or the code of a problem."""

    status: int = Field(
        description="The HTTP status that the reply alone would have got", examples=[200]
    )
    outcome: MayMiss[AnyReplied] = Field(
        None, description="What became of the reply", examples=["applied"]
    )
    lease_expires_at: Instant | None = Field(
        None,
        description="To a heartbeat: until when the worker must have said something",
        examples=[AT],
    )
    cancel_requested: MayMiss[bool] = Field(
        None,
        description="To a heartbeat: whether the worker should stop, because the job is being cancelled",
        examples=[False],
    )
    code: MayMiss[str] = Field(
        None,
        description="A stable code; docs/reference/errors.md explains each",
        examples=["STALE_ATTEMPT"],
    )
    detail: MayMiss[str] = Field(
        None, description="What was wrong", examples=["the attempt is over"]
    )


class RepliesView(View):
    """The answer to a batch of replies."""

    outcomes: list[ReplyOutcomeView] = Field(
        description="What became of each reply, in their order"
    )


# -- what LUCIUS says of its own accord ------------------------------------------------------


class NoticeMessage(View):
    """What the worker that holds a lease is told over the bus. It proves that its sender could have made the
    callback token, and does not carry it.
    """

    type: Literal["CANCEL", "LEASE_ENDED"] = Field(
        description="`CANCEL`: the job is being cancelled, so stop when you can and say how it ended."
        " `LEASE_ENDED`: stop, commit nothing, say nothing",
        examples=["CANCEL"],
    )
    jobId: JobId
    stepId: StepId
    attempt_no: LiveAttemptNo
    lease_id: LeaseId
    proofs: list[str] = Field(
        description="HMAC-SHA256 of `type` under the callback token, in hex: one for each key that"
        " may have signed the token",
        examples=[["5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9"]],
    )


class NudgeMessage(View):
    """The owner of a lane is told to look at a job. LUCIUS alone sends and reads it."""

    type: Literal["NUDGE"] = Field(description="What kind of message it is", examples=["NUDGE"])
    jobId: JobId
    timer: MayMiss[bool] = Field(
        None, description="Because a timer of its workflow has fired", examples=[True]
    )


# -- properties of messages ------------------------------------------------------------------


class AttemptProperties(View):
    """Properties of every message about an attempt. They repeat fields of the body: brokers
    filter and spread messages by them.
    """

    type: str = Field(description="What kind of message it is", examples=["DIRECTIVE"])
    jobId: JobId
    stepId: StepId
    attempt_no: LiveAttemptNo
    lease_id: LeaseId


class DirectiveProperties(AttemptProperties):
    """Properties of a directive. Subscriptions filter by `step_type`, `mode` and `pool`."""

    step_type: StepType
    service: StepService
    mode: AnyMode = Field(
        description="How the directives of the job are spread over the lanes", examples=["DEFAULT"]
    )
    lane: Lane
    tenant_id: TenantId
    message_key: str = Field(
        description="The routing key: what stays in order where the broker keeps an order",
        examples=["acme"],
    )
    pool: MayMiss[str] = Field(
        None,
        description="The workers that alone take it, where the tenant has some of its own",
        examples=["acme"],
    )


class ReplyProperties(AttemptProperties):
    """Properties of a reply, as the kit sends them. LUCIUS reads the body alone, so a worker may leave them
    out.
    """

    type: str = Field(description="What kind of message it is", examples=["ACK"])
    step_type: StepType
    tenant_id: TenantId
    service: MayMiss[str] = Field(None, description="As in the directive", examples=["ocr"])
    mode: MayMiss[AnyMode] = Field(None, description="As in the directive", examples=["DEFAULT"])
    lane: MayMiss[int] = Field(None, description="As in the directive", examples=[15])
    message_key: MayMiss[str] = Field(None, description="As in the directive", examples=["acme"])


class NoticeProperties(AttemptProperties):
    """Properties of a notice."""

    type: str = Field(description="What kind of message it is", examples=["CANCEL"])
    address: MayMiss[str] = Field(
        None,
        description="On Service Bus: the session of the worker that is told",
        examples=["worker-1"],
    )


class NudgeProperties(View):
    """Properties of a nudge."""

    type: Literal["NUDGE"] = Field(description="What kind of message it is", examples=["NUDGE"])
    jobId: JobId
    lane: Lane
