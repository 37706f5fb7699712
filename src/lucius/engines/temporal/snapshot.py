"""How a job stands, as its workflow is told: what to do next, and when to ask again.

Waits are in seconds from the answer, so that clocks that run apart do no harm.
"""

from datetime import datetime
from typing import Any

from lucius.core.attempts import next_attempts
from lucius.core.job import Job, Step
from lucius.core.plan import StepPlan
from lucius.core.states import EntryState, StepState


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
        "publishes": [_lease(planned, step) for planned, step in steps if _unsent(step)],
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


def _unsent(step: Step) -> bool:
    released = step.entry is not None and step.entry.state is EntryState.RELEASED
    return step.state is StepState.DISPATCHING and released


def _wake_at(job: Job) -> datetime:
    """Leases and the SLA. Backoffs are with the attempts that they hold up."""
    waiting = (StepState.AWAITING_ACK, StepState.IN_PROGRESS)
    leases = (step.executions[-1].lease_expires_at for step in job.steps if step.state in waiting)
    return min([job.sla_at, *(at for at in leases if at is not None)])


def _until(at: datetime | None, now: datetime) -> float:
    return max(0.0, (at - now).total_seconds()) if at is not None else 0.0
