"""Parameters of paths and queries: read strictly from their texts, and published as what they are."""

from collections.abc import Callable, Collection, Iterable
from datetime import MINYEAR, UTC, datetime
from typing import Annotated, Any, Final, Protocol, TypeVar

from fastapi import Body, Path
from pydantic import BeforeValidator, Field, WithJsonSchema
from starlette.requests import Request

from lucius.contract.models.base import MayMiss
from lucius.contract.models.control import JobFilter, OrderBody
from lucius.core.errors import LedgerRowUnreadableError
from lucius.core.idempotency import normal_request_type
from lucius.core.job import LIVE_JOB, Job, JobState
from lucius.http.context import ApiContext, Caller
from lucius.http.problems import Problem, parameter_problem
from lucius.ports.ledger import JobQuery
from lucius.system.logs import redacted

# What every order of an operator may say: who gives it, and why.

AnyOrder = Annotated[MayMiss[OrderBody], Body()]
"""The body of an order that takes no more than a reason."""


def audit_fields(caller: Caller, body: OrderBody | None) -> dict[str, str]:
    """Who gives an order, and why: what its event shows."""
    reason = reason_in(body)
    return {"by": caller.known_as} | ({"reason": reason} if reason is not None else {})


def reason_in(body: OrderBody | None) -> str | None:
    """Why the order is given, if the body says so. What looks like a secret in it is left out."""
    if body is None or body.reason is None:
        return None
    return redacted(body.reason.strip()) or None


MAX_WAIT: Final = 60
MAX_PAGE: Final = 500
MAX_SEQ: Final = 2**53
_TRUE: Final = frozenset(("true", "1", "yes"))
_FALSE: Final = frozenset(("false", "0", "no"))
_STATES: Final = "|".join(JobState)


def digits(text: Any) -> int:
    plain = text.removeprefix("-") if isinstance(text, str) else ""
    if not (plain.isascii() and plain.isdigit()) or len(plain) > 17:
        raise ValueError("must be a whole number")
    return int(text)


def number(text: Any) -> float:
    try:
        if isinstance(text, str) and text.isascii() and "_" not in text and text == text.strip():
            return float(text)
    except ValueError:
        pass
    raise ValueError("must be a number")


def flag(text: Any) -> bool:
    word = text.lower() if isinstance(text, str) else ""
    if word not in _TRUE and word not in _FALSE:
        raise ValueError("must be true or false")
    return word in _TRUE


def moment(text: Any) -> datetime:
    """A plus sign that a query has turned into a space is one."""
    try:
        return utc(text.replace(" ", "+"))
    except ValueError:
        raise ValueError("must be an RFC 3339 instant") from None


def utc(text: str) -> datetime:
    """An instant with or without its zone. What lies beyond the calendar is its first or last moment."""
    at = datetime.fromisoformat(text)
    try:
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except OverflowError:
        edge = datetime.min if at.year == MINYEAR else datetime.max
        return edge.replace(tzinfo=UTC)


def words(given: Iterable[str]) -> list[str]:
    """A filter given several times, or once with commas. One that is there but empty is refused."""
    found: list[str] = []
    for text in given:
        several = [word.strip() for word in text.split(",") if word.strip()]
        if not several:
            raise ValueError("must not be empty")
        found += several
    return found


def states(given: Iterable[str]) -> list[JobState]:
    named = [word.upper() for word in words(given)]
    if not set(named) <= set(JobState):
        raise ValueError(f"must be one of {', '.join(JobState)}")
    return [JobState(word) for word in named]


SecondsParameter = Annotated[
    float, Field(ge=0, le=MAX_WAIT, allow_inf_nan=False), BeforeValidator(number)
]
FlagParameter = Annotated[bool, BeforeValidator(flag)]
MomentParameter = Annotated[datetime, BeforeValidator(moment)]
WordsParameter = Annotated[
    list[str],
    BeforeValidator(words),
    WithJsonSchema({"type": "array", "items": {"type": "string", "pattern": r"[^,\s]"}}),
]
"""Several with commas, or the parameter several times."""
StatesParameter = Annotated[
    list[JobState],
    BeforeValidator(states),
    WithJsonSchema(
        {"type": "array", "items": {"type": "string", "pattern": f"^({_STATES})(,({_STATES}))*$"}}
    ),
]
Limit = Annotated[int, Field(ge=1, le=MAX_PAGE), BeforeValidator(digits)]
Seq = Annotated[int, Field(ge=0, le=MAX_SEQ), BeforeValidator(digits)]

