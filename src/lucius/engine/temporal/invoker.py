"""What workflows ask of the owner of the ledger: record an attempt, publish it, time has passed.

Whether something is accepted is decided by `decide` and settled by the ledger, here as everywhere. An
answer says what became of the asking, and how the job stands.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from lucius.core.decide import next_attempts
from lucius.core.effects import Outcome, PublishDirective
from lucius.core.errors import RequestError
from lucius.core.inputs import AttemptRequested, Input
from lucius.core.job import EntryState, Job, Step, StepState
from lucius.core.plan import StepPlan
from lucius.core.record import record
from lucius.core.turn import speaks_for
from lucius.engine.dispatcher import Dispatcher
from lucius.engine.notices import Nudges
from lucius.engine.outbox import OutboxEngine
from lucius.engine.ticks import Ticks
from lucius.ports.engine import Applied
from lucius.ports.lanes import Lanes

# How a job stands, as its workflow is told: what to do next, and when to ask again.
#
# Waits are in seconds from the answer, so that clocks that run apart do no harm.


def snapshot(job: Job, now: datetime) -> dict[str, Any]:
    """`attempts` to ask for, `publishes` that are owed, and `wake_in` at which time alone moves the job."""
    steps = list(zip(job.plan.steps, job.steps, strict=True))
    return {
        "jobId": job.job_id,
        "state": job.state.value,
        "version": job.version,
        "terminal": job.terminal,
        "attempts": [
            {"stepId": n.step_id, "attempt_no": n.attempt_no, "in": _until(n.at, now)}
            for n in next_attempts(job)
        ],
        "publishes": [_lease(planned, step) for planned, step in steps if _is_unsent(step)],
        "wake_in": None if job.terminal else _until(_wake_at(job), now),
        "error": {"code": job.fault.code, "message": job.fault.message} if job.fault else None,
        "steps": [{**_lease(planned, step), "state": step.state.value} for planned, step in steps],
    }


def _lease(planned: StepPlan, step: Step) -> dict[str, Any]:
    execution = step.execution
    return {
        "stepId": planned.step_id,
        "attempt_no": step.attempt_no,
        "lease_id": execution.exec_id if execution is not None else None,
    }


def _is_unsent(step: Step) -> bool:
    released = step.entry is not None and step.entry.state is EntryState.RELEASED
    return step.state is StepState.DISPATCHING and released


def _wake_at(job: Job) -> datetime:
    """Leases, the SLA and the limit. Backoffs are with the attempts that they hold up."""
    waiting = (StepState.AWAITING_ACK, StepState.IN_PROGRESS)
    leases = (step.executions[-1].lease_expires_at for step in job.steps if step.state in waiting)
    return min(at for at in (job.sla_at, job.plan.limit_at, *leases) if at is not None)


def _until(at: datetime | None, now: datetime) -> float:
    return max(0.0, (at - now).total_seconds()) if at is not None else 0.0


APPLIED, ALREADY, HELD, SUPERSEDED = "applied", "already", "held", "superseded"


@record
class Answered:
    """`outcome`: applied, already, held or superseded."""

    outcome: str
    job: Job


class Invoker:
    def __init__(
        self,
        engine: OutboxEngine,
        dispatcher: Dispatcher,
        ticks: Ticks,
        nudges: Nudges,
        *,
        lanes: Lanes,
        now: Callable[[], datetime],
    ) -> None:
        self._engine = engine
        self._dispatcher = dispatcher
        self._ticks = ticks
        self._nudges = nudges
        self._lanes = lanes
        self._now = now

    def answer_of(self, answered: Answered) -> dict[str, Any]:
        """As the wire has it."""
        now = max(self._now(), answered.job.updated_at)
        standing = snapshot(answered.job, now)
        return {"status": "ok", "outcome": answered.outcome, "snapshot": standing}

    async def attempt(
        self, job_id: str, asked: AttemptRequested, *, publish: bool, tenant_id: str | None = None
    ) -> Answered | None:
        """Record it; where the window has room, `publish` it too. None: no such job, or no such step."""
        if await self._mine(job_id, tenant_id) is None:
            return None
        applied = await self._engine.apply(job_id, asked)
        if applied is None or applied.outcome is Outcome.REJECTED:
            return None
        step = _step(applied.job, asked.step_id)
        outcome = {Outcome.APPLIED: APPLIED, Outcome.ALREADY: ALREADY}.get(applied.outcome)
        if outcome is None:
            return Answered(SUPERSEDED, applied.job)
        if step is not None and step.asked_for:
            return Answered(HELD, applied.job)
        if publish and step is not None and _unsent(step, asked):
            published = await self.publish(job_id, asked)
            return Answered(outcome, published.job) if published is not None else None
        return Answered(outcome, applied.job)

    async def publish(
        self,
        job_id: str,
        asked: AttemptRequested,
        *,
        tenant_id: str | None = None,
        lane: int | None = None,
    ) -> Answered | None:
        """Publish the directive of the current attempt, if it is not out yet. A refusal is an answer.

        RequestError: `lane` is not that of the job.
        """
        job = await self._mine(job_id, tenant_id)
        step = _step(job, asked.step_id) if job is not None else None
        if job is None or step is None:
            return None
        if lane not in (None, own := job.plan.routing.lane):
            said = f"job {job_id} is on lane {own}, not {lane}"
            raise RequestError("INVALID_BODY", f"/lane: {said}", faults=(("/lane", said),))
        if not speaks_for(asked, step.execution):
            return Answered(SUPERSEDED, job)
        if not _unsent(step, asked):
            return Answered(ALREADY if step.out else SUPERSEDED, job)
        effect = PublishDirective(asked.step_id, asked.attempt_no, asked.lease_id)
        became = await self._dispatcher.publish(job, effect)
        applied = await self._engine.apply(job_id, became)
        return Answered(APPLIED, applied.job) if applied is not None else None

    async def timeout(self, job_id: str, *, tenant_id: str | None = None) -> Answered | None:
        """The owner of the lane knows which directives only wait behind others: it is asked to look."""
        job = await self._mine(job_id, tenant_id)
        if job is None:
            return None
        if job.plan.shard not in self._lanes.owned and any(step.unacked for step in job.steps):
            self._nudges.put(job, timer=True)
            return Answered(HELD, job)
        applied = await self._ticks.asked(job_id, told=True)
        if applied is None:
            return None
        moved = (applied.job.seq, applied.job.steps) != (job.seq, job.steps)
        return Answered(APPLIED if moved else ALREADY, applied.job)

    async def apply(self, job_id: str, received: Input) -> Applied | None:
        """What clients, operators and services say over HTTP."""
        if await self._mine(job_id, None) is None:
            return None
        return await self._engine.apply(job_id, received)

    async def _mine(self, job_id: str, tenant_id: str | None) -> Job | None:
        """None: no job, none on Temporal, or none of the tenant that is named. Nothing is done for it."""
        job = await self._engine.job(job_id)
        if job is None or not job.plan.on_temporal or tenant_id not in (None, job.tenant_id):
            return None
        return job


def _step(job: Job, step_id: str) -> Step | None:
    index = job.plan.index_of(step_id)
    return job.steps[index] if index is not None else None


def _unsent(step: Step, asked: AttemptRequested) -> bool:
    released = step.entry is not None and step.entry.state is EntryState.RELEASED
    dispatching = step.state is StepState.DISPATCHING and released
    return dispatching and speaks_for(asked, step.execution)
