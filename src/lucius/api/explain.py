"""Why a job is where it is, in one sentence for people. A pure function of the job."""

from datetime import UTC, datetime
from functools import lru_cache

from lucius.core.job import Job, Step
from lucius.core.plan import StepPlan
from lucius.core.states import TERMINAL_STEP, JobState, StepState


@lru_cache(maxsize=16_384)
def instant(at: datetime) -> str:
    """RFC 3339 in UTC, with Z. Remembered: in one view of a job most instants come up several times."""
    if at.tzinfo is not UTC:
        at = at.astimezone(UTC)
    return at.isoformat()[:-6] + "Z"


def explain(job: Job) -> str:
    match job.state:
        case JobState.SUCCEEDED:
            return f"all {len(job.steps)} steps succeeded" if len(job.steps) > 1 else "it succeeded"
        case JobState.FAILED_FINAL:
            return _failed(job)
        case JobState.CANCELLED:
            return f"cancelled{_since(job.cancel_requested_at)}{_sequel(job)}"
        case JobState.CANCELLING:
            return f"cancel was requested{_since(job.cancel_requested_at)}; {_waiting(job)}"
        case JobState.PAUSING:
            return f"pause was requested{_since(job.paused_at)}; {_waiting(job)}"
        case JobState.PAUSED:
            return f"paused{_since(job.paused_at)}; resume continues with {_next_step(job)}"
        case _:
            return _waiting(job)


def _failed(job: Job) -> str:
    fault = f": {job.fault.code}: {job.fault.message}" if job.fault else ""
    for plan, step in zip(job.plan.steps, job.steps, strict=True):
        if step.state is StepState.FAILED_FINAL:
            tries = _attempt(step.attempt_no, plan, step)
            return f"step {plan.step_id} failed for good ({tries}){fault}{_sequel(job)}"
    return f"the job failed{fault}{_sequel(job)}"


def _sequel(job: Job) -> str:
    if job.redriven_by is not None:
        return f"; redriven by {job.redriven_by}"
    if job.dismissed_at is not None:
        return f"; dismissed at {instant(job.dismissed_at)}"
    return ""


def _since(at: datetime | None) -> str:
    return f" at {instant(at)}" if at is not None else ""


def _next_step(job: Job) -> str:
    index = job.current_index
    return f"step {job.plan.steps[index].step_id}" if index is not None else "its end"


def _waiting(job: Job) -> str:
    parts = [
        _step(job, plan, step)
        for plan, step in zip(job.plan.steps, job.steps, strict=True)
        if step.state is not StepState.PENDING and step.state not in TERMINAL_STEP
    ]
    return "; ".join(parts) or "nothing is under way yet"


def _step(job: Job, plan: StepPlan, step: Step) -> str:
    name, used = f"step {plan.step_id}", _attempt(step.used, plan, step)
    after = f" after {step.fault.code} ({used})" if step.fault and step.used else ""
    entry, execution = step.entry, step.execution
    if step.state is StepState.FAILED_RETRY:
        return f"{name} waits for a retry{_since(step.retry_at)}{after}"
    if step.held and entry is not None:
        if entry.ready_at is not None:
            return f"{name} waits to be published again{_since(entry.ready_at)}{after}"
        return (
            f"{name} waits for its turn with {plan.service}{after};"
            f" `lucius why {job.job_id}` says its place in line"
        )
    attempt = _attempt(step.attempt_no, plan, step)
    until = execution.lease_expires_at if execution is not None else None
    by = f" by {instant(until)}" if until is not None else ""
    if step.state is StepState.DISPATCHING:
        return f"{name} is on its way to {plan.service} ({attempt})"
    if step.state is StepState.AWAITING_ACK:
        return f"{name} waits for {plan.service} to acknowledge it{by} ({attempt})"
    owner = execution.lease_owner if execution is not None else None
    worker = f"{plan.service} ({owner})" if owner else plan.service
    return f"{name} is being worked on by {worker}; a result or heartbeat is due{by} ({attempt})"


def _attempt(number: int, plan: StepPlan, step: Step) -> str:
    """The latest attempt. One that nobody was there for is not merely a slow one."""
    latest, known = step.execution, f"attempt {number} of {plan.policy.max_attempts}"
    if latest is None or latest.unclaimed_at is None or latest.started_at is not None:
        return known
    return f"{known}, which no service was subscribed to take"
