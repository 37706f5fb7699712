"""Ingress: one command in, one durable job out."""

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from lucius.api.body import json_object
from lucius.api.context import Caller, Role
from lucius.api.openapi import header_parameter, query_parameter
from lucius.api.operation import Answer, Operation
from lucius.api.problems import Problem
from lucius.api.requests import seconds
from lucius.api.routing import Context, KnownCaller, json_response, waiting
from lucius.api.tracing import continue_trace
from lucius.api.views import etag_of, job_view
from lucius.contract.envelope import ENVELOPE, MAX_NAME, TEXT
from lucius.contract.shapes import JobShape, SubmittedShape
from lucius.core.trace_context import is_traceparent
from lucius.ports.engine import Submitted

MOST_NAMED: Final = 20
"""Tenants of a caller that a refusal names."""


async def orchestrate(context: Context, request: Request, caller: KnownCaller) -> Response:
    wait = seconds(request, "wait_seconds", context.options.max_wait_seconds)
    if wait and Role.READ not in caller.roles:
        raise Problem("FORBIDDEN", f"to wait for the job needs the role {Role.READ.value}")
    envelope = await json_object(request, context.options.max_body_bytes)
    tenant_id = envelope.get("tenant_id")
    if isinstance(tenant_id, str) and not caller.may_act_for(tenant_id):
        raise Problem("TENANT_FORBIDDEN", _only_for(caller, tenant_id))
    if context.stopping():
        raise Problem("NOT_READY", "the server is stopping and takes no new jobs")
    key = _from_headers(request, envelope)
    continue_trace(envelope)
    if not wait:
        return accepted(await context.engine.submit(envelope, idempotency_key=key))
    with waiting(context, request, caller):  # before anything is done, as the place may be refused
        submitted = await context.engine.submit(envelope, idempotency_key=key)
        if submitted.warnings:
            return accepted(submitted)
        async with context.watch.while_it(caller.stands):
            job = await context.engine.ended(submitted.job_id, wait)
    if job is None or not job.terminal:
        return accepted(submitted)
    headers = {"location": f"/v1/jobs/{job.job_id}", "etag": etag_of(job)}
    return json_response(job_view(job), headers=headers)


def _only_for(caller: Caller, tenant_id: str) -> str:
    """Names the caller's own tenants, and no others."""
    own = sorted(caller.tenants or ())
    named = ", ".join(own[:MOST_NAMED]) + (" and others" if len(own) > MOST_NAMED else "")
    return f"this key or token is for {named or 'no tenant'}, not for {tenant_id[:MAX_NAME]}"


def _from_headers(request: Request, envelope: dict[str, Any]) -> str | None:
    """The key, and what the envelope leaves to the headers. One pass over them."""
    key, states, named = None, b"", envelope.get("traceparent") is not None
    for name, value in request.scope["headers"]:
        if name == b"idempotency-key":
            key = value.decode("latin-1")
        elif name == b"traceparent":
            if is_traceparent(above := value.decode("latin-1")):  # A malformed one is ignored.
                envelope.setdefault("traceparent", above)
        elif name == b"tracestate":
            states = states + b"," + value if states else value
        elif name == b"x-correlation-id":
            envelope.setdefault("correlation_id", value.decode("latin-1"))
    if states and not named:
        envelope["tracestate"] = states.decode("latin-1")
    return key


def accepted(submitted: Submitted, status: int = 202, **more: str) -> Response:
    content: dict[str, Any] = {
        "jobId": submitted.job_id,
        "state": submitted.state,
        "duplicate": submitted.duplicate,
        **more,
    }
    if submitted.warnings:
        content["warnings"] = [
            {"pointer": at, "detail": detail} for at, detail in submitted.warnings
        ]
    return json_response(content, status, {"location": f"/v1/jobs/{submitted.job_id}"})


def _operation(path: str, *, deprecated: bool) -> Operation:
    return Operation(
        "POST",
        path,
        orchestrate,
        "Submit a command",
        "jobs",
        Role.SUBMIT,
        {
            202: Answer("The job is durable", SubmittedShape, headers={"Location": "The job"}),
            200: Answer(
                "The job has ended, with `wait_seconds`",
                JobShape,
                headers={"Location": "The job", "ETag": "The job's version"},
            ),
        },
        parameters=(
            query_parameter(
                "wait_seconds",
                "Answer with the job once it has ended, or with 202 after so many seconds",
                {"type": "number", "minimum": 0, "maximum": 60},
            ),
            header_parameter("Idempotency-Key", "Counts as `idempotency_key`", TEXT),
            header_parameter("traceparent", "Counts as `traceparent`, if the body has none"),
            header_parameter("tracestate", "Counts as `tracestate`, with the header `traceparent`"),
            header_parameter(
                "X-Correlation-Id", "Counts as `correlation_id`, if the body has none"
            ),
        ),
        body=ENVELOPE,
        description="The same request again answers with the same job and `duplicate: true`. A field that"
        " nobody knows is kept; `warnings` names those whose name is close to a known one. With"
        " `wait_seconds`, which needs the role read too, the job is durable long before the answer: whoever"
        " loses the connection repeats the request with its key. A request that has warnings does not wait.",
        deprecated=deprecated,
    )


OPERATIONS: Final = (
    _operation("/v1/orchestrate", deprecated=False),
    _operation("/v1/commands", deprecated=True),
)
