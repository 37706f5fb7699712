"""The internal API: workers ask, orchestrators pass inputs on. Answers tell the outcome and a snapshot.

Callers prove themselves with a shared secret. Without one, only loopback is listened on, and only the
user who runs the invoker is served. They are processes: what a browser sends is refused.
"""

import secrets
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Depends, FastAPI, Security
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from pydantic import AfterValidator, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from lucius import __version__
from lucius.contract.models.base import (
    JOB_ID,
    LATER,
    LEASE_ID,
    AnyWhole,
    GivenMoment,
    JsonObject,
    ProblemView,
    RequestBody,
    View,
    words,
)
from lucius.contract.models.messages import BoundId
from lucius.core.errors import BusUnavailableError, LedgerError, RequestError
from lucius.core.inputs import AttemptRequested
from lucius.core.limits import MOST_ATTEMPTS
from lucius.engine.temporal.invoker import SUPERSEDED, Answered, Invoker
from lucius.engine.temporal.invoker_client import PASSED_ON, input_of
from lucius.http.document import with_models
from lucius.http.problems import (
    Problem,
    all_codes,
    documented,
    named_in,
    problem_response,
    problems,
    unfit,
)
from lucius.http.routing import NO_TELEMETRY, StrictRequest, build, json_response

# The bodies of the internal API, and its answers.


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


MOST_BYTES: Final = 2 * 1024 * 1024
"""Twice what an orchestrator takes: it passes replies on in other words."""
_UNSERVED: Final = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}
_FROM_BROWSERS: Final = frozenset(("origin", "sec-fetch-site"))
"""Headers that a browser sends with every POST of a page, and that no page can leave out."""
_SHOWN: Final = 100
"""Characters of what a caller sent that are repeated."""
_SHARED: Final = (
    *("UNAUTHENTICATED", "CROSS_ORIGIN", "JOB_NOT_FOUND", "INVALID_BODY", "BODY_TOO_LARGE"),
    *("INVALID_JSON", "DUPLICATE_KEY", "NESTING_TOO_DEEP", "UNSUPPORTED_MEDIA_TYPE"),
    *("LEDGER_UNAVAILABLE", "LEDGER_CORRUPT", "LEDGER_ROW_UNREADABLE", "BUS_UNAVAILABLE"),
)
_SUPERSEDED: Final = problems("STALE_ATTEMPT", model=SupersededView)


