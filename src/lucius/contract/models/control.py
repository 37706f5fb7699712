"""Orders of operators, for one job and for many, and what became of them."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import AfterValidator, ConfigDict, Field
from pydantic.annotated_handlers import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from lucius.contract.models.base import (
    AT,
    LATER,
    AnyWhole,
    Code,
    Detail,
    FaultView,
    GivenMoment,
    JsonObject,
    MayMiss,
    RequestBody,
    View,
)
from lucius.contract.models.commands import Uri
from lucius.contract.models.jobs import JobId
from lucius.contract.words import LIVE_JOB, RUNNING_JOB, UNSUCCESSFUL_JOB, JobState

MAX_REASON: Final = 500
DEFAULT_LIMIT: Final = 10_000
MAX_LIMIT: Final = 100_000
_MOST_WORDS: Final = 100

FilterWord = Annotated[str, Field(min_length=1, max_length=256)]
FilterWords = FilterWord | Annotated[list[FilterWord], Field(min_length=1, max_length=_MOST_WORDS)]


class OrderBody(RequestBody):
    """What every order may say."""

    reason: Annotated[str, Field(max_length=MAX_REASON)] | None = Field(
        None,
        description="Why: events and `lucius why` show it, with the caller's name",
        examples=["the model is being replaced"],
    )


class CancelBody(OrderBody):
    """A cancel of one job."""

    immediate: bool = Field(
        False,
        description="End the job now, without waiting for the step that is under way",
        examples=[False],
    )


class RedriveBody(OrderBody):
    """A redrive of one job."""

    payload: JsonObject | None = Field(
        None, description="Replaces the job's payload", examples=[{"language": "de"}]
    )
    output_ref: Uri | None = Field(
        None,
        description="Where the output goes instead, such as where the old place cannot be written",
        examples=["s3://bucket/out.json"],
    )


class EmptyBody(RequestBody):
    """Nothing needs to be said."""


# -- many at once ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _StatesOf:
    """One state or several of those that an order can move: published in upper case, read in any."""

    states: Collection[JobState]

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._known, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonObject:
        word = {"type": "string", "enum": [state.value for state in self.states]}
        several = {"type": "array", "items": word, "minItems": 1, "maxItems": _MOST_WORDS}
        return {"anyOf": [word, several]}

    def _known(self, given: str | list[str]) -> str | list[str]:
        named = [given] if isinstance(given, str) else given
        if not {word.upper() for word in named} <= {state.value for state in self.states}:
            raise ValueError(f"must be one of {', '.join(self.states)}")
        return given


class JobFilter(RequestBody):
    """All that is given must match; an empty filter matches every job."""

    model_config = ConfigDict(extra="forbid")

    tenant_id: MayMiss[FilterWords] = Field(
        None, description="One tenant or several", examples=["acme"]
    )
    request_type: MayMiss[FilterWord] = Field(
        None, description="The request type, which names a protocol", examples=["OCR"]
    )
    code: MayMiss[FilterWords] = Field(
        None,
        description="A step failed with this code, and has not succeeded since",
        examples=["MODEL_GONE"],
    )
    step: MayMiss[FilterWords] = Field(
        None, description="This step failed so, or is under way", examples=["ocr"]
    )
    service: MayMiss[FilterWords] = Field(
        None, description="A step of this service failed so, or is under way", examples=["ocr"]
    )
    group: MayMiss[FilterWord] = Field(
        None, description="A step failed as this group of failures did", examples=["45a0810b127e"]
    )
    created_from: MayMiss[GivenMoment] = Field(
        None, description="Created at this moment or later", examples=[AT]
    )
    created_to: MayMiss[GivenMoment] = Field(
        None, description="Created before this moment", examples=[LATER]
    )


class _LiveFilter(JobFilter):
    live: bool = Field(False, description="It has not ended", examples=[True])
    stuck: bool = Field(False, description="It does not go on by itself", examples=[True])


def _not_live(value: bool) -> bool:
    if value:
        raise ValueError("no job is live of those that this order takes: leave it out")
    return value


class _EndedFilter(JobFilter):
    live: Annotated[bool, AfterValidator(_not_live)] = Field(
        False,
        description="No job is live of those that this order takes",
        examples=[False],
        json_schema_extra={"enum": [False]},
    )
    stuck: bool = Field(False, description="It does not go on by itself", examples=[False])


class CancelFilter(_LiveFilter):
    """Which jobs to cancel. All that is given must match; an empty filter matches every job."""

    state: MayMiss[Annotated[FilterWords, _StatesOf(LIVE_JOB)]] = Field(
        None, description="One state or several", examples=["QUEUED"]
    )


class PauseFilter(_LiveFilter):
    """Which jobs to pause. All that is given must match; an empty filter matches every job."""

    state: MayMiss[Annotated[FilterWords, _StatesOf(RUNNING_JOB)]] = Field(
        None, description="One state or several", examples=["IN_PROGRESS"]
    )


class ResumeFilter(_LiveFilter):
    """Which jobs to resume. All that is given must match; an empty filter matches every job."""

    state: MayMiss[Annotated[FilterWords, _StatesOf((JobState.PAUSING, JobState.PAUSED))]] = Field(
        None, description="One state or several", examples=["PAUSED"]
    )


class RetryFilter(_LiveFilter):
    """Which jobs to retry. All that is given must match; an empty filter matches every job."""

    state: MayMiss[
        Annotated[FilterWords, _StatesOf((JobState.DISPATCHING, JobState.IN_PROGRESS))]
    ] = Field(None, description="One state or several", examples=["DISPATCHING"])


class RedriveFilter(_EndedFilter):
    """Which jobs to redrive. All that is given must match; an empty filter matches every job."""

    state: MayMiss[Annotated[FilterWords, _StatesOf(UNSUCCESSFUL_JOB)]] = Field(
        None, description="One state or several", examples=["FAILED_FINAL"]
    )


class DismissFilter(_EndedFilter):
    """Which jobs to dismiss. All that is given must match; an empty filter matches every job."""

    state: MayMiss[Annotated[FilterWords, _StatesOf((JobState.FAILED_FINAL,))]] = Field(
        None, description="One state or several", examples=["FAILED_FINAL"]
    )


class BulkBody(OrderBody):
    """What every order for many jobs may say."""

    dry_run: bool = Field(
        False, description="Only count all that match, beyond the limit too", examples=[True]
    )
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT), AnyWhole] = Field(
        DEFAULT_LIMIT,
        description="The most jobs of one request; repeat the request while `more` is true",
        examples=[1000],
    )


class CancelManyBody(BulkBody):
    """Cancel all jobs that match."""

    filter: CancelFilter = Field(
        description="Which jobs", examples=[{"tenant_id": "acme", "state": ["QUEUED"]}]
    )
    immediate: bool = Field(
        False,
        description="End the jobs now, without waiting for steps that are under way",
        examples=[False],
    )


class PauseManyBody(BulkBody):
    """Pause all jobs that match."""

    filter: PauseFilter = Field(
        description="Which jobs", examples=[{"service": "ocr", "live": True}]
    )


class ResumeManyBody(BulkBody):
    """Resume all jobs that match."""

    filter: ResumeFilter = Field(description="Which jobs", examples=[{"request_type": "OCR"}])


class RetryManyBody(BulkBody):
    """Retry all jobs that match."""

    filter: RetryFilter = Field(description="Which jobs", examples=[{"service": ["ocr", "sis"]}])


class RedriveManyBody(BulkBody):
    """Redrive all jobs that match."""

    filter: RedriveFilter = Field(description="Which jobs", examples=[{"group": "45a0810b127e"}])
    payload: JsonObject | None = Field(
        None,
        description="Replaces the payload of each job. Jobs that it does not suit are refused.",
        examples=[{"language": "de"}],
    )


class DismissManyBody(BulkBody):
    """Dismiss all jobs that match."""

    filter: DismissFilter = Field(
        description="Which jobs", examples=[{"created_to": AT, "code": "MODEL_GONE"}]
    )


class RefusalView(View):
    """Why one job did not take an order for many."""

    jobId: JobId
    code: Code
    detail: Detail
    errors: list[FaultView] = Field([], description="Every fault, with its place")


class BulkView(View):
    """What one order did to all jobs that match; a dry run counts them all and moves none."""

    dry_run: bool = Field(description="Whether the jobs were only counted", examples=[False])
    matched: int = Field(description="Jobs that match", examples=[3])
    applied: int = Field(description="Jobs that the order moved", examples=[3])
    already: int = Field(description="Jobs for which it held already", examples=[0])
    refused: dict[str, int] = Field(
        description="Jobs that did not take the order, counted by code", examples=[{}]
    )
    refusals: list[RefusalView] = Field(
        description="The first hundred of those, each with its reason", examples=[[]]
    )
    more: bool = Field(
        description="The limit was reached and jobs are left: the same request again goes on. After a dry"
        " run: that one request would not take them all",
        examples=[False],
    )


class RetriedView(View):
    """What `POST /v1/admin/outbox/retry` did, counted."""

    published: int = Field(description="Directives that the broker has", examples=[3])
    pending: int = Field(description="Directives that still wait", examples=[0])
    failed: int = Field(
        description="Directives that were refused once more, at the maximum of attempts",
        examples=[0],
    )
