"""Control of many jobs at once: one order for all that match a filter, after a dry run that counts."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from lucius.api.body import field_problem, json_object, whole_in
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
from lucius.api.context import Caller, Role
from lucius.api.filters import filter_schema, job_filter, wants_stuck
from lucius.api.operation import Answer, Handler, Operation
from lucius.api.orders import REASON, said_by
from lucius.api.routing import Context, KnownCaller, json_response
from lucius.api.stuck import stuck_among
from lucius.contract.shapes import BulkShape, RefusalShape
from lucius.core.bounds import Whole
from lucius.core.inputs import (
    CancelRequested,
    Dismissed,
    PauseRequested,
    ResumeRequested,
    RetryRequested,
)
from lucius.core.job import Job
from lucius.core.states import RUNNING_JOB, TERMINAL_JOB, UNSUCCESSFUL_JOB, JobState
from lucius.ports.engine import Engine
from lucius.ports.ledger import JobQuery

DEFAULT_LIMIT: Final = 10_000
MAX_LIMIT: Final = 100_000
_LIMIT: Final = Whole(1, MAX_LIMIT)
_LIVE: Final = tuple(state for state in JobState if state not in TERMINAL_JOB)
_IMMEDIATE: Final[dict[str, Any]] = {
    "immediate": {
        "type": "boolean",
        "description": "End the jobs now, without waiting for steps that are under way",
    }
}
_PAYLOAD: Final[dict[str, Any]] = {
    "payload": {
        "type": ["object", "null"],
        "description": "Replaces the payload of each job. Jobs that it does not suit are refused.",
    }
}


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

    name: str
    summary: str
    states: tuple[JobState, ...]
    order: Callable[[Engine, OrderOptions], Order]
    default_states: tuple[JobState, ...] = ()
    dead_letters: bool = False
    """Of the failed jobs, only those in the dead-letter view."""
    immediate: bool = False
    """Whether the order can be given as `immediate`."""
    payload: bool = False
    """Whether the order can come with a payload."""

    @property
    def option_properties(self) -> dict[str, Any]:
        """The schema of its options: properties of the body that other orders do not have."""
        return (_IMMEDIATE if self.immediate else {}) | (_PAYLOAD if self.payload else {})

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


VERBS: Final = (
    Verb(
        "cancel",
        "Cancel all jobs that match",
        _LIVE,
        lambda engine, options: order_to_move(
            engine, CancelRequested(immediate=options.immediate, **options.said)
        ),
        default_states=tuple(state for state in _LIVE if state is not JobState.CANCELLING),
        immediate=True,
    ),
    Verb(
        "pause",
        "Pause all jobs that match",
        RUNNING_JOB,
        lambda engine, options: order_to_move(engine, PauseRequested(**options.said)),
    ),
    Verb(
        "resume",
        "Resume all jobs that match",
        (JobState.PAUSING, JobState.PAUSED),
        lambda engine, options: order_to_move(engine, ResumeRequested(**options.said)),
    ),
    Verb(
        "retry",
        "Try again now what waits for its backoff, of all jobs that match",
        (JobState.DISPATCHING, JobState.IN_PROGRESS),
        lambda engine, options: order_to_move(engine, RetryRequested(**options.said)),
    ),
    Verb(
        "redrive",
        "Redrive all failed jobs that match and are neither redriven nor dismissed",
        UNSUCCESSFUL_JOB,
        lambda engine, options: order_to_redrive(engine, options.payload, options.said),
        default_states=(JobState.FAILED_FINAL,),
        dead_letters=True,
        payload=True,
    ),
    Verb(
        "dismiss",
        "Take all failed jobs that match out of the dead-letter view",
        (JobState.FAILED_FINAL,),
        lambda engine, options: order_to_move(engine, Dismissed(**options.said)),
        dead_letters=True,
    ),
)


def _handler(verb: Verb) -> Handler:
    async def handle(context: Context, request: Request, caller: KnownCaller) -> Response:
        body = await json_object(request, context.options.max_body_bytes)
        dry_run, options = _flag(body, "dry_run"), _options(body, verb, caller)
        limit = whole_in(body, "limit", _LIMIT, DEFAULT_LIMIT)
        default_states = () if options.immediate else verb.default_states
        query = job_filter(body, caller, verb.states, default_states or verb.states)
        query = verb.narrowed(query)
        among = partial(stuck_among, context, request) if wants_stuck(body) else None
        if query.tenant_ids is not None and not query.tenant_ids:
            tally = Tally()
        elif dry_run:
            beside = verb.condition_beside(query)
            matched = await count_matching(context.engine, query, beside, among)
            tally = Tally(matched, more=matched > limit)
        else:
            order = verb.order(context.engine, options)
            tally = await order_matching(context.engine, query, verb.accepts, order, limit, among)
        return json_response(_answer(tally, dry_run=dry_run))

    handle.__name__ = f"{verb.name}_many"
    return handle


def _answer(tally: Tally, *, dry_run: bool) -> BulkShape:
    return {
        "dry_run": dry_run,
        "matched": tally.matched,
        "applied": tally.applied,
        "already": tally.already,
        "refused": dict(tally.refused),
        "refusals": [_refusal(job_id, refusal) for job_id, refusal in tally.refusals],
        "more": tally.more,
    }


def _refusal(job_id: str, refusal: Refusal) -> RefusalShape:
    shape: RefusalShape = {"jobId": job_id, "code": refusal.code, "detail": refusal.detail}
    if refusal.faults:
        shape["errors"] = [{"pointer": at, "detail": detail} for at, detail in refusal.faults]
    return shape


def _options(body: dict[str, Any], verb: Verb, caller: Caller) -> OrderOptions:
    payload = body.get("payload") if verb.payload else None
    if payload is not None and not isinstance(payload, dict):
        raise field_problem("/payload", "must be an object")
    immediate = verb.immediate and _flag(body, "immediate")
    return OrderOptions(immediate, payload, said_by(caller, body))


def _flag(body: dict[str, Any], name: str) -> bool:
    value = body.get(name, False)
    if not isinstance(value, bool):
        raise field_problem(f"/{name}", "must be true or false")
    return value


def _schema(verb: Verb) -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["filter"],
        "properties": {
            "filter": filter_schema(verb.states),
            "dry_run": {
                "type": "boolean",
                "description": "Only count all that match, beyond the limit too",
                "default": False,
            },
            "limit": {
                **_LIMIT.schema,
                "default": DEFAULT_LIMIT,
                "description": "At most so many jobs; repeat the request while `more` is true",
            },
            **verb.option_properties,
            **REASON,
        },
    }


OPERATIONS: Final = tuple(
    Operation(
        "POST",
        f"/v1/jobs:{verb.name}",
        _handler(verb),
        verb.summary,
        "control",
        Role.OPERATE,
        {200: Answer("How many jobs matched, and what became of them", BulkShape)},
        body=_schema(verb),
        description=f"Takes jobs that are {', '.join(verb.default_states or verb.states)}. Safe to repeat.",
    )
    for verb in VERBS
)