class InvokerRoute(APIRoute):
    """Who asks is looked at before anything is read, which FastAPI does before it asks dependencies."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **given: Any) -> None:
        named = given.pop("responses", None) or {}
        super().__init__(path, endpoint, **given)
        if self.body_field is not None:
            build(self.body_field)
        self.responses |= documented(all_codes((*_SHARED, *named_in(named)), ()), named)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()

        async def handle(request: Request) -> Response:
            _check_caller(request)
            try:
                return await answer(await StrictRequest.read(request, MOST_BYTES, required=True))
            except RequestValidationError as error:
                raise unfit(error) from None

        return handle


def _check_caller(request: Request) -> None:
    """The secret is compared in constant time."""
    secret: str = request.app.state.secret
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    known = secrets.compare_digest(given.encode(), secret.encode())
    if secret and (scheme.lower() != "bearer" or not known):
        said = "the bearer token is not the secret of this invoker: set LUCIUS_INVOKER_SECRET"
        raise Problem("UNAUTHENTICATED", said)
    if not _FROM_BROWSERS.isdisjoint(request.headers):
        raise Problem("CROSS_ORIGIN", "no web page may ask an invoker")


router = APIRouter(
    prefix="/v1/internal",
    route_class=InvokerRoute,
    strict_content_type=False,
    dependencies=[Security(HTTPBearer(scheme_name="secret", auto_error=False))],
)


async def _invoker(request: Request) -> Invoker:
    invoker: Invoker = request.app.state.invoker
    return invoker


ThisInvoker = Annotated[Invoker, Depends(_invoker)]
_TOLD: Final = "The outcome, and how the job stands"


@router.post(
    "/steps/attempt",
    summary="Record an attempt: the next one, or the current one again where its lease was given back",
    response_model=ToldView,
    response_description=_TOLD,
    responses=_SUPERSEDED,
)
async def attempt(invoker: ThisInvoker, body: AttemptBody) -> Response:
    asked = AttemptRequested(body.stepId, body.attempt_no, body.lease_id)
    answered = await invoker.attempt(
        body.jobId, asked, publish=body.publish, tenant_id=body.tenant_id
    )
    return _answer(invoker, answered)


@router.post(
    "/publish",
    summary="Publish the directive of the current attempt, unless it is out. It is rendered here",
    response_model=ToldView,
    response_description=_TOLD,
    responses=_SUPERSEDED,
)
async def publish(invoker: ThisInvoker, body: PublishBody) -> Response:
    of = body.directive
    asked = AttemptRequested(of.stepId, of.attempt_no, of.lease_id)
    answered = await invoker.publish(of.jobId, asked, tenant_id=of.tenant_id, lane=body.lane)
    return _answer(invoker, answered)


@router.post(
    "/steps/timeout",
    summary="A timer of the job's workflow has fired: what has run out, has",
    response_model=ToldView,
    response_description=_TOLD,
)
async def timeout(invoker: ThisInvoker, body: TimeoutBody) -> Response:
    return _answer(invoker, await invoker.timeout(body.jobId, tenant_id=body.tenant_id))


@router.post(
    "/jobs/{jobId}/inputs",
    summary="What a client, an operator or a service said to an orchestrator",
    response_model=ToldOutcomeView,
    response_description="The outcome, and the job's version",
)
async def inputs(invoker: ThisInvoker, jobId: str, body: SpokenBody) -> Response:
    received = input_of(body.model_dump())
    applied = await invoker.apply(jobId, received)
    if applied is None:
        raise Problem("JOB_NOT_FOUND", f"there is no job {jobId[:_SHOWN]} on Temporal")
    outcome, version = applied.outcome.value, applied.job.version
    return json_response(
        {"status": "ok", "outcome": outcome, "code": applied.code, "version": version}
    )


def _answer(invoker: Invoker, answered: Answered | None) -> Response:
    if answered is None:
        said = "the tenant has no such job on Temporal, or the job has no such step"
        raise Problem("JOB_NOT_FOUND", said)
    told = invoker.answer_of(answered)
    if answered.outcome == SUPERSEDED:
        said = "it is not what comes next, so nothing was done: the snapshot says what does"
        more = {"outcome": told["outcome"], "snapshot": told["snapshot"]}
        return problem_response(Problem("STALE_ATTEMPT", said), **more)
    return json_response(told)


class InvokerApp(FastAPI):
    """An empty secret is for loopback, which bootstrap has checked. `probes` need none."""

    def __init__(self, invoker: Invoker, secret: str, probes: Sequence[BaseRoute]) -> None:
        refused = (Problem, RequestError, LedgerError, BusUnavailableError)
        super().__init__(
            title="LUCIUS invoker",
            version=__version__,
            docs_url=None,
            redoc_url=None,
            redirect_slashes=False,
            routes=[*router.routes, *probes],
            telemetry=NO_TELEMETRY,
            exception_handlers={
                **dict.fromkeys(refused, _refused),
                HTTPException: _unserved,
                ClientDisconnect: _gone,
            },
        )
        self.state.invoker, self.state.secret = invoker, secret

    def openapi(self) -> dict[str, Any]:
        return with_models(super().openapi(), ProblemView, SupersededView)


def invoker_app(invoker: Invoker, secret: str = "", probes: Sequence[BaseRoute] = ()) -> FastAPI:
    return InvokerApp(invoker, secret, probes)


async def _refused(request: Request, error: Exception) -> Response:
    return problem_response(error)


async def _unserved(request: Request, error: HTTPException) -> Response:
    about = f"{request.method} {request.url.path[:_SHOWN]}"
    return problem_response(Problem(_UNSERVED[error.status_code], about, headers=error.headers))


async def _gone(request: Request, error: Exception) -> Response:
    """Nobody is left to answer, and nothing to log: a client may hang up."""
    return Response(status_code=400)
