"""Control: cancel, pause, resume, retry and redrive. Repeating what already holds is 200."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Body
from starlette.responses import Response

from lucius.contract.codes import CODES
from lucius.contract.models.base import MayMiss
from lucius.contract.models.commands import RedrivenView
from lucius.contract.models.control import CancelBody, RedriveBody
from lucius.contract.models.jobs import JobView
from lucius.core.effects import Outcome
from lucius.core.inputs import (
    CancelRequested,
    Input,
    PauseRequested,
    ResendRequested,
    ResumeRequested,
    RetryRequested,
)
from lucius.http.context import ApiContext, Caller, Role
from lucius.http.parameters import AnyOrder, JobIdInPath, audit_fields, visible_job
from lucius.http.problems import Problem, header, problems
from lucius.http.routes.ingress import accepted
from lucius.http.routing import ApiRoute, Context, KnownCaller, json_response, needs
from lucius.http.views import job_view

router = APIRouter(route_class=ApiRoute, tags=["control"], dependencies=[needs(Role.OPERATE)])
MOVED: Final = "The job; `outcome` is `applied`, or `already` if that held"


async def moved(context: ApiContext, caller: Caller, job_id: str, received: Input) -> Response:
    """Apply one input to a job of the caller's, and answer with the job as it stands after it."""
    job = await visible_job(context, job_id, caller)
    applied = await context.engine.apply(job.job_id, received)
    if applied is None:
        raise Problem("JOB_NOT_FOUND")
    if applied.outcome is Outcome.REJECTED:
        code = applied.code if applied.code in CODES else "CONFLICT"
        raise Problem(code or "CONFLICT", f"the job is {applied.job.state.value}")
    view = job_view(applied.job)
    view["outcome"] = applied.outcome.value
    return json_response(view)


def _declared(summary: str, *codes: str) -> dict[str, Any]:
    return {
        "summary": summary,
        "response_model": JobView,
        "response_description": MOVED,
        "responses": problems("JOB_TERMINAL", "CONFLICT", *codes),
    }


@router.post("/v1/jobs/{jobId}:cancel", **_declared("Cancel a job", "ORCHESTRATION_UNAVAILABLE"))
async def cancel(
    context: Context,
    caller: KnownCaller,
    job_id: JobIdInPath,
    body: Annotated[MayMiss[CancelBody], Body()] = None,
) -> Response:
    immediate = body is not None and body.immediate
    order = CancelRequested(immediate=immediate, **audit_fields(caller, body))
    return await moved(context, caller, job_id, order)


@router.post(
    "/v1/jobs/{jobId}:pause",
    **_declared("Pause a job: nothing new starts", "JOB_CANCELLING", "ORCHESTRATION_UNAVAILABLE"),
)
async def pause(
    context: Context, caller: KnownCaller, job_id: JobIdInPath, body: AnyOrder = None
) -> Response:
    return await moved(context, caller, job_id, PauseRequested(**audit_fields(caller, body)))


@router.post(
    "/v1/jobs/{jobId}:resume",
    **_declared("Resume a job: it goes on at once", "JOB_CANCELLING", "ORCHESTRATION_UNAVAILABLE"),
)
async def resume(
    context: Context, caller: KnownCaller, job_id: JobIdInPath, body: AnyOrder = None
) -> Response:
    return await moved(context, caller, job_id, ResumeRequested(**audit_fields(caller, body)))


@router.post(
    "/v1/jobs/{jobId}:retry",
    **_declared("Try again now what waits for its backoff", "JOB_PAUSED", "JOB_CANCELLING"),
)
async def retry(
    context: Context, caller: KnownCaller, job_id: JobIdInPath, body: AnyOrder = None
) -> Response:
    return await moved(context, caller, job_id, RetryRequested(**audit_fields(caller, body)))


@router.post(
    "/v1/jobs/{jobId}/webhooks:resend",
    **_declared(
        "Send the webhooks of a job that has ended again, now",
        *("NOTHING_TO_SEND", "ORCHESTRATION_UNAVAILABLE"),
    ),
)
async def resend_webhooks(
    context: Context, caller: KnownCaller, job_id: JobIdInPath, body: AnyOrder = None
) -> Response:
    return await moved(context, caller, job_id, ResendRequested(**audit_fields(caller, body)))


@router.post(
    "/v1/jobs/{jobId}:redrive",
    summary="Run a failed job again from the failed step on",
    status_code=202,
    response_model=RedrivenView,
    response_description="A new job is durable",
    responses={
        202: {"headers": header("Location", "The new job")},
        200: {
            "model": RedrivenView,
            "description": "It was redriven before: the job that did",
        },
        **problems(
            "NOT_REDRIVABLE",
            "ALREADY_REDRIVEN",
            "INVALID_ENVELOPE",
            "INVALID_PAYLOAD",
            "PAYLOAD_HAS_CREDENTIALS",
            "PAYLOAD_TOO_LARGE",
            "REFERENCE_INVALID",
            "REFERENCE_HAS_CREDENTIALS",
            "REFERENCE_NOT_ALLOWED",
            "REFERENCE_PROTECTED",
            "TENANT_SATURATED",
            "GLOBAL_SATURATED",
            "LANE_SATURATED",
        ),
    },
)
async def redrive(
    context: Context,
    caller: KnownCaller,
    job_id: JobIdInPath,
    body: Annotated[MayMiss[RedriveBody], Body()] = None,
) -> Response:
    body, audit = body or RedriveBody(), audit_fields(caller, body)
    job = await visible_job(context, job_id, caller)
    submitted = await context.engine.redrive(
        job.job_id, payload=body.payload, output_ref=body.output_ref, audit=audit
    )
    status = 200 if submitted.duplicate else 202
    return accepted(submitted, status, redrive_of=job.job_id)
