"""Ingress: one command in, one durable job out."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Header, Query
from starlette.requests import Request
from starlette.responses import Response

from lucius.contract.models.base import MayMiss
from lucius.contract.models.commands import Command, ShortText, SubmittedView
from lucius.contract.models.jobs import JobView
from lucius.contract.words import MAX_NAME
from lucius.core.errors import RequestError
from lucius.core.ids import is_traceparent
from lucius.http.body import json_object
from lucius.http.context import ApiContext, Caller, Role
from lucius.http.parameters import SecondsParameter, seconds_to_wait
from lucius.http.problems import Problem, header, problems
from lucius.http.routing import Context, KnownCaller, ShortRoute, json_response, needs, waiting
from lucius.http.tracing import continue_trace
from lucius.http.views import etag_of, job_view
from lucius.ports.engine import Submitted

MOST_NAMED: Final = 20
"""Tenants of a caller that a refusal names."""


async def _command(
    body: Command,
    wait_seconds: Annotated[
        SecondsParameter,
        Query(
            description="Wait for the end of the job, at most this many seconds; 202 if it has not ended"
        ),
    ] = 0,
    idempotency_key: Annotated[
        MayMiss[ShortText],
        Header(alias="Idempotency-Key", description="Counts as `idempotency_key`"),
    ] = None,
    traceparent: Annotated[
        MayMiss[str], Header(description="Counts as `traceparent`, if the body has none")
    ] = None,
    tracestate: Annotated[
        MayMiss[str],
        Header(description="Counts as `tracestate`, with the header `traceparent`"),
    ] = None,
    correlation_id: Annotated[
        MayMiss[ShortText],
        Header(
            alias="X-Correlation-Id",
            description="Counts as `correlation_id`, if the body has none",
        ),
    ] = None,
) -> None: ...


_DECLARED: Final[dict[str, Any]] = {
    "summary": "Submit a command",
    "description": "The same request again answers with the same job and `duplicate: true`. A field that"
    " nobody knows is kept; `warnings` names those whose name is close to a known one. With"
    " `wait_seconds`, which needs the role read too, the job is durable long before the answer: whoever"
    " loses the connection repeats the request with its key. A request that has warnings does not wait.",
    "dependencies": [needs(Role.SUBMIT), Depends(_command)],
    "status_code": 202,
    "response_model": SubmittedView,
    "response_description": "The job is durable",
    "responses": {
        202: {"headers": header("Location", "The job")},
        200: {
            "model": JobView,
            "description": "The job has ended, with `wait_seconds`",
            "headers": header("Location", "The job") | header("ETag", "The job's version"),
        },
        **problems(
            "INVALID_ENVELOPE",
            "UNSUPPORTED_SCHEMA_VERSION",
            "UNKNOWN_REQUEST_TYPE",
            "INVALID_PAYLOAD",
            "REFERENCE_INVALID",
            "REFERENCE_HAS_CREDENTIALS",
            "PAYLOAD_HAS_CREDENTIALS",
            "REFERENCE_NOT_ALLOWED",
            "REFERENCE_PROTECTED",
            "DOC_ID_REQUIRED",
            "BURST_NOT_ALLOWED",
            "IDEMPOTENCY_KEY_REUSED",
            "PAYLOAD_TOO_LARGE",
            "TENANT_SATURATED",
            "GLOBAL_SATURATED",
            "LANE_SATURATED",
            "TENANT_FORBIDDEN",
            "TOO_MANY_WAITING",
            "NOT_READY",
        ),
    },
}
router = APIRouter(route_class=ShortRoute, tags=["jobs"])


@router.post("/v1/commands", operation_id="orchestrate_alias", deprecated=True, **_DECLARED)
@router.post("/v1/orchestrate", **_DECLARED)
async def orchestrate(context: Context, request: Request, caller: KnownCaller) -> Response:
    wait = seconds_to_wait(request)
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
        return accepted(await _submitted(context, envelope, key))
    with waiting(context, request, caller):  # before anything is done, as the place may be refused
        submitted = await _submitted(context, envelope, key)
        if submitted.warnings:
            return accepted(submitted)
        async with context.watch.while_it(caller.stands):
            job = await context.engine.ended(submitted.job_id, wait)
    if job is None or not job.terminal:
        return accepted(submitted)
    headers = {"location": f"/v1/jobs/{job.job_id}", "etag": etag_of(job)}
    return json_response(job_view(job), headers=headers)


async def _submitted(context: ApiContext, envelope: dict[str, Any], key: str | None) -> Submitted:
    """A tenant at its limit is told when to come again, by how fast its jobs end."""
    try:
        return await context.engine.submit(envelope, idempotency_key=key)
    except RequestError as error:
        if error.code != "TENANT_SATURATED" or context.refusals is None:
            raise
        pause = context.refusals.saturated(str(envelope["tenant_id"]))
        raise Problem(error.code, error.detail, headers={"retry-after": str(pause)}) from None


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
