"""The internal API: workers ask, orchestrators pass inputs on. Answers tell the outcome and a snapshot.

Callers prove themselves with a shared secret. Without one, only loopback is listened on.
"""

import secrets
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

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


class InvokerProblemError(Exception):
    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


def invoker_app(invoker: Invoker, secret: str = "") -> Starlette:
    """An empty secret is for loopback, which bootstrap has checked."""
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
    app = Starlette(routes=[*routes, Route("/openapi.json", _described)])
    for kind in (*ERRORS, InvokerProblemError, RequestError):
        app.add_exception_handler(kind, _refused)
    return app


class InternalApi:
    def __init__(self, invoker: Invoker) -> None:
        self._invoker = invoker

    async def attempt(self, request: Request) -> Response:
        body = await _read(request, AttemptBody)
        asked = AttemptRequested(body.stepId, body.attempt_no, body.lease_id)
        answered = await self._invoker.attempt(body.jobId, asked, publish=body.publish)
        return self._told(answered, body.tenant_id)

    async def publish(self, request: Request) -> Response:
        of = (await _read(request, PublishBody)).directive
        asked = AttemptRequested(of.stepId, of.attempt_no, of.lease_id)
        return self._told(await self._invoker.publish(of.jobId, asked), of.tenant_id)

    async def timeout(self, request: Request) -> Response:
        body = await _read(request, TimeoutBody)
        return self._told(await self._invoker.timeout(body.jobId), body.tenant_id)

    async def inputs(self, request: Request) -> Response:
        job_id: str = request.path_params["jobId"]
        spoken = await _read(request, SpokenBody)
        applied = await self._invoker.apply(job_id, input_of(spoken.model_dump()))
        if applied is None:
            raise InvokerProblemError("JOB_NOT_FOUND", f"there is no job {job_id}")
        outcome, version = applied.outcome.value, applied.job.version
        told = {"status": "ok", "outcome": outcome, "code": applied.code, "version": version}
        return JSONResponse(told)

    def _told(self, answered: Answered | None, tenant_id: str | None) -> Response:
        """A tenant that is named must be the job's."""
        if answered is None or tenant_id not in (None, answered.job.tenant_id):
            said = "there is no such job, or it has no such step"
            raise InvokerProblemError("JOB_NOT_FOUND", said)
        return JSONResponse(self._invoker.told(answered))


def _for_callers_with(secret: str, answer: Answering) -> Answering:
    async def checked(request: Request) -> Response:
        """Compared in constant time."""
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if secret and not secrets.compare_digest(given.encode(), secret.encode()):
            said = "the bearer token is not the secret of this invoker: set LUCIUS_INVOKER_SECRET"
            raise InvokerProblemError("UNAUTHENTICATED", said)
        return await answer(request)

    return checked


async def _read(request: Request, body: type[AskedBody]) -> AskedBody:
    return body.model_validate_json(await request.body())


async def _described(request: Request) -> Response:
    return JSONResponse(description())


async def _refused(request: Request, error: Exception) -> Response:
    if isinstance(error, InvokerProblemError | RequestError):
        return _problem(error.code, str(error))
    code = next(code for kind, code in ERRORS.items() if isinstance(error, kind))
    return _problem(code, str(error))


def _problem(code: str, detail: str) -> Response:
    known = CODES[code]
    document: dict[str, Any] = {
        "type": f"urn:lucius:problem:{code}",
        "title": known.title,
        "status": known.status,
        "code": code,
        "detail": detail or known.explanation,
    }
    return JSONResponse(document, known.status, media_type="application/problem+json")
