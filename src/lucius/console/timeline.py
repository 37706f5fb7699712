"""Where the time of a job went: each attempt as held, waiting for its ACK, running and backing off. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from lucius.core.job import Execution, Job, Step
from lucius.core.plan import StepPlan
from lucius.core.retry import TRACK_OF, backoff
from lucius.core.states import AbortReason, StepState

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
        spans = [*_before(free_at, execution.leased_at)]
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


def _before(free_at: datetime, leased_at: datetime) -> list[Span]:
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
