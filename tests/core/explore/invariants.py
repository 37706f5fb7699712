"""The invariants of the design, as checks of one job and of one decision about it."""

from collections.abc import Iterator

from lucius.core import retry
from lucius.core.effects import Decision, Outcome, PublishDirective
from lucius.core.inputs import Input, Kind
from lucius.core.job import (
    RUNNING_JOB,
    EntryState,
    ExecutionState,
    Job,
    JobState,
    Phase,
    Step,
    StepState,
    phase_of,
)
from tests.core.explore.fold import folded, machines_of
from tests.core.explore.world import NOW

RUNNING_EXECUTION = (ExecutionState.LEASED, ExecutionState.IN_PROGRESS)
COMMITTED = (ExecutionState.COMMITTED, ExecutionState.DONE)
UNSETTLED_ENTRY = (EntryState.HELD, EntryState.RELEASED)
PHASES = {
    JobState.SUCCEEDED: (Phase.SUCCEEDED,),
    JobState.FAILED_FINAL: (Phase.FAILED,),
    JobState.CANCELLED: (Phase.FAILED,),
}


class Broken(Exception):
    """An invariant does not hold."""


def require(holds: bool, invariant: str) -> None:
    if not holds:
        raise Broken(invariant)


# -- one job ---------------------------------------------------------------------------------


def check_job(job: Job) -> None:
    """What holds of every stored job, whatever happened before."""
    for planned, step in zip(job.plan.steps, job.steps, strict=True):
        _check_step(step, planned.step_id)
        used = max(step.used, step.attempt_no, step.entry.attempt_no if step.entry else 0)
        most = planned.policy.max_attempts
        require(used <= most, "6: attempts never exceed the maximum")
        _check_leases(step, most)
    _check_stages(job)
    _check_control(job)
    phases = PHASES.get(job.state, (Phase.PENDING, Phase.RUNNING))
    require(phase_of(job) in phases, f"phase: {phase_of(job)} of a job that is {job.state}")
    due = retry.due_at(job)
    require(due is not None or (job.terminal and not job.owed), "due_at: nobody will look again")
    if job.terminal:
        require(not any(step.out for step in job.steps), "1: a closed job has nothing out")
        require(
            not any(step.entry and step.entry.state in UNSETTLED_ENTRY for step in job.steps),
            "6: the entries of a closed job are SENT or FAILED_FINAL",
        )


def _check_leases(step: Step, most: int) -> None:
    """No step goes round for ever: each lease is a used attempt, the current one, or one of three free."""
    charged = max(0, step.returns - 2) + max(0, step.deaths - 1)
    require(
        charged <= step.used, "6: a third lease given back, or a second death, costs an attempt"
    )
    leases = sum(execution.attempt_no > 0 for execution in step.executions)
    require(leases <= most + 3, "6: the leases of a step are bounded")


def _check_step(step: Step, step_id: str) -> None:
    """The machines of one step agree with each other."""
    states = [execution.state for execution in step.executions]
    running = [state for state in states if state in RUNNING_EXECUTION]
    committed = [state for state in states if state in COMMITTED]
    require(len(committed) <= 1, f"2: at most one COMMITTED execution of {step_id}")
    require(len(running) <= 1, f"3: at most one running execution of {step_id}")
    require(bool(running) == step.out, f"3: {step_id} is {step.state}, executions {states}")
    if running:
        last = ExecutionState.IN_PROGRESS if step.state is StepState.IN_PROGRESS else running[0]
        require(states[-1] is last, f"3: the last execution of {step_id} is the running one")
        entry = step.entry
        require(
            entry is not None and entry.lease_id == step.executions[-1].exec_id,
            f"5: the entry of {step_id} carries the lease of its attempt",
        )
    unsettled = step.entry is not None and step.entry.state in UNSETTLED_ENTRY
    require(
        unsettled == (step.state is StepState.DISPATCHING),
        f"6: the entry of {step_id} is pending exactly while the step is dispatched",
    )
    if step.state is not StepState.SUCCEEDED:
        require(not committed, f"2: {step_id} is {step.state} and has a COMMITTED execution")
    if step.state is StepState.FAILED_RETRY:
        require(step.used > 0 and step.retry_at is not None, f"{step_id} waits for its backoff")


