"""Replies of services over HTTP: bound to their attempt by a token, then the same input as on the bus."""

from collections.abc import Mapping
from typing import Any, Final

from lucius.api.context import ApiContext
from lucius.api.explain import instant
from lucius.api.faults import read_as
from lucius.api.problems import Problem
from lucius.api.tokens import Binding
from lucius.api.tracing import applying_here
from lucius.contract.models.base import JsonObject
from lucius.contract.models.messages import (
    AckMessage,
    HeartbeatMessage,
    ReleaseMessage,
    ReplyMessage,
    ResultMessage,
)
from lucius.core.effects import Outcome
from lucius.core.inputs import Callback, HeartbeatReceived
from lucius.core.wire import parse_reply
from lucius.ports.engine import Applied

_MODELS: Final[dict[str, type[ReplyMessage]]] = {
    "ACK": AckMessage,
    "RESULT": ResultMessage,
    "HEARTBEAT": HeartbeatMessage,
    "RELEASE": ReleaseMessage,
}
"""The core reads what it needs of a reply, and lets the rest be; over HTTP all that is published holds."""


def proven(context: ApiContext, token: str | None) -> Binding:
    """What a token opens. Raises where LUCIUS did not make it: nothing else of the reply is looked at."""
    if not token:
        raise _refused("CALLBACK_TOKEN_REQUIRED")
    bound = context.tokens.opened(token)
    if bound is None:
        raise _refused("CALLBACK_TOKEN_INVALID")
    return bound


async def take_reply(
    context: ApiContext, body: Mapping[str, Any], bound: Binding, kind: str | None
) -> tuple[Callback, Applied]:
    """Hold the reply against its token, then move the job. Raises a problem where nothing was recorded."""
    job_id, received = parse_reply(body, kind)
    read_as(_MODELS[str(body.get("type") or kind).upper()], body, "INVALID_CALLBACK")
    attempt = (job_id, received.step_id, received.attempt_no, received.lease_id)
    tenant_id = bound.tenant_id
    if attempt != bound[1:] or body.get("tenant_id", tenant_id) != tenant_id:
        raise _refused("CALLBACK_TOKEN_INVALID")
    job = await context.engine.job(job_id)
    if job is not None and job.tenant_id != tenant_id:
        raise _refused("CALLBACK_TOKEN_INVALID")
    if job is None:
        raise Problem("JOB_NOT_FOUND")
    with applying_here(body, received, job, alone=kind is not None):
        applied = await context.engine.apply(job_id, received)
    if applied is None:
        raise Problem("JOB_NOT_FOUND")
    if applied.outcome is Outcome.STALE:
        raise Problem("STALE_ATTEMPT")
    if applied.outcome is Outcome.REJECTED:
        raise Problem("UNKNOWN_STEP")
    return received, applied


def answer(received: Callback, applied: Applied) -> JsonObject:
    """`applied`, `duplicate` or `late`; a heartbeat also learns of its lease and of a cancel."""
    content: JsonObject = {"outcome": applied.outcome.value}
    if isinstance(received, HeartbeatReceived):
        job = applied.job
        index = job.plan.index_of(received.step_id)
        execution = job.steps[index].execution if index is not None else None
        expires_at = execution.lease_expires_at if execution is not None else None
        content["lease_expires_at"] = instant(expires_at) if expires_at is not None else None
        content["cancel_requested"] = job.cancel_requested_at is not None or job.terminal
    return content


def _refused(code: str) -> Problem:
    return Problem(code, headers={"www-authenticate": 'Bearer realm="callbacks"'})
