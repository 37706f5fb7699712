"""The bodies of the internal API."""

from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from lucius.core.bounds import MOST_ATTEMPTS


class _Body(BaseModel):
    """Contracts are additive: fields that this version does not know are passed over.

    A number is a number: text and booleans are not taken for one.
    """

    model_config = ConfigDict(extra="ignore", strict=True)


class _OfAJob(_Body):
    jobId: str = Field(min_length=1, max_length=256)
    tenant_id: str | None = None


class _Bound(_OfAJob):
    stepId: str = Field(min_length=1, max_length=256)
    attempt_no: int = Field(ge=1, le=MOST_ATTEMPTS)
    lease_id: str = Field(max_length=256, pattern=r"^[A-Za-z0-9._-]+$")


class AttemptBody(_Bound):
    """`publish`: where the window has room, the directive goes out in the same round trip."""

    lease_expires_at: Annotated[AwareDatetime, Field(strict=False)] | None = None
    """Checked and not used: the lease begins when the directive is out, and lasts as its step says."""
    publish: bool = False


class PublishBody(_Body):
    """Of a directive, what names its attempt is read; the rest is rendered from the job.

    `lane`: that of the job, where it is given.
    """

    directive: _Bound
    lane: int | None = Field(None, ge=0, le=15)


class TimeoutBody(_OfAJob):
    """A timer has fired."""


class SpokenBody(BaseModel):
    """`input` names what has happened; the other fields are its own."""

    model_config = ConfigDict(extra="allow", strict=True)
    input: str


class ToldBody(BaseModel):
    status: Literal["ok"] = "ok"
    outcome: Literal["applied", "already", "held"]
    snapshot: dict[str, Any]


class SupersededBody(BaseModel):
    """A problem document with what the answer would have been."""

    type: str
    title: str
    status: Literal[409] = 409
    code: Literal["STALE_ATTEMPT"] = "STALE_ATTEMPT"
    detail: str
    outcome: Literal["superseded"] = "superseded"
    snapshot: dict[str, Any]


class ToldOutcomeBody(BaseModel):
    status: Literal["ok"] = "ok"
    outcome: str
    code: str | None = None
    version: int
