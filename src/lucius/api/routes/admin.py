"""For operators: the dead-letter view, the backlog, and publishing what is pending now."""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from lucius.api.body import optional_object
from lucius.api.context import Role
from lucius.api.listing import PARAMETERS, list_page
from lucius.api.openapi import path_parameter, query_parameter
from lucius.api.operation import Answer, Operation
from lucius.api.orders import REASON, said_by
from lucius.api.problems import Problem, parameter_problem
from lucius.api.requests import visible_job
from lucius.api.routes.control import moved
from lucius.api.routes.system import BAD_CONFIG
from lucius.api.routing import Context, KnownCaller, json_response
from lucius.api.views import protocol_view
from lucius.contract.shapes import (
    BacklogShape,
    JobShape,
    JobsShape,
    ProtocolsShape,
    RetriedShape,
    ServiceBacklogShape,
    SettingsShape,
)
from lucius.core.inputs import Dismissed
from lucius.core.plan import Mode

MODES: Final = tuple(mode.value for mode in Mode)


async def list_dlq(context: Context, request: Request, caller: KnownCaller) -> Response:
    return await list_page(context, request, caller, dlq=True)


async def dismiss(context: Context, request: Request, caller: KnownCaller) -> Response:
    body = await optional_object(request, context.options.max_body_bytes)
    order = Dismissed(**said_by(caller, body))
    job = await visible_job(context, request, caller)
    return await moved(context, job.job_id, order)


async def get_backlog(context: Context, request: Request, caller: KnownCaller) -> Response:
    return json_response({"backlog": list(await context.engine.backlog())})


async def get_backlog_of_service(
    context: Context, request: Request, caller: KnownCaller
) -> Response:
    """One number, for autoscalers. A service that no protocol names is a mistake in their configuration."""
    service, mode = request.path_params["service"], request.query_params.get("mode")
    if mode is not None and mode not in MODES:
        raise parameter_problem("mode", f"must be {' or '.join(MODES)}")
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


async def retry_outbox(context: Context, request: Request, caller: KnownCaller) -> Response:
    await optional_object(request, context.options.max_body_bytes)
    if context.retry_outbox is None:
        raise Problem("NOT_SUPPORTED")
    return json_response(await context.retry_outbox())


async def list_protocols(context: Context, request: Request, caller: KnownCaller) -> Response:
    catalog = context.config.catalog()
    protocols = [protocol_view(protocol) for protocol in catalog.protocols.values()]
    warning = BAD_CONFIG if context.config.fault() is not None else None
    answer = {"version": catalog.version, "warning": warning, "protocols": protocols}
    return json_response(answer)


async def get_settings(context: Context, request: Request, caller: KnownCaller) -> Response:
    return json_response(context.settings())


OPERATIONS: Final = (
    Operation(
        "GET",
        "/v1/admin/dlq",
        list_dlq,
        "Jobs that failed and were neither redriven nor dismissed",
        "admin",
        Role.OPERATE,
        {200: Answer("A page of jobs, as in the job list", JobsShape)},
        parameters=PARAMETERS,
    ),
    Operation(
        "POST",
        "/v1/admin/dlq/{jobId}:dismiss",
        dismiss,
        "Take a failed job out of the dead-letter view",
        "admin",
        Role.OPERATE,
        {200: Answer("The job; `outcome` is `applied`, or `already` if that held", JobShape)},
        parameters=(path_parameter("jobId", "The job's id"),),
        body={"type": "object", "properties": REASON},
        body_required=False,
    ),
    Operation(
        "GET",
        "/v1/admin/backlog",
        get_backlog,
        "What is held, released and in progress, by service and lane",
        "admin",
        Role.ADMIN,
        {200: Answer("The backlog", BacklogShape)},
        every_tenant=True,
    ),
    Operation(
        "GET",
        "/v1/admin/backlog/{service}",
        get_backlog_of_service,
        "How many directives of a service are held, released or in progress: one number, for autoscalers",
        "admin",
        Role.MONITOR,
        {200: Answer("The number", ServiceBacklogShape)},
        parameters=(
            path_parameter("service", "The service's name"),
            query_parameter(
                "mode", "Only directives of this mode", {"type": "string", "enum": list(MODES)}
            ),
        ),
        every_tenant=True,
        also=(Role.ADMIN,),
    ),
    Operation(
        "POST",
        "/v1/admin/outbox/retry",
        retry_outbox,
        "Publish what is pending now, without waiting for its backoff",
        "admin",
        Role.ADMIN,
        {200: Answer("What was done, counted", RetriedShape)},
        body={"type": "object"},
        body_required=False,
        every_tenant=True,
    ),
    Operation(
        "GET",
        "/v1/admin/settings",
        get_settings,
        "The settings of this server, and where each value comes from",
        "admin",
        Role.OPERATE,
        {200: Answer("Every setting; secrets are masked", SettingsShape)},
        every_tenant=True,
        description="They are those of the process that answers: others may have been started with others.",
    ),
    Operation(
        "GET",
        "/v1/protocols",
        list_protocols,
        "The protocols in force, with the payload schema of each step",
        "admin",
        Role.READ,
        {200: Answer("The protocols", ProtocolsShape)},
    ),
)
