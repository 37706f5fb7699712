"""The internal API: workers ask, orchestrators pass inputs on. Answers tell the outcome and a snapshot.

Callers prove themselves with a shared secret. Without one, only loopback is listened on.
"""

import secrets
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

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
from lucius.engines.temporal.invoker import Answered, Invoker
from lucius.invoker.bodies import (
    AttemptBody,
    PublishBody,
    SpokenBody,
    TimeoutBody,
    ToldBody,
    ToldOutcomeBody,
)

ERRORS = {
    LedgerRowUnreadableError: "LEDGER_ROW_UNREADABLE",
    LedgerError: "LEDGER_UNAVAILABLE",
    BusUnavailableError: "BUS_UNAVAILABLE",
}


class InvokerProblemError(Exception):
    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


def _problem(code: str, detail: str) -> JSONResponse:
    known = CODES[code]
    document = {
        "type": f"urn:lucius:problem:{code}",
        "title": known.title,
        "status": known.status,
        "code": code,
        "detail": detail or known.explanation,
    }
    return JSONResponse(document, known.status, media_type="application/problem+json")


def invoker_app(invoker: Invoker, secret: str = "") -> FastAPI:
    async def known(request: Request) -> None:
        """Compared in constant time. An empty secret is for loopback, which bootstrap has checked."""
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if secret and not secrets.compare_digest(given.encode(), secret.encode()):
            said = "the bearer token is not the secret of this invoker: set LUCIUS_INVOKER_SECRET"
            raise InvokerProblemError("UNAUTHENTICATED", said)

    app = FastAPI(
        title="LUCIUS invoker", version=__version__, dependencies=[Depends(known)], docs_url=None
    )
    _answer_errors(app)

    def told(answered: Answered | None, tenant_id: str | None) -> dict[str, Any]:
        """A tenant that is named must be the job's."""
        if answered is None or tenant_id not in (None, answered.job.tenant_id):
            raise InvokerProblemError(
                "JOB_NOT_FOUND", "there is no such job, or it has no such step"
            )
        return invoker.told(answered)

    @app.post("/v1/internal/steps/attempt")
    async def attempt(body: AttemptBody) -> ToldBody:
        """Record an attempt: the next one, or the current one again where its lease was given back."""
        asked = AttemptRequested(body.stepId, body.attempt_no, body.lease_id)
        answered = await invoker.attempt(body.jobId, asked, publish=body.publish)
        return ToldBody(**told(answered, body.tenant_id))

    @app.post("/v1/internal/publish")
    async def publish(body: PublishBody) -> ToldBody:
        """Publish the directive of the current attempt, unless it is out. It is rendered here."""
        of = body.directive
        asked = AttemptRequested(of.stepId, of.attempt_no, of.lease_id)
        return ToldBody(**told(await invoker.publish(of.jobId, asked), of.tenant_id))

    @app.post("/v1/internal/steps/timeout")
    async def timeout(body: TimeoutBody) -> ToldBody:
        """A timer of the job's workflow has fired: what has run out, has."""
        return ToldBody(**told(await invoker.timeout(body.jobId), body.tenant_id))

    @app.post("/v1/internal/jobs/{jobId}/inputs")
    async def inputs(jobId: str, body: SpokenBody) -> ToldOutcomeBody:
        """What a client, an operator or a service said to an orchestrator."""
        applied = await invoker.apply(jobId, input_of(body.model_dump()))
        if applied is None:
            raise InvokerProblemError("JOB_NOT_FOUND", f"there is no job {jobId}")
        version = applied.job.version
        return ToldOutcomeBody(outcome=applied.outcome.value, code=applied.code, version=version)

    return app


def _answer_errors(app: FastAPI) -> None:
    def answering(code: str) -> Callable[[Request, Exception], Awaitable[JSONResponse]]:
        async def answer(request: Request, error: Exception) -> JSONResponse:
            return _problem(code, str(error))

        return answer

    async def refused(request: Request, error: Exception) -> JSONResponse:
        code = (
            error.code if isinstance(error, InvokerProblemError | RequestError) else "INVALID_BODY"
        )
        return _problem(code, str(error))

    for kind, code in ERRORS.items():
        app.add_exception_handler(kind, answering(code))
    for refusal in (InvokerProblemError, RequestError, RequestValidationError):
        app.add_exception_handler(refusal, refused)
