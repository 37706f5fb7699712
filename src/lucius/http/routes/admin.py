"""For operators: the dead-letter view, the backlog, and publishing what is pending now."""

from typing import Annotated, Any

from fastapi import APIRouter, Body, Query
from starlette.requests import Request
from starlette.responses import Response

from lucius.contract.models.base import MayMiss
from lucius.contract.models.control import EmptyBody, RetriedView
from lucius.contract.models.jobs import JobsView, JobView
from lucius.contract.models.services import (
    BacklogView,
    ProtocolsView,
    ServiceBacklogView,
    SettingsView,
)
from lucius.core.inputs import Dismissed
from lucius.core.plan import Mode
from lucius.http.context import Role
from lucius.http.listing import JobsQuery, list_page
from lucius.http.parameters import AnyOrder, JobIdInPath, ServiceInPath, audit_fields
from lucius.http.problems import Problem, offered, problems
from lucius.http.routes.control import MOVED, moved
from lucius.http.routes.system import BAD_CONFIG
from lucius.http.routing import ApiRoute, Context, KnownCaller, json_response, needs
from lucius.http.views import protocol_view

router = APIRouter(route_class=ApiRoute, tags=["admin"])


@router.get(
    "/v1/admin/dlq",
    summary="Jobs that failed and were neither redriven nor dismissed",
    dependencies=[needs(Role.OPERATE)],
    response_model=JobsView,
    response_description="A page of jobs, as in the job list",
    responses=problems("INVALID_CURSOR", "NOT_SUPPORTED"),
)
async def list_dlq(
    context: Context, request: Request, caller: KnownCaller, asked: Annotated[JobsQuery, Query()]
) -> Response:
    return await list_page(context, request, caller, asked, dlq=True)


@router.post(
    "/v1/admin/dlq/{jobId}:dismiss",
    summary="Take a failed job out of the dead-letter view",
    dependencies=[needs(Role.OPERATE)],
    response_model=JobView,
    response_description=MOVED,
    responses=problems("NOT_IN_DLQ", "CONFLICT", "ORCHESTRATION_UNAVAILABLE"),
)
async def dismiss(
    context: Context, caller: KnownCaller, job_id: JobIdInPath, body: AnyOrder = None
) -> Response:
    return await moved(context, caller, job_id, Dismissed(**audit_fields(caller, body)))


@router.get(
    "/v1/admin/backlog",
    summary="What is held, released and in progress, by service and lane",
    dependencies=[needs(Role.ADMIN, every_tenant=True)],
    response_model=BacklogView,
    response_description="The backlog",
)
async def get_backlog(context: Context) -> Response:
    return json_response({"backlog": list(await context.engine.backlog())})


@router.get(
    "/v1/admin/backlog/{service}",
    summary="How many directives of a service are held, released or in progress: one number, for autoscalers",
    dependencies=[needs(Role.MONITOR, Role.ADMIN, every_tenant=True)],
    response_model=ServiceBacklogView,
    response_description="The number",
    responses=problems("SERVICE_NOT_FOUND"),
)
async def get_backlog_of_service(
    context: Context,
    service: ServiceInPath,
    mode: Annotated[MayMiss[Mode], Query(description="Only directives of this mode")] = None,
) -> Response:
    """One number, for autoscalers. A service that no protocol names is a mistake in their configuration."""
    rows = [row for row in await context.engine.backlog() if row["service"] == service]
    named = {step.service for p in context.config.catalog().protocols.values() for step in p.steps}
    if not rows and service not in named:
        raise Problem("SERVICE_NOT_FOUND", f"no protocol names the service {service[:128]!r}")
    counted = sum(
        row["held"] + row["released"] + row["in_progress"]
        for row in rows
        if mode is None or row["mode"] == mode
    )
    return json_response({"backlog": counted})


@router.post(
    "/v1/admin/outbox/retry",
    summary="Publish what is pending now, without waiting for its backoff",
    dependencies=[needs(Role.ADMIN, every_tenant=True)],
    response_model=RetriedView,
    response_description="What was done, counted",
    responses=problems("NOT_SUPPORTED"),
)
async def retry_outbox(
    context: Context, body: Annotated[MayMiss[EmptyBody], Body()] = None
) -> Response:
    return json_response(await offered(context.retry_outbox)())


@router.get(
    "/v1/admin/settings",
    summary="The settings of this server, and where each value comes from",
    description="They are those of the process that answers: others may have been started with others.",
    dependencies=[needs(Role.OPERATE, every_tenant=True)],
    response_model=SettingsView,
    response_description="Every setting; secrets are masked",
)
async def get_settings(context: Context) -> Response:
    return json_response(context.settings())


@router.get(
    "/v1/protocols",
    summary="The protocols in force, with the payload schema of each step",
    dependencies=[needs(Role.READ)],
    response_model=ProtocolsView,
    response_description="The protocols",
)
async def list_protocols(context: Context) -> Response:
    catalog = context.config.catalog()
    answer: dict[str, Any] = {
        "version": catalog.version,
        "warning": BAD_CONFIG if context.config.fault() is not None else None,
        "protocols": [protocol_view(protocol) for protocol in catalog.protocols.values()],
    }
    return json_response(answer)
