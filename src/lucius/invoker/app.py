"""The internal API: workers ask, orchestrators pass inputs on. Answers tell the outcome and a snapshot.

Callers prove themselves with a shared secret. Without one, only loopback is listened on, and only the
user who runs the invoker is served. They are processes: what a browser sends is refused.
"""

import secrets
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Annotated, Any, Final

import orjson
from fastapi import APIRouter, Depends, FastAPI, Security
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from lucius import __version__
from lucius.contract.codes import CODES
from lucius.core.errors import (
    BusUnavailableError,
    LedgerError,
    LedgerRowUnreadableError,
    RequestError,
)
from lucius.core.inputs import AttemptRequested
from lucius.engines.temporal.inputs import input_of
from lucius.engines.temporal.invoker import SUPERSEDED, Answered, Invoker
from lucius.invoker.bodies import (
    AttemptBody,
    PublishBody,
    SpokenBody,
    SupersededBody,
    TimeoutBody,
    ToldBody,
    ToldOutcomeBody,
)

ERRORS: Final[dict[type[Exception], str]] = {
    LedgerRowUnreadableError: "LEDGER_ROW_UNREADABLE",
    LedgerError: "LEDGER_UNAVAILABLE",
    BusUnavailableError: "BUS_UNAVAILABLE",
}
STALE: Final = "STALE_ATTEMPT"
CODE_OF: Final = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED", 413: "BODY_TOO_LARGE"}
MOST_BYTES: Final = 2 * 1024 * 1024
"""Twice what an orchestrator takes: it passes replies on in other words."""
_FROM_BROWSERS: Final = frozenset(("origin", "sec-fetch-site"))
"""Headers that a browser sends with every POST of a page, and that no page can leave out."""
SHOWN: Final = 100
"""Characters of what a caller sent that are repeated."""
_PROBLEM: Final = {"description": "A problem document with a stable `code`"}
_SUPERSEDED: Final = {
    409: {"model": SupersededBody, "description": "It is not what comes next; nothing was done"}
}


class InvokerProblemError(Exception):
    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


class BoundedRequest(Request):
    """A request whose body is refused as soon as it shows that it is too large."""

    async def body(self) -> bytes:
        said = bytearray()
        async for chunk in self.stream():
            said += chunk
            if len(said) > MOST_BYTES:
                detail = (
                    f"a body may have {MOST_BYTES} bytes: jobs name documents, not contain them"
                )
                raise HTTPException(413, detail)
        self._said = bytes(said)
        return self._said

    async def json(self) -> Any:
        return orjson.loads(self._said)


