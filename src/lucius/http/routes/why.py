"""Why a job is where it is, and what is wrong with the system: causes with their evidence."""

from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from lucius.contract.models.base import JsonObject
from lucius.contract.models.insight import (
    EvidenceView,
    FailedWebhookView,
    ImpactView,
    JobWhyView,
    SystemWhyView,
    WebhooksView,
    WhyView,
)
from lucius.core.errors import LedgerUnavailableError
from lucius.http.context import Role
from lucius.http.parameters import JobIdInPath, visible_job
from lucius.http.problems import offered, problems
from lucius.http.readiness import troubles_of
from lucius.http.routes.system import warnings_of
from lucius.http.routing import SYSTEM, ApiRoute, Context, KnownCaller, json_response, needs
from lucius.http.views import picked
from lucius.ports.diagnosis import Diagnosis, Evidence, Impact

MOST_TENANTS: Final = 20
"""That are named."""
router = APIRouter(route_class=ApiRoute, dependencies=[needs(Role.READ)])


@router.get(
    "/v1/jobs/{jobId}/why",
    summary="Why a job is where it is: one cause, the evidence, what comes next, and the command that helps",
    description="`cause` is a stable code; each has a page. Also answered while the ledger is away.",
    tags=["jobs"],
    response_model=JobWhyView,
    response_description="The cause",
    responses=problems("NOT_SUPPORTED"),
)
async def why_job(
    context: Context, request: Request, caller: KnownCaller, job_id: JobIdInPath
) -> Response:
    diagnoser = offered(context.diagnoser)
    try:
        job = await visible_job(context, job_id, caller)
    except LedgerUnavailableError as error:
        told = str(error) if caller.tenants is None else "it does not answer"
        return json_response({"jobId": job_id, **finding_view(_ledger_away(told))})
    found = await diagnoser.job(job, await troubles_of(request), tenants=caller.tenants)
    return json_response({"jobId": job.job_id, **finding_view(found)})


def _ledger_away(told: str) -> Diagnosis:
    return Diagnosis(
        "LEDGER_AWAY",
        "the ledger does not answer, so nobody knows where the job is",
        None,
        [Evidence(told)],
        "everything goes on when the ledger answers again",
        command="lucius why",
    )


@router.get(
    "/v1/why",
    summary="What is wrong now, worst first",
    tags=[SYSTEM],
    response_model=SystemWhyView,
    response_description="The causes; none where nothing is wrong",
    responses=problems("NOT_SUPPORTED"),
)
async def why(context: Context, request: Request, caller: KnownCaller) -> Response:
    """What cannot be known is left out, while the ledger is away: that it is, is the answer."""
    diagnoser, troubles = offered(context.diagnoser), await troubles_of(request)
    try:
        warnings = await warnings_of(context)
    except LedgerUnavailableError:
        warnings = {}
    found = await diagnoser.system(troubles, warnings, tenants=caller.tenants)
    return json_response({"causes": [finding_view(each) for each in found]})


@router.get(
    "/v1/webhooks",
    summary="Webhooks that are not delivered, and why",
    description="Those of the caller's tenants. `POST /v1/jobs/{jobId}/webhooks:resend` sends them again.",
    tags=["jobs"],
    response_model=WebhooksView,
    response_description="The webhooks, the latest first",
    responses=problems("NOT_SUPPORTED"),
)
async def list_webhooks(context: Context, caller: KnownCaller) -> Response:
    found = await offered(context.webhooks).failed(caller.tenants)
    views = [picked(FailedWebhookView, each, jobId=each.job_id) for each in found]
    return json_response({"webhooks": views})


def finding_view(found: Diagnosis) -> JsonObject:
    return picked(
        WhyView,
        found,
        severity=found.severity.name,
        evidence=[picked(EvidenceView, each) for each in found.evidence],
        next={"what": found.next_what, "at": found.next_at},
        impact=_impact_view(found.impact),
    )


def _impact_view(impact: Impact | None) -> JsonObject | None:
    if impact is None:
        return None
    tenants = list(impact.tenants)
    return picked(ImpactView, impact, tenants=tenants[:MOST_TENANTS], tenant_count=len(tenants))
