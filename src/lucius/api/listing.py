"""Listing jobs: filters from the query, bounded to the caller's tenants, with a sealed cursor."""

from dataclasses import replace
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from lucius.api.context import ApiContext, Caller
from lucius.api.openapi import query_parameter
from lucius.api.problems import Problem, parameter_problem
from lucius.api.queries import REPEATABLE
from lucius.api.requests import flag, moment, whole, words
from lucius.api.routing import json_response
from lucius.api.stuck import stuck_among
from lucius.api.views import job_view
from lucius.contract.shapes import JobsShape
from lucius.core.idempotency import normal_request_type
from lucius.core.states import LIVE_JOB, JobState
from lucius.ports.ledger import JobPage, JobQuery, looks_inside

_DEFAULT_PAGE: Final = 50
_INSTANT: Final[dict[str, Any]] = {"type": "string", "format": "date-time"}
_STATES: Final = "|".join(JobState)
PARAMETERS: Final = (
    query_parameter(
        "tenant_id",
        "Only these tenants; several with commas, or the parameter several times",
        {"type": "string", "pattern": r"[^,\s]"},
    )
    | {REPEATABLE: True},
    query_parameter(
        "state",
        "Only these states; several with commas, or the parameter several times",
        {"type": "string", "pattern": f"^({_STATES})(,({_STATES}))*$"},
    )
    | {REPEATABLE: True},
    query_parameter("request_type", "Only this request type"),
    *(
        query_parameter(
            name,
            f"{about}; several with commas, or the parameter several times",
            {"type": "string", "pattern": r"[^,\s]"},
        )
        | {REPEATABLE: True}
        for name, about in (
            (
                "code",
                "Only jobs of which a step failed with this code, and has not succeeded since",
            ),
            ("step", "Only jobs of which this step failed so, or is under way"),
            ("service", "Only jobs of which a step of this service failed so, or is under way"),
        )
    ),
    query_parameter("group", "Only jobs of which a step failed as this group of failures did"),
    query_parameter("live", "Only jobs that have not ended", {"type": "boolean"}),
    query_parameter("stuck", "Only jobs that do not go on by themselves", {"type": "boolean"}),
    query_parameter("created_from", "Created at or after", _INSTANT),
    query_parameter("created_to", "Created before", _INSTANT),
    query_parameter(
        "limit",
        "Jobs on a page",
        {"type": "integer", "minimum": 1, "maximum": 500, "default": _DEFAULT_PAGE},
    ),
    query_parameter("cursor", "`next_cursor` of the page before, with the same filters"),
)


async def list_page(
    context: ApiContext, request: Request, caller: Caller, *, dlq: bool
) -> Response:
    query = _query(context, request, caller, dlq=dlq)
    nothing = query.tenant_ids is not None and not query.tenant_ids
    page = JobPage(()) if nothing else await context.engine.jobs(query)
    if flag(request, "stuck"):
        stuck = await stuck_among(context, request, page.jobs)
        page = replace(page, jobs=[job for job in page.jobs if job.job_id in stuck])
    answer: JobsShape = {
        "jobs": [job_view(job, steps=False) for job in page.jobs],
        "next_cursor": _sealed(context, query, page.next_cursor),
    }
    return json_response(answer)


def _query(context: ApiContext, request: Request, caller: Caller, *, dlq: bool) -> JobQuery:
    request_type = request.query_params.get("request_type")
    query = JobQuery(
        tenant_ids=_tenants(request, caller),
        states=_states(request, live=flag(request, "live") or flag(request, "stuck")),
        request_type=normal_request_type(request_type) if request_type else None,
        created_from=moment(request, "created_from"),
        created_to=moment(request, "created_to"),
        dlq=dlq,
        codes=_words(request, "code"),
        steps=_words(request, "step"),
        services=_words(request, "service"),
        group=request.query_params.get("group"),
        limit=whole(request, "limit", _DEFAULT_PAGE, 1, context.options.max_page),
    )
    cursor = request.query_params.get("cursor")
    return replace(query, cursor=_opened(context, query, cursor)) if cursor else query


def _tenants(request: Request, caller: Caller) -> frozenset[str] | None:
    asked = frozenset(words(request, "tenant_id"))
    if caller.tenants is None:
        return asked or None
    return asked & caller.tenants if asked else caller.tenants


def _words(request: Request, name: str) -> frozenset[str] | None:
    return frozenset(words(request, name)) or None


def _states(request: Request, *, live: bool) -> frozenset[JobState] | None:
    asked = {word.upper() for word in words(request, "state")}
    unknown = asked - set(JobState)
    if unknown:
        raise parameter_problem("state", f"must be one of {', '.join(JobState)}")
    if not live:
        return frozenset(JobState(word) for word in asked) or None
    return frozenset(state for state in LIVE_JOB if not asked or state in asked)


def _filters(query: JobQuery) -> str:
    """What a cursor is bound to: everything but where it stands and how much is asked for."""
    tenants = sorted(query.tenant_ids) if query.tenant_ids is not None else None
    states = sorted(query.states) if query.states is not None else None
    span = (query.created_from, query.created_to)
    plain = (tenants, states, query.request_type, span, query.dlq)
    inside = [sorted(each or ()) for each in (query.codes, query.steps, query.services)]
    return repr((*plain, inside, query.group) if looks_inside(query) else plain)


def _sealed(context: ApiContext, query: JobQuery, cursor: str | None) -> str | None:
    if cursor is None:
        return None
    return f"{context.tokens.seal(_filters(query) + cursor)}.{cursor}"


def _opened(context: ApiContext, query: JobQuery, given: str) -> str:
    seal, _, cursor = given.partition(".")
    if not seal.isascii() or not context.tokens.sealed(_filters(query) + cursor, seal):
        raise Problem("INVALID_CURSOR")
    return cursor
