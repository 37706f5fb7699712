"""The bodies of the internal API, and its answers."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from lucius.contract.models.base import (
    JOB_ID,
    LATER,
    LEASE_ID,
    AnyWhole,
    GivenMoment,
    JsonObject,
    RequestBody,
    View,
    words,
)
from lucius.contract.models.messages import BoundId
from lucius.contract.models.problems import ProblemView
from lucius.core.bounds import MOST_ATTEMPTS
from lucius.engines.temporal.inputs import PASSED_ON


class TimeoutBody(RequestBody):
    """A timer has fired."""

    jobId: BoundId = Field(description="The id of the job", examples=[JOB_ID])
    tenant_id: str | None = Field(
        None, description="The tenant that the job is for, and no other", examples=["acme"]
    )


class BoundBody(TimeoutBody):
    """One attempt of one step. Of a directive this is read, and the rest is rendered from the job."""

    stepId: BoundId = Field(description="The id of the step within the job", examples=["ocr"])
    attempt_no: Annotated[int, Field(ge=1, le=MOST_ATTEMPTS), AnyWhole] = Field(
        description="Which attempt it is, from 1", examples=[1]
    )
    lease_id: Annotated[str, Field(max_length=256, pattern=r"^[A-Za-z0-9._-]+$")] = Field(
        description="The lease of the attempt", examples=[LEASE_ID]
    )


def _zoned(text: str) -> str:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("must name its time zone")
    return text


class AttemptBody(BoundBody):
    """An attempt that should begin."""

    lease_expires_at: Annotated[GivenMoment, AfterValidator(_zoned)] | None = Field(
        None,
        description="Checked and not used: the lease begins when the directive is out, and lasts as its"
        " step says",
        examples=[LATER],
    )
    publish: bool = Field(
        False,
        description="Where the window has room, the directive goes out in the same round trip",
        examples=[True],
    )


class PublishBody(RequestBody):
    """A directive that should go out."""

    directive: BoundBody = Field(description="What names its attempt")
    lane: Annotated[int, Field(ge=0, le=15), AnyWhole] | None = Field(
        None, description="That of the job; another one is refused", examples=[15]
    )


class SpokenBody(RequestBody):
    """What has happened. The other fields are its own."""

    input: Annotated[str, words(*PASSED_ON)] = Field(
        description="What has happened", examples=["CancelRequested"]
    )


class ToldView(View):
    """What became of a question, and how the job stands."""

    status: Literal["ok"] = Field(description="It was answered", examples=["ok"])
    outcome: Literal["applied", "already", "held"] = Field(
        description="What became of it", examples=["applied"]
    )
    snapshot: JsonObject = Field(description="How the job stands", examples=[{}])


class SupersededView(ProblemView):
    """A problem document with what the answer would have been."""

    outcome: Literal["superseded"] = Field(
        description="It is not what comes next; nothing was done", examples=["superseded"]
    )
    snapshot: dict[str, Any] = Field(description="How the job stands", examples=[{}])


class ToldOutcomeView(View):
    """What became of an input."""

    status: Literal["ok"] = Field(description="It was answered", examples=["ok"])
    outcome: str = Field(description="What became of it", examples=["applied"])
    code: str | None = Field(description="Why it was refused, if it was", examples=[None])
    version: int = Field(description="The job's version", examples=[7])
