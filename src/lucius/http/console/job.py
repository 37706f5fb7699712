"""One job: why it is where it is, where its time went, its attempts and events, and its orders."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from lucius.core.effects import Event
from lucius.core.job import AbortReason, Execution, Job, Step, StepState
from lucius.core.plan import StepPlan
from lucius.core.retry import TRACK_OF, backoff
from lucius.http.console.live import looks_at, streamed
from lucius.http.console.orders import BULK_VERBS, JOB_ORDERS, base_of, just_given
from lucius.http.console.site import HEADERS, Pages, Site
from lucius.http.context import ApiContext, Caller
from lucius.http.parameters import MAX_SEQ, digits, parameter, visible_job
from lucius.http.problems import parameter_problem
from lucius.http.routing import Context, KnownCaller
from lucius.http.views import event_view, job_view
from lucius.ports.engine import Engine

# Where the time of a job went: each attempt as held, waiting for its ACK, running and backing off. Pure.

WIDTH: Final = 1000.0
"""Units of the whole time line."""
LEAST: Final = 3.0
"""Units of a span that would be too short to be seen."""


class Spent(StrEnum):
    HELD = "held"
    """For room in the dispatch window."""
    ACK = "ack"
    """Out, and no service has taken it."""
    RUNNING = "running"
    BACKOFF = "backoff"


_REPEATED: Final = (AbortReason.RETURNED, AbortReason.PROCESS_DIED)
"""Such an attempt is repeated at once."""


@dataclass(frozen=True, slots=True)
class Span:
    spent: Spent
    start: datetime
    end: datetime

    @property
    def seconds(self) -> timedelta:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Row:
    """One attempt; `execution` is None for one that has not begun."""

    step_id: str
    service: str
    attempt_no: int
    execution: Execution | None
    spans: tuple[Span, ...]

    def total(self, spent: str) -> timedelta | None:
        found = [span.seconds for span in self.spans if span.spent == spent]
        return sum(found, timedelta()) if found else None


@dataclass(frozen=True, slots=True)
class Bar:
    spent: str
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class Timeline:
    start: datetime
    end: datetime
    rows: tuple[Row, ...]

    def bars(self, row: Row) -> list[Bar]:
        whole = max((self.end - self.start).total_seconds(), 0.001)
        bars = []
        for span in row.spans:
            x = (span.start - self.start).total_seconds() / whole * WIDTH
            width = max(span.seconds.total_seconds() / whole * WIDTH, LEAST)
            bars.append(Bar(span.spent.value, round(min(x, WIDTH - LEAST), 1), round(width, 1)))
        return bars


def timeline(job: Job, now: datetime) -> Timeline:
    end = job.completed_at or max(now, job.updated_at)
    rows = [row for index in range(len(job.steps)) for row in _rows(job, index, end)]
    return Timeline(job.plan.accepted_at, end, tuple(rows))


def _rows(job: Job, index: int, end: datetime) -> Iterator[Row]:
    planned, step = job.plan.steps[index], job.steps[index]
    attempts = [execution for execution in step.executions if execution.attempt_no > 0]
    free_at = _wanted_at(job, planned)
    for number, execution in enumerate(attempts):
        spans = [*_waiting_spans(free_at, execution.leased_at)]
        spans += _of_attempt(execution, end)
        ended = execution.finished_at
        if ended is not None and (pause := _pause(planned, execution, step, attempts, number)):
            later = attempts[number + 1].leased_at if number + 1 < len(attempts) else end
            spans.append(Span(Spent.BACKOFF, ended, min(ended + pause, max(later, ended))))
            ended = spans[-1].end
        free_at = ended or end
        yield _row(planned, execution.attempt_no, execution, spans)
    if step.held and step.entry is not None:
        since = max(step.entry.created_at, step.entry.ready_at or step.entry.created_at)
        held = [Span(Spent.HELD, since, end)] if since < end else []
        yield _row(planned, step.entry.attempt_no, None, held)


def _row(planned: StepPlan, attempt_no: int, execution: Execution | None, spans: list[Span]) -> Row:
    return Row(planned.step_id, planned.service, attempt_no, execution, tuple(spans))


def _wanted_at(job: Job, planned: StepPlan) -> datetime:
    """When the step could begin: once the stages before it were done."""
    done = [
        step.completed_at
        for other, step in zip(job.plan.steps, job.steps, strict=True)
        if other.stage < planned.stage and step.completed_at is not None
    ]
    return max(done, default=job.plan.accepted_at)


def _waiting_spans(free_at: datetime, leased_at: datetime) -> list[Span]:
    return [Span(Spent.HELD, free_at, leased_at)] if free_at < leased_at else []


def _of_attempt(execution: Execution, end: datetime) -> list[Span]:
    until = execution.finished_at or end
    if execution.started_at is None:
        return [Span(Spent.ACK, execution.leased_at, max(until, execution.leased_at))]
    return [
        Span(Spent.ACK, execution.leased_at, execution.started_at),
        Span(Spent.RUNNING, execution.started_at, max(until, execution.started_at)),
    ]


def _pause(
    planned: StepPlan, execution: Execution, step: Step, attempts: list[Execution], number: int
) -> timedelta | None:
    """How long it was to wait after this attempt; None if nothing follows by itself."""
    last = number + 1 == len(attempts)
    if last and step.state is StepState.FAILED_RETRY and step.retry_at is not None:
        return step.retry_at - (execution.finished_at or step.retry_at)
    reason = execution.reason
    track = TRACK_OF.get(reason) if reason is not None and reason not in _REPEATED else None
    if track is None or execution.final or (last and not step.held):
        return None
    return backoff(planned.policy, track, max(execution.attempt_no, 1))


EVENTS: Final = 100
"""Events on a page."""
SCANNED: Final = 10_000
"""Events that one page with a filter looks at, at most."""
_PORTION: Final = 500


async def _asked(q: str = "", before: str = "", done: str = "") -> None:
    """Only events that contain this, or are before this `seq`; and the order that was just given."""


class OneJob:
    def __init__(self, site: Site) -> None:
        self._site = site

    async def job(self, context: Context, request: Request, caller: KnownCaller) -> Response:
        return await self._site.pulse.page(self._job(context, request, caller))

    async def _job(self, context: Context, request: Request, caller: KnownCaller) -> Response:
        job = await visible_job(context, request.path_params["jobId"], caller)
        path = {"jobId": job.job_id}
        why = await self._site.api.ask_if_may(request, caller, "why_job", path)
        events = await self._events(context, request, job)
        return self._site.page(
            request,
            caller,
            "job.html",
            job=job_view(job),
            why=why,
            timeline=timeline(job, self._site.now()),
            orders=self._orders(request, caller, job),
            done=just_given(request, BULK_VERBS),
            seq=job.seq,
            traced=(job.plan.traceparent or "").split("-")[1:2],
            **events,
        )

    async def _events(self, context: ApiContext, request: Request, job: Job) -> dict[str, Any]:
        before = _before(request, job.seq + 1)
        wanted = request.query_params.get("q", "").strip()
        found, reached = await newest(context.engine, job, before, wanted)
        return {
            "events": [event_view(job.job_id, event) for event in found],
            "older": reached if reached > 1 else None,
            "newest": before > job.seq,
            "wanted": wanted,
        }

    def _orders(self, request: Request, caller: Caller, job: Job) -> list[dict[str, Any]]:
        """Those that the caller may give and the job could take."""
        base, signs_in = base_of(self._site, request), self._site.signs_in
        return [
            {
                "order": order,
                "shell": order.shell(base, job.job_id),
                "curl": order.curl(base, job.job_id, signs_in=signs_in),
                "reason": self._site.api.takes(order.asks, "reason"),
            }
            for order in JOB_ORDERS
            if self._site.api.may(caller, order.asks) and order.suits(job)
        ]

    async def job_live(self, context: Context, request: Request, caller: KnownCaller) -> Response:
        """204 tells a browser that there is nothing more to come back for."""
        job, pulse = (
            await visible_job(context, request.path_params["jobId"], caller),
            self._site.pulse,
        )
        if job.terminal:
            return Response(status_code=204, headers=dict(HEADERS))
        return streamed(
            context, request, caller, lambda stands: looks_at(pulse, context, job, stands)
        )

    def add_to(self, pages: Pages) -> None:
        pages.add("GET", "/jobs/{jobId}", self.job, takes=_asked)
        pages.add("GET", "/jobs/{jobId}/live", self.job_live)


def _before(request: Request, otherwise: int) -> int:
    text = request.query_params.get("before")
    if text is None:
        return otherwise
    before = parameter("before", text, digits)
    if not 1 <= before <= MAX_SEQ:
        raise parameter_problem("before", f"must be between 1 and {MAX_SEQ}")
    return before


async def newest(engine: Engine, job: Job, before: int, wanted: str) -> tuple[Sequence[Event], int]:
    """The last events before that one, the newest first, and the `seq` of where to go on.

    With a filter, so many are looked at as there are on a page that shows them all, and no more than
    a bounded number.
    """
    found: list[Event] = []
    top, scanned = min(before, job.seq + 1), 0
    portion = _PORTION if wanted else EVENTS
    while top > 1 and len(found) < EVENTS and scanned < SCANNED:
        after = max(0, top - 1 - portion)
        events = await engine.events(job.job_id, after, top - 1 - after)
        scanned += portion
        for event in reversed(events):
            if event.seq < top and (not wanted or _contains(event, wanted)):
                found.append(event)
                if len(found) == EVENTS:
                    return found, event.seq
        top = after + 1
    return found, top


def _contains(event: Event, wanted: str) -> bool:
    texts = (event.type, event.step_id or "", event.lease_id or "", *event.moves, str(event.data))
    return any(wanted.lower() in text.lower() for text in texts)
