"""Whether one stored job contradicts itself. Pure: it reads the job and names what cannot be."""

from collections.abc import Callable, Iterator
from typing import Final

from lucius.core.job import (
    COMMITTED_EXECUTION,
    RUNNING_EXECUTION,
    TERMINAL_STEP,
    EntryState,
    ExecutionState,
    Job,
    JobState,
    Phase,
    Step,
    StepState,
    phase_of,
)
from lucius.core.plan import StepPlan
from lucius.core.retry import due_at

Finding = tuple[str, str]
"""A stable kind, and a sentence for people."""

AT_REST: Final = (*TERMINAL_STEP, StepState.PENDING)
"""A failed job leaves the steps after its failure as they were."""
ENTRY_OF: Final = {
    StepState.DISPATCHING: (EntryState.HELD, EntryState.RELEASED),
    StepState.AWAITING_ACK: (EntryState.SENT,),
    StepState.IN_PROGRESS: (EntryState.SENT,),
    StepState.FAILED_RETRY: (EntryState.SENT, EntryState.FAILED_FINAL),
}
"""The outbox entries that a step may have while it is on its way; ended steps have no open one."""
EXECUTION_OF: Final = {
    StepState.AWAITING_ACK: ExecutionState.LEASED,
    StepState.IN_PROGRESS: ExecutionState.IN_PROGRESS,
}


def audit(job: Job) -> tuple[Finding, ...]:
    """Everything about a job that contradicts itself; empty for a sound one."""
    findings = [finding for check in CHECKS for finding in check(job)]
    for planned, step in zip(job.plan.steps, job.steps, strict=False):
        findings += [finding for check in STEP_CHECKS for finding in check(job, planned, step)]
    return tuple(findings)


# -- the job ---------------------------------------------------------------------------------


def _shape(job: Job) -> Iterator[Finding]:
    if len(job.steps) != len(job.plan.steps):
        yield "steps_missing", f"{len(job.steps)} steps for a plan of {len(job.plan.steps)}"


def _phase(job: Job) -> Iterator[Finding]:
    if len(job.steps) != len(job.plan.steps):
        return
    phase = phase_of(job)
    if phase not in _expected_phases(job):
        yield "phase_drift", f"the executions say {phase.value}, the job says {job.state.value}"


def _expected_phases(job: Job) -> tuple[Phase, ...]:
    if job.state is JobState.SUCCEEDED:
        return (Phase.SUCCEEDED,)
    if job.terminal:
        return (Phase.FAILED,)
    ending = job.state is JobState.CANCELLING or any(
        step.state is StepState.FAILED_FINAL for step in job.steps
    )
    if ending:
        return (Phase.PENDING, Phase.RUNNING, Phase.FAILED)
    return (Phase.PENDING, Phase.RUNNING)


def _due(job: Job) -> Iterator[Finding]:
    try:
        wanted = due_at(job)
    except IndexError:
        return  # A step at work without an execution: reported as such.
    if wanted is not None and job.due_at is None:
        yield "missing_due_at", f"something must happen at {wanted.isoformat()}, and nothing will"
    elif wanted != job.due_at:
        yield "wrong_due_at", f"due at {job.due_at}, though its steps and debts say {wanted}"


def _ending(job: Job) -> Iterator[Finding]:
    if job.terminal != (job.completed_at is not None):
        yield "completion", f"state {job.state.value} with completed_at {job.completed_at}"
    if job.state is JobState.SUCCEEDED and any(
        step.state is not StepState.SUCCEEDED for step in job.steps
    ):
        yield "step_drift", "the job succeeded, and not all of its steps did"
    if job.terminal and any(step.state not in AT_REST for step in job.steps):
        yield "step_drift", "the job has ended, and one of its steps has not"


# -- its steps -------------------------------------------------------------------------------


def _commits(job: Job, planned: StepPlan, step: Step) -> Iterator[Finding]:
    commits = sum(execution.state in COMMITTED_EXECUTION for execution in step.executions)
    if commits > 1:
        yield "two_committed", f"step {planned.step_id} has {commits} committed executions"
    wanted = step.state is StepState.SUCCEEDED and planned.step_id not in job.plan.carried
    if commits <= 1 and wanted != bool(commits):
        yield "step_drift", f"step {planned.step_id} is {step.state} with {commits} commits"


def _attempts(job: Job, planned: StepPlan, step: Step) -> Iterator[Finding]:
    most = planned.policy.max_attempts
    highest = max((step.attempt_no, step.used, *(e.attempt_no for e in step.executions)))
    if highest > most:
        yield "attempts_exceeded", f"step {planned.step_id} is at attempt {highest} of {most}"


def _leases(job: Job, planned: StepPlan, step: Step) -> Iterator[Finding]:
    running = [execution for execution in step.executions if execution.state in RUNNING_EXECUTION]
    if len(running) != int(step.out):
        yield "lease_drift", f"step {planned.step_id} is {step.state} with {len(running)} leases"
    wanted = EXECUTION_OF.get(step.state)
    if wanted is not None and (step.execution is None or step.execution.state is not wanted):
        yield "lease_drift", f"step {planned.step_id} is {step.state} without such an execution"


def _entries(job: Job, planned: StepPlan, step: Step) -> Iterator[Finding]:
    """A step that waits for a retry may still show how its last entry went."""
    state = step.entry.state if step.entry is not None else None
    allowed = ENTRY_OF.get(step.state, (None, EntryState.SENT, EntryState.FAILED_FINAL))
    if state not in allowed:
        yield "entry_drift", f"step {planned.step_id} is {step.state} with entry {state}"
    if step.entry is not None and step.out and step.execution is not None:
        if step.entry.lease_id != step.execution.exec_id:
            yield "entry_drift", f"step {planned.step_id} runs under another lease than its entry"


CHECKS: Final[tuple[Callable[[Job], Iterator[Finding]], ...]] = (_shape, _phase, _due, _ending)
STEP_CHECKS: Final[tuple[Callable[[Job, StepPlan, Step], Iterator[Finding]], ...]] = (
    _commits,
    _attempts,
    _leases,
    _entries,
)
