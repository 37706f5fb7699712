"""Control of many jobs at once: one order for all that match a filter, after a dry run that counts."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from lucius.api.bulk_orders import (
    Condition,
    Order,
    Refusal,
    Tally,
    count_matching,
    order_matching,
    order_to_move,
    order_to_redrive,
)
from lucius.api.context import ApiContext, Caller, Role
from lucius.api.declared import problems
from lucius.api.filters import job_filter
from lucius.api.orders import said_by
from lucius.api.routing import ApiRoute, Context, KnownCaller, json_response, needs
from lucius.api.stuck import stuck_among
from lucius.api.views import picked
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
from lucius.core.inputs import (
    CancelRequested,
    Dismissed,
    PauseRequested,
    ResumeRequested,
    RetryRequested,
)
from lucius.core.job import Job
from lucius.core.states import LIVE_JOB, RUNNING_JOB, UNSUCCESSFUL_JOB, JobState
from lucius.ports.engine import Engine
from lucius.ports.ledger import JobQuery

router = APIRouter(route_class=ApiRoute, tags=["control"])


@dataclass(frozen=True, slots=True)
class OrderOptions:
    """What the body of an order says besides the filter."""

    immediate: bool = False
    payload: dict[str, Any] | None = None
    said: dict[str, str] = field(default_factory=dict)
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
        engine, CancelRequested(immediate=options.immediate, **options.said)
    ),
    default_states=tuple(state for state in LIVE_JOB if state is not JobState.CANCELLING),
)
PAUSE: Final = Verb(
    RUNNING_JOB,
    lambda engine, options: order_to_move(engine, PauseRequested(**options.said)),
)
RESUME: Final = Verb(
    (JobState.PAUSING, JobState.PAUSED),
    lambda engine, options: order_to_move(engine, ResumeRequested(**options.said)),
)
RETRY: Final = Verb(
    (JobState.DISPATCHING, JobState.IN_PROGRESS),
    lambda engine, options: order_to_move(engine, RetryRequested(**options.said)),
)
REDRIVE: Final = Verb(
    UNSUCCESSFUL_JOB,
    lambda engine, options: order_to_redrive(engine, options.payload, options.said),
    default_states=(JobState.FAILED_FINAL,),
    dead_letters=True,
)
DISMISS: Final = Verb(
    (JobState.FAILED_FINAL,),
    lambda engine, options: order_to_move(engine, Dismissed(**options.said)),
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
    options = OrderOptions(body.immediate, said=said_by(caller, body))
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
    options = OrderOptions(payload=body.payload, said=said_by(caller, body))
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
    options = OrderOptions(said=said_by(caller, body))
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