JobIdInPath = Annotated[str, Path(alias="jobId", min_length=1, description="The job's id")]
PlanIdInPath = Annotated[str, Path(alias="planId", min_length=1, description="The plan's id")]
ServiceInPath = Annotated[
    str, Path(alias="service", min_length=1, description="The service's name, as in the protocols")
]


# A filter of jobs, of a query or of a body, as a query of the ledger, bounded to the caller's tenants.


class AnyFilter(Protocol):
    """What those of queries and of bodies have in common: words, one or several, and moments."""

    tenant_id: Any
    request_type: str | None
    code: Any
    step: Any
    service: Any
    group: str | None
    created_from: Any
    created_to: Any


def job_query(given: AnyFilter, caller: Caller, states: frozenset[JobState] | None) -> JobQuery:
    return JobQuery(
        tenant_ids=tenants_asked(given.tenant_id, caller),
        states=states,
        request_type=normal_request_type(given.request_type) if given.request_type else None,
        created_from=_moment(given.created_from),
        created_to=_moment(given.created_to),
        codes=_some(given.code),
        steps=_some(given.step),
        services=_some(given.service),
        group=given.group,
    )


def job_filter(given: JobFilter, caller: Caller, default_states: Collection[JobState]) -> JobQuery:
    """`default_states`: those of a filter that names none."""
    named = _some(getattr(given, "state", None))
    asked = frozenset(JobState(word.upper()) for word in named or ()) or frozenset(default_states)
    if getattr(given, "live", False):
        if asked.isdisjoint(LIVE_JOB):
            detail = "no job is live of those that this order takes: leave it out"
            raise Problem("INVALID_BODY", errors=[{"pointer": "/filter/live", "detail": detail}])
        asked &= frozenset(LIVE_JOB)
    return job_query(given, caller, asked)


def tenants_asked(named: Any, caller: Caller) -> frozenset[str] | None:
    """Of those that are asked for, the caller's; None: all."""
    asked = _some(named)
    if asked is None or caller.tenants is None:
        return caller.tenants if asked is None else asked
    return asked & caller.tenants


def _some(given: Any) -> frozenset[str] | None:
    return frozenset((given,) if isinstance(given, str) else given) if given else None


def _moment(given: datetime | str | None) -> datetime | None:
    return utc(given) if isinstance(given, str) else given


# The job that a request is about, and the parameters of the routes that read a request themselves.

T = TypeVar("T")
MAX_ID: Final = 256


async def visible_job(context: ApiContext, job_id: str, caller: Caller) -> Job:
    """The job of the path, if the caller may see it. What is not theirs does not exist."""
    job = await job_for(context, job_id, caller)
    if job is None:
        raise Problem("JOB_NOT_FOUND")
    return job


async def job_for(context: ApiContext, job_id: str, caller: Caller) -> Job | None:
    """The job of this id, if there is one that the caller may see."""
    try:
        job = await context.engine.job(job_id) if len(job_id) <= MAX_ID else None
    except LedgerRowUnreadableError as error:
        if error.tenant_id is None or not caller.may_act_for(error.tenant_id):
            return None
        raise
    return job if job is not None and caller.may_act_for(job.tenant_id) else None


def seconds_to_wait(request: Request) -> float:
    """`wait_seconds`, as `parameters.SecondsParameter` reads it."""
    if not request.scope["query_string"]:  # as almost always
        return 0.0
    text = request.query_params.get("wait_seconds")
    if text is None:
        return 0.0
    wait = parameter("wait_seconds", text, number)
    if not 0 <= wait <= MAX_WAIT:
        raise parameter_problem("wait_seconds", f"must be between 0 and {MAX_WAIT}")
    return wait


def bearer(request: Request) -> str | None:
    """The token of `Authorization: Bearer`. By hand: this is on the way of every callback."""
    for name, value in request.scope["headers"]:
        if name == b"authorization":
            scheme, _, token = value.decode("latin-1").partition(" ")
            return token.strip() if scheme.lower() == "bearer" else None
    return None


def parameter(name: str, text: str, read: Callable[[Any], T]) -> T:
    """What a text means, or a problem that names the parameter."""
    try:
        return read(text)
    except ValueError as error:
        raise parameter_problem(name, str(error)) from None
