"""What follows when steps have moved: the next stage, a completed pause, or the end of the job."""

from collections.abc import Sequence
from datetime import datetime

from lucius.core.job import (
    NOTIFY,
    AbortReason,
    Execution,
    ExecutionState,
    Fault,
    JobState,
    Owed,
    Step,
    StepState,
)
from lucius.core.plan import Plan
from lucius.core.retry import effect_backoff
from lucius.core.turn import Turn

SLA_EXCEEDED = Fault("SLA_EXCEEDED", "the job took longer than it may")
WORKFLOW_TIMEOUT = Fault("WORKFLOW_TIMEOUT", "the workflow of the job ran longer than it may")


OUT_OF_TIME = (SLA_EXCEEDED, WORKFLOW_TIMEOUT)


def doomed(turn: Turn) -> bool:
    """A step has failed for good: others may finish, nothing new starts."""
    return any(step.state is StepState.FAILED_FINAL for step in turn.steps)


def advance(turn: Turn) -> None:
    """After steps have moved: close the job, complete a pause, or start the next stage."""
    state = turn.state
    if state is JobState.CANCELLING:
        if not turn.out:
            end_job(turn, JobState.CANCELLED, None)
    elif doomed(turn):
        for index, step in enumerate(turn.steps):
            if step.held or step.state is StepState.FAILED_RETRY:
                turn.drop(index)
        if not turn.out:
            end_job(turn, JobState.FAILED_FINAL, _first_fault(turn))
    elif all(step.state is StepState.SUCCEEDED for step in turn.steps):
        end_job(turn, JobState.SUCCEEDED, None)
    elif state is JobState.PAUSING:
        for index, step in enumerate(turn.steps):
            if step.held:
                turn.withdraw(index)
        if not turn.out:
            turn.move_job(JobState.PAUSED)
    elif state in (JobState.DISPATCHING, JobState.IN_PROGRESS) and not turn.job.plan.on_temporal:
        start_stage(turn)


def start_stage(turn: Turn) -> None:
    """Dispatch what is pending in the first stage that is not finished."""
    for index in next_stage(turn.job.plan, turn.steps):
        turn.hold(index)


def next_stage(plan: Plan, steps: Sequence[Step]) -> list[int]:
    """What is pending in the first stage that is not finished."""
    unfinished = [i for i, s in enumerate(steps) if s.state is not StepState.SUCCEEDED]
    stage = min((plan.steps[i].stage for i in unfinished), default=0)
    return [
        index
        for index in unfinished
        if plan.steps[index].stage == stage and steps[index].state is StepState.PENDING
    ]


def _first_fault(turn: Turn) -> Fault | None:
    failed = (step for step in turn.steps if step.state is StepState.FAILED_FINAL)
    return next((step.fault for step in failed), None)


def end_job(turn: Turn, state: JobState, fault: Fault | None) -> None:
    """The job ends: what was committed is done, and the client's webhooks are owed."""
    turn.finish_committed()
    turn.has_workflow()
    if state is not JobState.SUCCEEDED:
        _mark_unfinished(turn, fault)
    job = turn.move_job(state)
    job.completed_at, job.fault, job.paused_at = turn.now, fault, None
    if state is JobState.SUCCEEDED:
        job.final_output = turn.steps[-1].result_ref
    for owed in notices(turn.job.plan.callback_urls, turn.now):
        turn.owe(owed)


def notices(urls: Sequence[str], now: datetime) -> list[Owed]:
    """The client's webhooks, as they are owed when its job ends."""
    next_at = now + effect_backoff(1)
    return [Owed(f"notify-{number}", NOTIFY, url, 1, next_at) for number, url in enumerate(urls)]


def _mark_unfinished(turn: Turn, fault: Fault | None) -> None:
    """`phase` reads executions alone, so a job that ends without success leaves a final one."""
    if any(execution.final for step in turn.steps for execution in step.executions):
        return
    at = next((i for i, s in enumerate(turn.steps) if s.state is not StepState.SUCCEEDED), -1)
    index = at % len(turn.steps)
    mark = Execution(
        exec_id=f"{turn.job.job_id}:closed",
        attempt_no=0,
        state=ExecutionState.ABORTED,
        leased_at=turn.now,
        finished_at=turn.now,
        reason=AbortReason.SLA if fault in OUT_OF_TIME else AbortReason.CANCELLED,
        final=True,
    )
    step = turn.own_step(index)
    step.executions = (*step.executions, mark)
