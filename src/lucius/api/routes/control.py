"""Control: cancel, pause, resume, retry and redrive. Repeating what already holds is 200."""

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from lucius.api.body import field_problem, optional_object
from lucius.api.context import ApiContext, Role
from lucius.api.openapi import path_parameter
from lucius.api.operation import Answer, Handler, Operation
from lucius.api.orders import REASON, said_by
from lucius.api.problems import Problem
from lucius.api.requests import visible_job
from lucius.api.routes.ingress import accepted
from lucius.api.routing import Context, KnownCaller, json_response
from lucius.api.views import job_view
from lucius.contract.codes import CODES
from lucius.contract.shapes import JobShape, RedrivenShape
from lucius.core.effects import Outcome
from lucius.core.inputs import (
    CancelRequested,
    Input,
    PauseRequested,
    ResumeRequested,
    RetryRequested,
)

JOB_ID: Final = path_parameter("jobId", "The job's id")
_PLAIN: Final[dict[str, Any]] = {"type": "object", "properties": REASON}
_CANCEL: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "immediate": {
            "type": "boolean",
            "description": "End the job now, without waiting for the step that is under way",
        },
        **REASON,
    },
}
_REDRIVE: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "payload": {"type": ["object", "null"], "description": "Replaces the job's payload"},
        **REASON,
    },
}


async def moved(context: ApiContext, job_id: str, received: Input) -> Response:
    """Apply one input and answer with the job as it stands after it."""
    applied = await context.engine.apply(job_id, received)
    if applied is None:
        raise Problem("JOB_NOT_FOUND")
    if applied.outcome is Outcome.REJECTED:
        code = applied.code if applied.code in CODES else "CONFLICT"
        raise Problem(code or "CONFLICT", f"the job is {applied.job.state.value}")
    view = job_view(applied.job)
    view["outcome"] = applied.outcome.value
    return json_response(view)


async def cancel(context: Context, request: Request, caller: KnownCaller) -> Response:
    body = await optional_object(request, context.options.max_body_bytes)
    immediate = body.get("immediate", False)
    if not isinstance(immediate, bool):
        raise field_problem("/immediate", "must be true or false")
    job = await visible_job(context, request, caller)
    order = CancelRequested(immediate=immediate, **said_by(caller, body))
    return await moved(context, job.job_id, order)


async def pause(context: Context, request: Request, caller: KnownCaller) -> Response:
    body = await optional_object(request, context.options.max_body_bytes)
    order = PauseRequested(**said_by(caller, body))
    job = await visible_job(context, request, caller)
    return await moved(context, job.job_id, order)


async def resume(context: Context, request: Request, caller: KnownCaller) -> Response:
    body = await optional_object(request, context.options.max_body_bytes)
    order = ResumeRequested(**said_by(caller, body))
    job = await visible_job(context, request, caller)
    return await moved(context, job.job_id, order)


async def retry(context: Context, request: Request, caller: KnownCaller) -> Response:
    body = await optional_object(request, context.options.max_body_bytes)
    order = RetryRequested(**said_by(caller, body))
    job = await visible_job(context, request, caller)
    return await moved(context, job.job_id, order)


async def redrive(context: Context, request: Request, caller: KnownCaller) -> Response:
    body = await optional_object(request, context.options.max_body_bytes)
    payload = body.get("payload")
    if payload is not None and not isinstance(payload, dict):
        raise field_problem("/payload", "must be an object")
    said = said_by(caller, body)
    job = await visible_job(context, request, caller)
    submitted = await context.engine.redrive(job.job_id, payload=payload, said=said)
    status = 200 if submitted.duplicate else 202
    return accepted(submitted, status, redrive_of=job.job_id)


def _operation(verb: str, handler: Handler, summary: str, body: dict[str, Any]) -> Operation:
    return Operation(
        "POST",
        f"/v1/jobs/{{jobId}}:{verb}",
        handler,
        summary,
        "control",
        Role.OPERATE,
        {200: Answer("The job; `outcome` is `applied`, or `already` if that held", JobShape)},
        parameters=(JOB_ID,),
        body=body,
        body_required=False,
    )


OPERATIONS: Final = (
    _operation("cancel", cancel, "Cancel a job", _CANCEL),
    _operation("pause", pause, "Pause a job: nothing new starts", _PLAIN),
    _operation("resume", resume, "Resume a job: it goes on at once", _PLAIN),
    _operation("retry", retry, "Try again now what waits for its backoff", _PLAIN),
    Operation(
        "POST",
        "/v1/jobs/{jobId}:redrive",
        redrive,
        "Run a failed job again from the failed step on",
        "control",
        Role.OPERATE,
        {
            202: Answer("A new job is durable", RedrivenShape, headers={"Location": "The new job"}),
            200: Answer("It was redriven before: the job that did", RedrivenShape),
        },
        parameters=(JOB_ID,),
        body=_REDRIVE,
        body_required=False,
    ),
)
