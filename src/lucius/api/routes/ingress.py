"""Ingress: one command in, one durable job out."""

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from lucius.api.body import json_object
from lucius.api.context import ApiContext, Caller, Role
from lucius.api.openapi import header_parameter
from lucius.api.operation import Answer, Operation, json_response
from lucius.api.problems import Problem
from lucius.api.tracing import continue_trace
from lucius.contract.envelope import ENVELOPE, TEXT
from lucius.contract.shapes import SubmittedShape
from lucius.core.trace_context import is_traceparent
from lucius.ports.engine import Submitted


async def orchestrate(context: ApiContext, request: Request, caller: Caller) -> Response:
    envelope = await json_object(request, context.options.max_body_bytes)
    tenant_id = envelope.get("tenant_id")
    if isinstance(tenant_id, str) and not caller.may_act_for(tenant_id):
        raise Problem("TENANT_FORBIDDEN")
    if context.stopping():
        raise Problem("NOT_READY", "the server is stopping and takes no new jobs")
    key = _from_headers(request, envelope)
    continue_trace(envelope)
    return accepted(await context.engine.submit(envelope, idempotency_key=key))


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
        {202: Answer("The job is durable", SubmittedShape, headers={"Location": "The job"})},
        parameters=(
            header_parameter("Idempotency-Key", "Counts as `idempotency_key`", TEXT),
            header_parameter("traceparent", "Counts as `traceparent`, if the body has none"),
            header_parameter("tracestate", "Counts as `tracestate`, with the header `traceparent`"),
            header_parameter(
                "X-Correlation-Id", "Counts as `correlation_id`, if the body has none"
            ),
        ),
        body=ENVELOPE,
        description="The same request again answers with the same job and `duplicate: true`. A field that"
        " nobody knows is kept; `warnings` names those whose name is close to a known one.",
        deprecated=deprecated,
    )


OPERATIONS: Final = (
    _operation("/v1/orchestrate", deprecated=False),
    _operation("/v1/commands", deprecated=True),
)