class InvokerRoute(APIRoute):
    """Who asks is looked at before anything is read, which FastAPI does before it asks dependencies."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()

        async def handle(request: Request) -> Response:
            """The secret is compared in constant time."""
            secret: str = request.app.state.secret
            scheme, _, given = request.headers.get("authorization", "").partition(" ")
            known = secrets.compare_digest(given.encode(), secret.encode())
            if secret and (scheme.lower() != "bearer" or not known):
                said = (
                    "the bearer token is not the secret of this invoker: set LUCIUS_INVOKER_SECRET"
                )
                raise InvokerProblemError("UNAUTHENTICATED", said)
            if not _FROM_BROWSERS.isdisjoint(request.headers):
                raise InvokerProblemError("CROSS_ORIGIN", "no web page may ask an invoker")
            try:
                return await answer(BoundedRequest(request.scope, request.receive))
            except HTTPException as error:
                if isinstance(error.__cause__, ClientDisconnect):
                    raise error.__cause__ from None
                raise

        return handle


router = APIRouter(
    prefix="/v1/internal",
    route_class=InvokerRoute,
    strict_content_type=False,
    dependencies=[Security(HTTPBearer(scheme_name="secret", auto_error=False))],
    responses=dict.fromkeys((401, 403, 404, 413, 422, 503), _PROBLEM),
)


async def _invoker(request: Request) -> Invoker:
    invoker: Invoker = request.app.state.invoker
    return invoker


ThisInvoker = Annotated[Invoker, Depends(_invoker)]


def _told(view: type[Any], summary: str, **more: Any) -> dict[str, Any]:
    return {
        "summary": summary,
        "response_model": view,
        "response_description": "The outcome, and how the job stands",
        **more,
    }


@router.post(
    "/steps/attempt",
    **_told(
        ToldBody,
        "Record an attempt: the next one, or the current one again where its lease was given back",
        responses=_SUPERSEDED,
    ),
)
async def attempt(invoker: ThisInvoker, body: AttemptBody) -> Response:
    asked = AttemptRequested(body.stepId, body.attempt_no, body.lease_id)
    answered = await invoker.attempt(
        body.jobId, asked, publish=body.publish, tenant_id=body.tenant_id
    )
    return _answer(invoker, answered)


@router.post(
    "/publish",
    **_told(
        ToldBody,
        "Publish the directive of the current attempt, unless it is out. It is rendered here",
        responses=_SUPERSEDED,
    ),
)
async def publish(invoker: ThisInvoker, body: PublishBody) -> Response:
    of = body.directive
    asked = AttemptRequested(of.stepId, of.attempt_no, of.lease_id)
    answered = await invoker.publish(of.jobId, asked, tenant_id=of.tenant_id, lane=body.lane)
    return _answer(invoker, answered)


@router.post(
    "/steps/timeout",
    **_told(ToldBody, "A timer of the job's workflow has fired: what has run out, has"),
)
async def timeout(invoker: ThisInvoker, body: TimeoutBody) -> Response:
    return _answer(invoker, await invoker.timeout(body.jobId, tenant_id=body.tenant_id))


@router.post(
    "/jobs/{jobId}/inputs",
    **_told(ToldOutcomeBody, "What a client, an operator or a service said to an orchestrator"),
)
async def inputs(invoker: ThisInvoker, jobId: str, body: SpokenBody) -> Response:
    applied = await invoker.apply(jobId, input_of(body.model_dump()))
    if applied is None:
        said = f"there is no job {jobId[:SHOWN]} on Temporal"
        raise InvokerProblemError("JOB_NOT_FOUND", said)
    outcome, version = applied.outcome.value, applied.job.version
    told = {"status": "ok", "outcome": outcome, "code": applied.code, "version": version}
    return JSONResponse(told)


def _answer(invoker: Invoker, answered: Answered | None) -> Response:
    if answered is None:
        said = "the tenant has no such job on Temporal, or the job has no such step"
        raise InvokerProblemError("JOB_NOT_FOUND", said)
    told = invoker.told(answered)
    if answered.outcome == SUPERSEDED:
        said = "it is not what comes next, so nothing was done: the snapshot says what does"
        return _problem(STALE, said, outcome=told["outcome"], snapshot=told["snapshot"])
    return JSONResponse(told)


def invoker_app(invoker: Invoker, secret: str = "", probes: Sequence[BaseRoute] = ()) -> FastAPI:
    """An empty secret is for loopback, which bootstrap has checked. `probes` need none."""
    app = FastAPI(
        title="LUCIUS invoker",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        routes=[*router.routes, *probes],
        telemetry={
            "tracing": False,
            "metrics": False,
            "logs": False,
            "auto_configure": False,
        },
    )
    app.state.invoker, app.state.secret = invoker, secret
    refused = (InvokerProblemError, RequestError, HTTPException, RequestValidationError)
    for kind in (*ERRORS, *refused, ValidationError):
        app.add_exception_handler(kind, _refused)
    app.add_exception_handler(ClientDisconnect, _gone)
    return app


async def _gone(request: Request, error: Exception) -> Response:
    """Nobody is left to answer, and nothing to log: a client may hang up."""
    return Response(status_code=400)


async def _refused(request: Request, error: Exception) -> Response:
    if isinstance(error, InvokerProblemError | RequestError):
        return _problem(error.code, str(error))
    if isinstance(error, HTTPException):
        about = f"{request.method} {request.url.path[:SHOWN]}"
        return _problem(
            CODE_OF[error.status_code], error.detail if error.status_code == 413 else about
        )
    if isinstance(error, RequestValidationError | ValidationError):
        return _problem("INVALID_BODY", "; ".join(_faults(error)))
    code = next(code for kind, code in ERRORS.items() if isinstance(error, kind))
    return _problem(code, str(error))


def _faults(error: RequestValidationError | ValidationError) -> Iterator[str]:
    """Where, and what must be there. What was there instead is not repeated."""
    for fault in error.errors():
        place = fault["loc"][1:] if isinstance(error, RequestValidationError) else fault["loc"]
        pointer = "".join(f"/{part}" for part in place)
        yield f"{pointer or 'the body'}: {fault['msg']}"


def _problem(code: str, detail: str, **more: Any) -> Response:
    known = CODES[code]
    document: dict[str, Any] = {
        "type": f"urn:lucius:problem:{code}",
        "title": known.title,
        "status": known.status,
        "code": code,
        "detail": detail or known.explanation,
        **more,
    }
    return JSONResponse(document, known.status, media_type="application/problem+json")
