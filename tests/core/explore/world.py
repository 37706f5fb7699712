"""A world, and the catalogue of jobs that worlds point into: jobs equal but for the clock are one."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, TypeVar

from lucius.core.effects import Effect
from lucius.core.inputs import Callback
from lucius.core.job import Entry, EntryState, Execution, ExecutionState, Job, Owed, Step, StepState
from lucius.core.record import copied
from lucius.core.retry import PUBLISH_GRACE

NOW: Final = datetime(2030, 1, 1, tzinfo=UTC)
LATER: Final = NOW + timedelta(days=1)
STALE: Final = -1
"""A copy of the job that somebody else has overtaken: any such copy is as good as any other."""


class Lease(NamedTuple):
    step_id: str
    attempt_no: int
    lease_id: str


class Actor(NamedTuple):
    """A reconciler: the copy of the job it has read, and the effects it has saved but not performed."""

    copy: int | None = None
    todo: frozenset[Effect] = frozenset()


class World(NamedTuple):
    """`sent` and `said` only grow; `accepted` are the leases whose RESULT has counted.

    `unseen` are steps that became ready in a process without lanes: no owner has them in its queues.
    """

    job: int
    actors: tuple[Actor, ...]
    sent: frozenset[Lease] = frozenset()
    said: frozenset[Callback] = frozenset()
    accepted: frozenset[str] = frozenset()
    restarts: int = 0
    unseen: frozenset[str] = frozenset()


class Catalogue:
    """Every distinct job that was met, each known by its number."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self._numbers: dict[Job, int] = {}

    def number(self, job: Job) -> int:
        canonical = canonical_job(job)
        known = self._numbers.get(canonical)
        if known is None:
            known = len(self.jobs)
            self._numbers[canonical] = known
            self.jobs.append(canonical)
        return known


# -- the canonical form: a moment is past, a deadline is later ---------------------------------

Record = TypeVar("Record")


def evolve(record: Record, **changes: Any) -> Record:
    """A copy with some fields changed, several times as fast as `replace`: every decision passes here."""
    copy = copied(record)
    for name, value in changes.items():
        setattr(copy, name, value)
    return copy


def canonical_job(job: Job) -> Job:
    return evolve(
        job,
        steps=tuple(_step(step) for step in job.steps),
        updated_at=NOW,
        sla_at=LATER,
        due_at=None,
        version=0,
        seq=0,
        noted=0,
        first_ack_at=_past(job.first_ack_at),
        cancel_requested_at=_past(job.cancel_requested_at),
        paused_at=_past(job.paused_at),
        completed_at=_past(job.completed_at),
        owed=tuple(_owed(owed) for owed in job.owed),
    )


def _step(step: Step) -> Step:
    return evolve(
        step,
        entry=_entry(step.entry) if step.entry is not None else None,
        executions=tuple(_execution(execution) for execution in step.executions),
        retry_at=_later(step.retry_at),
        updated_at=NOW,
        completed_at=_past(step.completed_at),
    )


def _entry(entry: Entry) -> Entry:
    return evolve(
        entry,
        created_at=NOW,
        ready_at=_later(entry.ready_at),
        released_at=_past(entry.released_at),
        asked_at=_past(entry.asked_at),
        sent_at=_past(entry.sent_at),
    )


def _execution(execution: Execution) -> Execution:
    return evolve(
        execution,
        leased_at=NOW,
        lease_expires_at=_later(execution.lease_expires_at),
        started_at=_past(execution.started_at),
        finished_at=_past(execution.finished_at),
    )


def _owed(owed: Owed) -> Owed:
    return evolve(owed, attempts=1, next_at=LATER)


def _past(moment: datetime | None) -> datetime | None:
    return NOW if moment is not None else None


def _later(moment: datetime | None) -> datetime | None:
    return LATER if moment is not None else None


# -- time: any deadline may be the next to come ------------------------------------------------


def deadlines(job: Job, *, sla: bool) -> tuple[str, ...]:
    """What time can bring to this job, by name."""
    if job.terminal:
        return ("owed",) if job.owed else ()
    ids = (planned.step_id for planned in job.plan.steps)
    found = [name for name, step in zip(ids, job.steps, strict=True) if _waits(step)]
    if len(found) > 1:
        found.append("all")
    return (*found, *(("sla",) if sla else ()), *(("owed",) if job.owed else ()))


def _waits(step: Step) -> bool:
    if step.held:
        return step.entry is not None and step.entry.ready_at is not None
    return step.out or step.state is StepState.FAILED_RETRY


def come(job: Job, deadline: str) -> Job:
    """The same job at the moment when this deadline has come and no other has."""
    if deadline == "sla":
        return evolve(job, sla_at=NOW)
    if deadline == "owed":
        return evolve(job, owed=tuple(evolve(owed, next_at=NOW) for owed in job.owed))
    steps = tuple(
        _come(step) if deadline in ("all", planned.step_id) else step
        for planned, step in zip(job.plan.steps, job.steps, strict=True)
    )
    return evolve(job, steps=steps)


def _come(step: Step) -> Step:
    entry = step.entry
    if step.state is StepState.FAILED_RETRY:
        return evolve(step, retry_at=NOW)
    if step.state is StepState.DISPATCHING and entry is not None:
        if entry.state is EntryState.RELEASED:
            return evolve(step, entry=evolve(entry, asked_at=NOW - PUBLISH_GRACE))
        return evolve(step, entry=evolve(entry, ready_at=_past(entry.ready_at)))
    if step.out and step.executions[-1].state is not ExecutionState.ABORTED:
        last = evolve(step.executions[-1], lease_expires_at=NOW)
        return evolve(step, executions=(*step.executions[:-1], last))
    return step