def _check_stages(job: Job) -> None:
    """Only steps of the first unfinished stage are at work."""
    stages = [planned.stage for planned in job.plan.steps]
    unfinished = [
        stage
        for stage, step in zip(stages, job.steps, strict=True)
        if step.state is not StepState.SUCCEEDED
    ]
    for stage, step in zip(stages, job.steps, strict=True):
        if step.state is StepState.DISPATCHING or step.out:
            require(stage == min(unfinished), "3: only the active step moves")


def _check_control(job: Job) -> None:
    out = any(step.out for step in job.steps)
    held = any(step.held for step in job.steps)
    if job.state is JobState.PAUSED:
        require(not out and not held, "4: a paused job has nothing in the outbox")
    if job.state in (JobState.PAUSING, JobState.CANCELLING):
        require(out and not held, f"4: a job that is {job.state} only waits for what is out")
    if job.state is JobState.SUCCEEDED:
        require(all(step.state is StepState.SUCCEEDED for step in job.steps), "success is complete")
    carried = job.plan.carried
    worked = any(
        step.state in (StepState.IN_PROGRESS, StepState.SUCCEEDED) and p.step_id not in carried
        for p, step in zip(job.plan.steps, job.steps, strict=True)
    )
    if worked:
        waiting = job.state in (JobState.QUEUED, JobState.DISPATCHING)
        require(not waiting and job.first_ack_at is not None, "a RESULT proves an ACK")
    require(
        job.final_output is None or job.state is JobState.SUCCEEDED,
        "final_output only on final success",
    )


# -- one decision ----------------------------------------------------------------------------


def check_decision(job: Job, received: Input, decision: Decision) -> None:
    """What holds of every step from one stored job to the next."""
    after = decision.job
    if not decision.changed:
        require(after is job and not decision.events, "7: nothing changes unsaved")
        return
    require(after.version == job.version + 1, "7: one version a decision")
    _check_events(job, decision)
    if job.terminal:
        same = after.steps == job.steps and after.state is job.state
        require(same, "1: a terminal state never changes")
    elif decision.outcome is not Outcome.APPLIED:
        require(machines_of(after) == machines_of(job), f"stale: {decision.outcome}, but it moved")
    _check_releases(job, after)
    _check_terminal_steps(job, after)
    for effect in decision.effects:
        if isinstance(effect, PublishDirective):
            require(effect in _publishable(after), "4: only what is out is published")
    if received.kind is Kind.TICK:
        later = after.due_at is None or after.due_at > NOW
        require(later, "due_at: a tick leaves nothing due")


def _check_events(job: Job, decision: Decision) -> None:
    numbers = [event.seq for event in decision.events]
    require(numbers == list(range(job.seq + 1, decision.job.seq + 1)), "7: the numbers have no gap")
    try:
        machines = folded(job, decision.events)
    except AssertionError as error:
        raise Broken(f"7: the events tell another story: {error}") from error
    require(machines == machines_of(decision.job), "7: every state change is in the events")


def _check_releases(job: Job, after: Job) -> None:
    for before, step in zip(job.steps, after.steps, strict=True):
        if step.out and not before.out:
            require(job.state in RUNNING_JOB, "4: nothing is released after cancel or pause")
            doomed = any(other.state is StepState.FAILED_FINAL for other in job.steps)
            require(not doomed, "4: nothing new starts in a job that will fail")


def _check_terminal_steps(job: Job, after: Job) -> None:
    closed = (StepState.SUCCEEDED, StepState.FAILED_FINAL, StepState.CANCELLED)
    for before, step in zip(job.steps, after.steps, strict=True):
        if before.state in closed:
            require(step.state is before.state, "1: a terminal step never changes")


def _publishable(job: Job) -> Iterator[PublishDirective]:
    for planned, step in zip(job.plan.steps, job.steps, strict=True):
        if step.unacked:
            last = step.executions[-1]
            yield PublishDirective(planned.step_id, last.attempt_no, last.exec_id)


def check_tick(job: Job, decision: Decision) -> None:
    """A tick at `due_at` must do something: otherwise the reconciler would spin on it."""
    require(decision.changed, "due_at: a tick at due_at changes nothing")
