"""Why a job is where it is, and what is wrong with the system: causes with their evidence."""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from lucius.api.context import ApiContext, Role
from lucius.api.explain import instant
from lucius.api.openapi import path_parameter
from lucius.api.operation import Answer, Operation
from lucius.api.problems import Problem
from lucius.api.requests import visible_job
from lucius.api.routes.system import warnings_of
from lucius.api.routing import Context, KnownCaller, json_response
from lucius.api.stuck import troubles_of
from lucius.contract.shapes import JobWhyShape, SystemWhyShape, WhyShape
from lucius.core.errors import LedgerUnavailableError
from lucius.ports.diagnosis import Diagnosis, Doctor, Evidence


def _doctor(context: ApiContext) -> Doctor:
    if context.doctor is None:
        raise Problem("NOT_SUPPORTED")
    return context.doctor


async def why_job(context: Context, request: Request, caller: KnownCaller) -> Response:
    doctor, job_id = _doctor(context), request.path_params["jobId"]
    try:
        job = await visible_job(context, request, caller)
    except LedgerUnavailableError as error:
        told = str(error) if caller.tenants is None else "it does not answer"
        return json_response({"jobId": job_id, **finding_view(_ledger_away(told))})
    found = await doctor.job(job, await troubles_of(request), tenants=caller.tenants)
    answer: JobWhyShape = {"jobId": job.job_id, **finding_view(found)}
    return json_response(answer)


def _ledger_away(told: str) -> Diagnosis:
    return Diagnosis(
        "LEDGER_AWAY",
        "the ledger does not answer, so nobody knows where the job is",
        None,
        [Evidence(told)],
        "everything goes on when the ledger answers again",
        command="lucius why",
    )


async def why(context: Context, request: Request, caller: KnownCaller) -> Response:
    """What cannot be known is left out, while the ledger is away: that it is, is the answer."""
    doctor, troubles = _doctor(context), await troubles_of(request)
    try:
        warnings = await warnings_of(context)
    except LedgerUnavailableError:
        warnings = {}
    found = await doctor.system(troubles, warnings, tenants=caller.tenants)
    answer: SystemWhyShape = {"causes": [finding_view(each) for each in found]}
    return json_response(answer)


def finding_view(found: Diagnosis) -> WhyShape:
    return {
        "cause": found.cause,
        "severity": found.severity.name,
        "summary": found.summary,
        "since": instant(found.since) if found.since is not None else None,
        "evidence": [
            {"what": each.what, "at": instant(each.at) if each.at is not None else None}
            for each in found.evidence
        ],
        "next": {
            "what": found.next_what,
            "at": instant(found.next_at) if found.next_at is not None else None,
        },
        "command": found.command,
        "service": found.service,
    }


OPERATIONS: Final = (
    Operation(
        "GET",
        "/v1/jobs/{jobId}/why",
        why_job,
        "Why a job is where it is: one cause, the evidence, what comes next, and the command that helps",
        "jobs",
        Role.READ,
        {200: Answer("The cause", JobWhyShape)},
        parameters=(path_parameter("jobId", "The job's id"),),
        description="`cause` is a stable code; each has a page. Also answered while the ledger is away.",
    ),
    Operation(
        "GET",
        "/v1/why",
        why,
        "What is wrong now, worst first",
        "system",
        Role.READ,
        {200: Answer("The causes; none where nothing is wrong", SystemWhyShape)},
    ),
)
