"""For operators: the dead-letter view, the backlog, and publishing what is pending now."""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from lucius.api.body import optional_object
from lucius.api.context import ApiContext, Caller, Role
from lucius.api.listing import PARAMETERS, list_page
from lucius.api.openapi import path_parameter
from lucius.api.operation import Answer, Operation, json_response
from lucius.api.problems import Problem
from lucius.api.requests import visible_job
from lucius.api.routes.control import moved
from lucius.api.views import protocol_view
from lucius.contract.shapes import BacklogShape, JobShape, JobsShape, ProtocolsShape, RetriedShape
from lucius.core.inputs import Dismissed


async def list_dlq(context: ApiContext, request: Request, caller: Caller) -> Response:
    return await list_page(context, request, caller, dlq=True)


async def dismiss(context: ApiContext, request: Request, caller: Caller) -> Response:
    await optional_object(request, context.options.max_body_bytes)
    job = await visible_job(context, request, caller)
    return await moved(context, job.job_id, Dismissed())


async def get_backlog(context: ApiContext, request: Request, caller: Caller) -> Response:
    if context.backlog is None:
        raise Problem("NOT_SUPPORTED")
    return json_response({"backlog": list(await context.backlog())})


async def retry_outbox(context: ApiContext, request: Request, caller: Caller) -> Response:
    await optional_object(request, context.options.max_body_bytes)
    if context.retry_outbox is None:
        raise Problem("NOT_SUPPORTED")
    return json_response(await context.retry_outbox())


async def list_protocols(context: ApiContext, request: Request, caller: Caller) -> Response:
    catalog = context.config.catalog()
    protocols = [protocol_view(protocol) for protocol in catalog.protocols.values()]
    return json_response({"version": catalog.version, "protocols": protocols})


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
        body={"type": "object"},
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
        "/v1/protocols",
        list_protocols,
        "The protocols in force, with the payload schema of each step",
        "admin",
        Role.READ,
        {200: Answer("The protocols", ProtocolsShape)},
    ),
)
