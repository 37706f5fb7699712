"""Control of many jobs at once: one order for all that match a filter, after a dry run that counts."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from lucius.contract.models.base import JsonObject
from lucius.contract.models.control import (
    BulkBody,
    BulkView,
    CancelManyBody,
    DismissManyBody,
    JobFilter,
    PauseManyBody,
    RedriveManyBody,
    ResumeManyBody,
    RetryManyBody,
)
from lucius.core.effects import Outcome
from lucius.core.errors import RequestError
from lucius.core.inputs import (
    CancelRequested,
    Dismissed,
    Input,
    PauseRequested,
    ResumeRequested,
    RetryRequested,
)
from lucius.core.job import LIVE_JOB, RUNNING_JOB, UNSUCCESSFUL_JOB, Job, JobState
from lucius.http.context import ApiContext, Caller, Role
from lucius.http.parameters import audit_fields, job_filter
from lucius.http.problems import problems
from lucius.http.readiness import stuck_among
from lucius.http.routing import ApiRoute, Context, KnownCaller, json_response, needs
from lucius.http.views import picked
from lucius.ports.engine import Engine
from lucius.ports.ledger import JobQuery

# One order for many jobs: page by page, a bounded number at once, counted by outcome.
#
# Each job gets the order on its own. A run that breaks off has lost nothing: repeat it, and it goes on
# where it stopped, because jobs that were moved no longer match.

PAGE_SIZE: Final = 500
JOBS_AT_ONCE: Final = 64
MAX_LISTED_REFUSALS: Final = 100
"""Refusals beyond these are counted, not listed."""

Condition = Callable[[Job], bool]
Among = Callable[[Sequence[Job]], Awaitable[Collection[str]]]
"""Of the jobs of a page, the ids of those that are meant."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """What one job answered to an order that it does not take."""

    code: str
    detail: str
    faults: Sequence[tuple[str, str]] = ()


Order = Callable[[str], Awaitable[Outcome | Refusal]]
"""Given to one job by its id; answers `APPLIED`, `ALREADY`, or a refusal."""


@dataclass(slots=True)
class Tally:
    """`more`: the limit was reached while jobs were left that match."""

    matched: int = 0
    applied: int = 0
    already: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    refusals: list[tuple[str, Refusal]] = field(default_factory=list)
    """The first of them, each with the id of its job."""
    more: bool = False

    def add(self, job_id: str, answer: Outcome | Refusal) -> None:
        if isinstance(answer, Refusal):
            self.refused[answer.code] += 1
            if len(self.refusals) < MAX_LISTED_REFUSALS:
                self.refusals.append((job_id, answer))
        elif answer is Outcome.APPLIED:
            self.applied += 1
        else:
            self.already += 1


async def order_matching(
    engine: Engine,
    query: JobQuery,
    accepts: Condition,
    order: Order,
    limit: int,
    among: Among | None = None,
) -> Tally:
    """Give the order to at most `limit` jobs that match the query and that `accepts` takes."""
    tally, slots = Tally(), asyncio.Semaphore(JOBS_AT_ONCE)

    async def order_one(job_id: str) -> None:
        async with slots:
            tally.add(job_id, await order(job_id))

    async for found in _matching_ids(engine, query, accepts, among):
        page = found[: limit - tally.matched]
        tally.matched += len(page)
        await asyncio.gather(*map(order_one, page))
        if len(page) < len(found):
            tally.more = True
            break
    return tally


async def count_matching(
    engine: Engine, query: JobQuery, accepts: Condition | None, among: Among | None = None
) -> int:
    """All jobs that match, without a limit. With `accepts` or `among`, each job is loaded and asked."""
    if accepts is None and among is None:
        return await engine.count(query)
    each = accepts or (lambda job: True)
    return sum([len(found) async for found in _matching_ids(engine, query, each, among)])


async def _matching_ids(
    engine: Engine, query: JobQuery, accepts: Condition, among: Among | None
) -> AsyncIterator[Sequence[str]]:
    """The ids of matching jobs in pages, newest first. Jobs that move meanwhile do not disturb the cursor."""
    cursor: str | None = None
    while True:
        page = await engine.jobs(replace(query, limit=PAGE_SIZE, cursor=cursor))
        jobs = [job for job in page.jobs if accepts(job)]
        kept = await among(jobs) if among is not None else None
        yield [job.job_id for job in jobs if kept is None or job.job_id in kept]
        cursor = page.next_cursor
        if cursor is None:
            return


def order_to_move(engine: Engine, received: Input) -> Order:
    """Cancel, pause, resume, retry, dismiss: one input for each job."""

    async def order(job_id: str) -> Outcome | Refusal:
        applied = await engine.apply(job_id, received)
        if applied is None:
            return Refusal("JOB_NOT_FOUND", "the job is gone")
        if applied.outcome is Outcome.REJECTED:
            return Refusal(applied.code or "CONFLICT", f"the job is {applied.job.state.value}")
        return applied.outcome

    return order


def order_to_redrive(
    engine: Engine,
    payload: Mapping[str, Any] | None = None,
    audit: Mapping[str, str] | None = None,
) -> Order:
    """A new job for each, with the payload that it has, or with this one if it suits the job."""

    async def order(job_id: str) -> Outcome | Refusal:
        try:
            submitted = await engine.redrive(job_id, payload=payload, audit=audit)
        except RequestError as error:
            return Refusal(error.code, error.detail, error.faults)
        return Outcome.ALREADY if submitted.duplicate else Outcome.APPLIED

    return order


router = APIRouter(route_class=ApiRoute, tags=["control"])


@dataclass(frozen=True, slots=True)
class OrderOptions:
    """What the body of an order says besides the filter."""

    immediate: bool = False
    payload: dict[str, Any] | None = None
    audit: dict[str, str] = field(default_factory=dict)
    """Who gives the order, and why."""


@dataclass(frozen=True, slots=True)
class Verb:
    """`states`: those that the order can move. `default_states`: those that it moves where the filter
    names none; without them, all of `states`.
    """

    states: tuple[JobState, ...]
    order: Callable[[Engine, OrderOptions], Order]
    default_states: tuple[JobState, ...] = ()
    dead_letters: bool = False
    """Of the failed jobs, only those in the dead-letter view."""

    def accepts(self, job: Job) -> bool:
        """Whether the order can move this job. Jobs move while pages are read, so each is asked again."""
        if job.state is JobState.FAILED_FINAL and self.dead_letters:
            return job.in_dlq
        return job.state in self.states and job.redriven_by is None

    def narrowed(self, query: JobQuery) -> JobQuery:
        """Where only failed jobs are meant, ask the ledger for the dead-letter view instead."""
        only_failed = self.dead_letters and query.states == {JobState.FAILED_FINAL}
        return replace(query, states=None, dlq=True) if only_failed else query

    def condition_beside(self, query: JobQuery) -> Condition | None:
        """What this query cannot say, if anything: whether a cancelled job was redriven already."""
        cancelled = query.states is not None and JobState.CANCELLED in query.states
        return self.accepts if cancelled else None


CANCEL: Final = Verb(
    LIVE_JOB,
    lambda engine, options: order_to_move(
        engine, CancelRequested(immediate=options.immediate, **options.audit)
    ),
    default_states=tuple(state for state in LIVE_JOB if state is not JobState.CANCELLING),
)
PAUSE: Final = Verb(
    RUNNING_JOB,
    lambda engine, options: order_to_move(engine, PauseRequested(**options.audit)),
)
RESUME: Final = Verb(
    (JobState.PAUSING, JobState.PAUSED),
    lambda engine, options: order_to_move(engine, ResumeRequested(**options.audit)),
)
RETRY: Final = Verb(
    (JobState.DISPATCHING, JobState.IN_PROGRESS),
    lambda engine, options: order_to_move(engine, RetryRequested(**options.audit)),
)
REDRIVE: Final = Verb(
    UNSUCCESSFUL_JOB,
    lambda engine, options: order_to_redrive(engine, options.payload, options.audit),
    default_states=(JobState.FAILED_FINAL,),
    dead_letters=True,
)
DISMISS: Final = Verb(
    (JobState.FAILED_FINAL,),
    lambda engine, options: order_to_move(engine, Dismissed(**options.audit)),
    dead_letters=True,
)


def _declared(verb: Verb, summary: str) -> dict[str, Any]:
    """What the routes of all verbs have in common."""
    states = ", ".join(verb.default_states or verb.states)
    return {
        "summary": summary,
        "description": f"Takes jobs that are {states}. Safe to repeat.",
        "dependencies": [needs(Role.OPERATE)],
        "response_model": BulkView,
        "response_description": "How many jobs matched, and what became of them",
        "responses": problems("NOT_SUPPORTED"),
    }


@router.post("/v1/jobs:cancel", **_declared(CANCEL, "Cancel all jobs that match"))
async def cancel_many(
    context: Context, request: Request, caller: KnownCaller, body: CancelManyBody
) -> Response:
    options = OrderOptions(body.immediate, audit=audit_fields(caller, body))
    states = CANCEL.states if body.immediate else CANCEL.default_states
    query = job_filter(body.filter, caller, states)
    return await _ordered(context, request, CANCEL, options, body, query, body.filter)


@router.post("/v1/jobs:pause", **_declared(PAUSE, "Pause all jobs that match"))
async def pause_many(
    context: Context, request: Request, caller: KnownCaller, body: PauseManyBody
) -> Response:
    return await _plainly(context, request, caller, PAUSE, body, body.filter)


@router.post("/v1/jobs:resume", **_declared(RESUME, "Resume all jobs that match"))
async def resume_many(
    context: Context, request: Request, caller: KnownCaller, body: ResumeManyBody
) -> Response:
    return await _plainly(context, request, caller, RESUME, body, body.filter)


@router.post(
    "/v1/jobs:retry",
    **_declared(RETRY, "Try again now what waits for its backoff, of all jobs that match"),
)
async def retry_many(
    context: Context, request: Request, caller: KnownCaller, body: RetryManyBody
) -> Response:
    return await _plainly(context, request, caller, RETRY, body, body.filter)


@router.post(
    "/v1/jobs:redrive",
    **_declared(
        REDRIVE, "Redrive all failed jobs that match and are neither redriven nor dismissed"
    ),
)
async def redrive_many(
    context: Context, request: Request, caller: KnownCaller, body: RedriveManyBody
) -> Response:
    options = OrderOptions(payload=body.payload, audit=audit_fields(caller, body))
    query = job_filter(body.filter, caller, REDRIVE.default_states)
    return await _ordered(context, request, REDRIVE, options, body, query, body.filter)


@router.post(
    "/v1/jobs:dismiss",
    **_declared(DISMISS, "Take all failed jobs that match out of the dead-letter view"),
)
async def dismiss_many(
    context: Context, request: Request, caller: KnownCaller, body: DismissManyBody
) -> Response:
    return await _plainly(context, request, caller, DISMISS, body, body.filter)


async def _plainly(
    context: ApiContext,
    request: Request,
    caller: Caller,
    verb: Verb,
    body: BulkBody,
    given: JobFilter,
) -> Response:
    options = OrderOptions(audit=audit_fields(caller, body))
    query = job_filter(given, caller, verb.states)
    return await _ordered(context, request, verb, options, body, query, given)


async def _ordered(
    context: ApiContext,
    request: Request,
    verb: Verb,
    options: OrderOptions,
    body: BulkBody,
    query: JobQuery,
    given: JobFilter,
) -> Response:
    query = verb.narrowed(query)
    among = partial(stuck_among, context, request) if getattr(given, "stuck", False) else None
    if query.tenant_ids is not None and not query.tenant_ids:
        tally = Tally()
    elif body.dry_run:
        beside = verb.condition_beside(query)
        matched = await count_matching(context.engine, query, beside, among)
        tally = Tally(matched, more=matched > body.limit)
    else:
        order = verb.order(context.engine, options)
        tally = await order_matching(context.engine, query, verb.accepts, order, body.limit, among)
    return json_response(_answer(tally, dry_run=body.dry_run))


def _answer(tally: Tally, *, dry_run: bool) -> JsonObject:
    refusals = [_refusal(job_id, refusal) for job_id, refusal in tally.refusals]
    return picked(BulkView, tally, dry_run=dry_run, refusals=refusals)


def _refusal(job_id: str, refusal: Refusal) -> JsonObject:
    view: JsonObject = {"jobId": job_id, "code": refusal.code, "detail": refusal.detail}
    if refusal.faults:
        view["errors"] = [{"pointer": at, "detail": detail} for at, detail in refusal.faults]
    return view
