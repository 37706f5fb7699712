"""The job that a request is about, and the parameters of the routes that read a request themselves."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from starlette.requests import Request

from lucius.api.context import ApiContext, Caller
from lucius.api.parameters import MAX_WAIT, number
from lucius.api.problems import Problem, parameter_problem
from lucius.core.errors import LedgerRowUnreadableError
from lucius.core.job import Job

T = TypeVar("T")
MAX_ID: Final = 256


async def visible_job(context: ApiContext, job_id: str, caller: Caller) -> Job:
    """The job of the path, if the caller may see it. What is not theirs does not exist."""
    job = await job_for(context, job_id, caller)
    if job is None:
        raise Problem("JOB_NOT_FOUND")
    return job


async def job_for(context: ApiContext, job_id: str, caller: Caller) -> Job | None:
    """The job of this id, if there is one that the caller may see."""
    try:
        job = await context.engine.job(job_id) if len(job_id) <= MAX_ID else None
    except LedgerRowUnreadableError as error:
        if error.tenant_id is None or not caller.may_act_for(error.tenant_id):
            return None
        raise
    return job if job is not None and caller.may_act_for(job.tenant_id) else None


def seconds_to_wait(request: Request) -> float:
    """`wait_seconds`, as `parameters.SecondsParameter` reads it."""
    if not request.scope["query_string"]:  # as almost always
        return 0.0
    text = request.query_params.get("wait_seconds")
    if text is None:
        return 0.0
    wait = parameter("wait_seconds", text, number)
    if not 0 <= wait <= MAX_WAIT:
        raise parameter_problem("wait_seconds", f"must be between 0 and {MAX_WAIT}")
    return wait


def bearer(request: Request) -> str | None:
    """The token of `Authorization: Bearer`. By hand: this is on the way of every callback."""
    for name, value in request.scope["headers"]:
        if name == b"authorization":
            scheme, _, token = value.decode("latin-1").partition(" ")
            return token.strip() if scheme.lower() == "bearer" else None
    return None


def parameter(name: str, text: str, read: Callable[[Any], T]) -> T:
    """What a text means, or a problem that names the parameter."""
    try:
        return read(text)
    except ValueError as error:
        raise parameter_problem(name, str(error)) from None
