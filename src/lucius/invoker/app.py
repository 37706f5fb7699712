"""The internal API: workers ask, orchestrators pass inputs on. Answers tell the outcome and a snapshot.

Callers prove themselves with a shared secret. Without one, only loopback is listened on, and only the
user who runs the invoker is served. They are processes: what a browser sends is refused.
"""

import secrets
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import cache
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

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
from lucius.invoker.bodies import AttemptBody, PublishBody, SpokenBody, TimeoutBody
from lucius.invoker.description import ATTEMPT, INPUTS, PUBLISH, TIMEOUT, description

AskedBody = TypeVar("AskedBody", bound=BaseModel)
Answering = Callable[[Request], Awaitable[Response]]

ERRORS: dict[type[Exception], str] = {
    LedgerRowUnreadableError: "LEDGER_ROW_UNREADABLE",
    LedgerError: "LEDGER_UNAVAILABLE",
    BusUnavailableError: "BUS_UNAVAILABLE",
    ValidationError: "INVALID_BODY",
}
STALE: Final = "STALE_ATTEMPT"
UNSERVED: Final = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}
MOST_BYTES: Final = 2 * 1024 * 1024
"""Twice what an orchestrator takes: it passes replies on in other words."""
_FROM_BROWSERS: Final = frozenset(("origin", "sec-fetch-site"))
"""Headers that a browser sends with every POST of a page, and that no page can leave out."""
SHOWN: Final = 100
"""Characters of what a caller sent that are repeated."""


class InvokerProblemError(Exception):
    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


def invoker_app(invoker: Invoker, secret: str = "", probes: Sequence[BaseRoute] = ()) -> Starlette:
    """An empty secret is for loopback, which bootstrap has checked. `probes` need none."""
    endpoints = InternalApi(invoker)
    answers: dict[str, Answering] = {
        ATTEMPT: endpoints.attempt,
        PUBLISH: endpoints.publish,
        TIMEOUT: endpoints.timeout,
        INPUTS: endpoints.inputs,
    }
    routes = [
        Route(path, _for_callers_with(secret, answer), methods=["POST"])
        for path, answer in answers.items()
    ]
    app = Starlette(routes=[*routes, Route("/openapi.json", _described), *probes])
    for kind in (*ERRORS, InvokerProblemError, RequestError, HTTPException):
        app.add_exception_handler(kind, _refused)
    app.add_exception_handler(ClientDisconnect, _gone)
    return app


class InternalApi:
    def __init__(self, invoker: Invoker) -> None:
        self._invoker = invoker

    async def attempt(self, request: Request) -> Response:
        body = await _read(request, AttemptBody)
        asked = AttemptRequested(body.stepId, body.attempt_no, body.lease_id)
        answered = await self._invoker.attempt(
            body.jobId, asked, publish=body.publish, tenant_id=body.tenant_id
        )
        return self._told(answered)

    async def publish(self, request: Request) -> Response:
        body = await _read(request, PublishBody)
        of = body.directive
        asked = AttemptRequested(of.stepId, of.attempt_no, of.lease_id)
        answered = await self._invoker.publish(
            of.jobId, asked, tenant_id=of.tenant_id, lane=body.lane
        )
        return self._told(answered)

    async def timeout(self, request: Request) -> Response:
        body = await _read(request, TimeoutBody)
        return self._told(await self._invoker.timeout(body.jobId, tenant_id=body.tenant_id))

    async def inputs(self, request: Request) -> Response:
        job_id: str = request.path_params["jobId"]
        spoken = await _read(request, SpokenBody)
        applied = await self._invoker.apply(job_id, input_of(spoken.model_dump()))
        if applied is None:
            said = f"there is no job {job_id[:SHOWN]} on Temporal"
            raise InvokerProblemError("JOB_NOT_FOUND", said)
        outcome, version = applied.outcome.value, applied.job.version
        told = {"status": "ok", "outcome": outcome, "code": applied.code, "version": version}
        return JSONResponse(told)

    def _told(self, answered: Answered | None) -> Response:
        if answered is None:
            said = "the tenant has no such job on Temporal, or the job has no such step"
            raise InvokerProblemError("JOB_NOT_FOUND", said)
        if answered.outcome == SUPERSEDED:
            said = "it is not what comes next, so nothing was done: the snapshot says what does"
            told = self._invoker.told(answered)
            return _problem(STALE, said, outcome=told["outcome"], snapshot=told["snapshot"])
        return JSONResponse(self._invoker.told(answered))


def _for_callers_with(secret: str, answer: Answering) -> Answering:
    async def checked(request: Request) -> Response:
        """Compared in constant time."""
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        known = secrets.compare_digest(given.encode(), secret.encode())
        if secret and (scheme.lower() != "bearer" or not known):
            said = "the bearer token is not the secret of this invoker: set LUCIUS_INVOKER_SECRET"
            raise InvokerProblemError("UNAUTHENTICATED", said)
        if not _FROM_BROWSERS.isdisjoint(request.headers):
            raise InvokerProblemError("CROSS_ORIGIN", "no web page may ask an invoker")
        return await answer(request)

    return checked


async def _read(request: Request, body: type[AskedBody]) -> AskedBody:
    """A body that is too large is refused as soon as it shows."""
    said = bytearray()
    async for chunk in request.stream():
        said += chunk
        if len(said) > MOST_BYTES:
            raise InvokerProblemError(
                "BODY_TOO_LARGE",
                f"a body may have {MOST_BYTES} bytes: jobs name documents, not contain them",
            )
    return body.model_validate_json(bytes(said))


async def _described(request: Request) -> Response:
    return Response(_description(), media_type="application/json")


@cache
def _description() -> bytes:
    """Made once: anyone may ask for it."""
    return bytes(JSONResponse(description()).body)


async def _gone(request: Request, error: Exception) -> Response:
    """Nobody is left to answer, and nothing to log: a client may hang up."""
    return Response(status_code=400)


async def _refused(request: Request, error: Exception) -> Response:
    if isinstance(error, InvokerProblemError | RequestError):
        return _problem(error.code, str(error))
    if isinstance(error, HTTPException):
        return _problem(UNSERVED[error.status_code], f"{request.method} {request.url.path[:SHOWN]}")
    if isinstance(error, ValidationError):
        return _problem("INVALID_BODY", "; ".join(_faults(error)))
    code = next(code for kind, code in ERRORS.items() if isinstance(error, kind))
    return _problem(code, str(error))


def _faults(error: ValidationError) -> Iterator[str]:
    """Where, and what must be there. What was there instead is not repeated."""
    for fault in error.errors(include_url=False, include_input=False, include_context=False):
        pointer = "".join(f"/{part}" for part in fault["loc"])
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
