"""Listing jobs: filters from the query, bounded to the caller's tenants, with a sealed cursor."""

from dataclasses import replace
from typing import Final

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from lucius.contract.models.base import MayMiss
from lucius.core.job import LIVE_JOB, JobState
from lucius.http.context import ApiContext, Caller
from lucius.http.parameters import (
    FlagParameter,
    Limit,
    MomentParameter,
    StatesParameter,
    WordsParameter,
    job_query,
)
from lucius.http.problems import Problem
from lucius.http.readiness import stuck_among
from lucius.http.routing import json_response
from lucius.http.views import job_view
from lucius.ports.ledger import JobPage, JobQuery, looks_inside

_SEVERAL: Final = "; several with commas, or the parameter several times"


class JobFilters(BaseModel):
    """What a list of jobs can be narrowed by."""

    tenant_id: MayMiss[WordsParameter] = Field(None, description=f"Only these tenants{_SEVERAL}")
    state: MayMiss[StatesParameter] = Field(None, description=f"Only these states{_SEVERAL}")
    request_type: MayMiss[str] = Field(None, description="Only this request type")
    code: MayMiss[WordsParameter] = Field(
        None,
        description="Only jobs of which a step failed with this code, and has not succeeded since"
        f"{_SEVERAL}",
    )
    step: MayMiss[WordsParameter] = Field(
        None, description=f"Only jobs of which this step failed so, or is under way{_SEVERAL}"
    )
    service: MayMiss[WordsParameter] = Field(
        None,
        description=f"Only jobs of which a step of this service failed so, or is under way{_SEVERAL}",
    )
    group: MayMiss[str] = Field(
        None, description="Only jobs of which a step failed as this group of failures did"
    )
    live: FlagParameter = Field(False, description="Only jobs that have not ended")
    stuck: FlagParameter = Field(False, description="Only jobs that do not go on by themselves")
    created_from: MayMiss[MomentParameter] = Field(None, description="Created at or after")
    created_to: MayMiss[MomentParameter] = Field(None, description="Created before")


class JobsQuery(JobFilters):
    """One page of such a list."""

    limit: Limit = Field(50, description="Jobs on a page")
    cursor: MayMiss[str] = Field(
        None, description="`next_cursor` of the page before, with the same filters"
    )


async def list_page(
    context: ApiContext, request: Request, caller: Caller, asked: JobsQuery, *, dlq: bool
) -> Response:
    query = _query(context, asked, caller, dlq=dlq)
    nothing = query.tenant_ids is not None and not query.tenant_ids
    page = JobPage(()) if nothing else await context.engine.jobs(query)
    if asked.stuck:
        stuck = await stuck_among(context, request, page.jobs)
        page = replace(page, jobs=[job for job in page.jobs if job.job_id in stuck])
    return json_response(
        {
            "jobs": [job_view(job, steps=False) for job in page.jobs],
            "next_cursor": _sealed(context, query, page.next_cursor),
        }
    )


def _query(context: ApiContext, asked: JobsQuery, caller: Caller, *, dlq: bool) -> JobQuery:
    query = replace(job_query(asked, caller, _states(asked)), dlq=dlq, limit=asked.limit)
    return replace(query, cursor=_opened(context, query, asked.cursor)) if asked.cursor else query


def _states(asked: JobsQuery) -> frozenset[JobState] | None:
    if not (asked.live or asked.stuck):
        return frozenset(asked.state) if asked.state else None
    return frozenset(state for state in LIVE_JOB if not asked.state or state in asked.state)


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
