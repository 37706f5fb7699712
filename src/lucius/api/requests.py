"""Reading path, query and headers: a value of the right kind, or a problem that names the parameter."""

from datetime import MINYEAR, UTC, datetime
from typing import Final

from starlette.requests import Request

from lucius.api.context import ApiContext, Caller
from lucius.api.problems import Problem, parameter_problem
from lucius.core.errors import LedgerRowUnreadableError
from lucius.core.job import Job

MAX_ID: Final = 256
_TRUE: Final = frozenset(("true", "1", "yes"))
_FALSE: Final = frozenset(("false", "0", "no"))


async def visible_job(context: ApiContext, request: Request, caller: Caller) -> Job:
    """The job of the path, if the caller may see it. What is not theirs does not exist."""
    job = await job_for(context, request.path_params["jobId"], caller)
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


def whole(request: Request, name: str, default: int, low: int, high: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(text) > 18:
        raise parameter_problem(name, "must be a whole number")
    if not low <= int(text) <= high:
        raise parameter_problem(name, f"must be between {low} and {high}")
    return int(text)


def seconds(request: Request, name: str, high: float) -> float:
    text = request.query_params.get(name)
    if text is None:
        return 0.0
    try:
        value = float(text) if text.isascii() else -1.0
    except ValueError:
        raise parameter_problem(name, "must be a number of seconds") from None
    if not 0 <= value <= high:
        raise parameter_problem(name, f"must be between 0 and {high:g}")
    return value


def flag(request: Request, name: str) -> bool:
    text = request.query_params.get(name, "false").lower()
    if text not in _TRUE and text not in _FALSE:
        raise parameter_problem(name, "must be true or false")
    return text in _TRUE


def moment(request: Request, name: str) -> datetime | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    try:
        return utc(text.replace(" ", "+"))
    except ValueError:
        raise parameter_problem(name, "must be an RFC 3339 instant") from None


def utc(text: str) -> datetime:
    """An instant with or without its zone. What lies beyond the calendar is its first or last moment."""
    at = datetime.fromisoformat(text)
    try:
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except OverflowError:
        edge = datetime.min if at.year == MINYEAR else datetime.max
        return edge.replace(tzinfo=UTC)


def words(request: Request, name: str) -> list[str]:
    """A filter given several times, or once with commas. One that is there but empty is refused."""
    given = request.query_params.getlist(name)
    found = [word.strip() for text in given for word in text.split(",") if word.strip()]
    if given and not found:
        raise parameter_problem(name, "must not be empty")
    return found
