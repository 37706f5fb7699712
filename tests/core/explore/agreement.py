"""Whether `decide` does what the tables say, for any job and any input."""

from collections.abc import Iterator

from lucius.core import decide as core
from lucius.core.effects import Decision, Outcome
from lucius.core.inputs import (
    AckReceived,
    BusRestarted,
    CancelRequested,
    DirectiveUnclaimed,
    Dismissed,
    EffectSettled,
    EntryReleased,
    HeartbeatReceived,
    Input,
    LeaseReturned,
    PauseRequested,
    PublishConfirmed,
    PublishRefused,
    Redriven,
    ResultReceived,
    ResultStatus,
    ResumeRequested,
    RetryRequested,
    Ticked,
)
from lucius.core.job import EntryState, ExecutionState, Fault, Job, JobState, StepState
from lucius.core.table import ENTRY, EXECUTION, JOB, STEP, Cell, Verdict
from tests.core.explore.fold import Machines, machines_of
from tests.core.explore.invariants import check_decision, require
from tests.core.explore.world import NOW

FOREIGN = "a lease of another job"


def every_input(job: Job) -> Iterator[Input]:
    """One of each kind: about every step from its latest lease, and about one from a stranger's."""
    yield from (Ticked(), BusRestarted("local"), Dismissed(), Redriven("other"))
    yield from (CancelRequested(), CancelRequested(immediate=True))
    yield RetryRequested()
    yield from (PauseRequested(), ResumeRequested(), EffectSettled("notify-0", performed=True))
    for planned, step in zip(job.plan.steps, job.steps, strict=True):
        yield EntryReleased(planned.step_id, "new")
        last = step.execution
        if last is not None:
            yield from _replies(planned.step_id, last.attempt_no, last.exec_id)
    yield from strangers(job)


def strangers(job: Job) -> Iterator[Input]:
    """Replies that belong to another job, to a step and attempt of the same names."""
    index = job.current_index or 0
    yield from _replies(job.plan.steps[index].step_id, job.steps[index].attempt_no or 1, FOREIGN)


def _replies(step_id: str, attempt_no: int, lease_id: str) -> Iterator[Input]:
    lease = (step_id, attempt_no, lease_id)
    yield PublishConfirmed(*lease)
    yield PublishRefused(*lease, Fault("REFUSED", "no"))
    yield DirectiveUnclaimed(*lease)
    yield AckReceived(*lease, worker_id="local-1")
    yield HeartbeatReceived(*lease, worker_id="local-1")
    yield LeaseReturned(*lease, worker_id="local-1")
    for status in ResultStatus:
        yield ResultReceived(*lease, status, "result", worker_id="local-1")


def check_strangers(job: Job) -> None:
    for received in strangers(job):
        decision = core.decide(job, received, NOW)
        same = not decision.changed or machines_of(decision.job) == machines_of(job)
        require(same, f"8: what is for another job moves this one: {received.kind}")


def check_agreement(job: Job) -> int:
    """Every input against the tables; the number of decisions that were checked."""
    checked = 0
    before = machines_of(job)
    for received in every_input(job):
        decision = core.decide(job, received, NOW)
        check_decision(job, received, decision)
        _check(before, received, decision)
        checked += 1
    return checked


def _check(before: Machines, received: Input, decision: Decision) -> None:
    after = machines_of(decision.job) if decision.changed else before
    answer = JOB[JobState(before.job)][received.kind]
    if answer.outcome is not None:
        given = (decision.outcome, decision.code, decision.changed)
        require(
            given == (answer.outcome, answer.code, False),
            f"table: a {before.job} job answers {received.kind} by itself",
        )
    for subject, cell, same in _cells(before, after, received):
        if cell.verdict is Verdict.IGNORE:
            require(same, f"table: {subject} ignores {received.kind}, but moved")
        if cell.verdict is Verdict.REJECT:
            about = getattr(received, "step_id", None)
            require(same, f"table: {subject} rejects {received.kind}, but moved")
            if about is None or subject.endswith((f" {about}", "job")):
                require(
                    decision.outcome is Outcome.REJECTED and not decision.changed,
                    f"table: {subject} rejects {received.kind}, the outcome is {decision.outcome}",
                )


def _cells(before: Machines, after: Machines, received: Input) -> Iterator[tuple[str, Cell, bool]]:
    """Each machine of the job with its cell for this input, and whether it stayed as it was."""
    kind = received.kind
    yield "job", JOB[JobState(before.job)][kind], before.job == after.job
    for step_id, state in before.steps.items():
        yield f"step {step_id}", STEP[StepState(state)][kind], after.steps[step_id] == state
        entry, executions = before.entries[step_id], before.executions[step_id]
        if entry is not None:
            same = after.entries[step_id] == entry or _replaced(entry, after.entries[step_id])
            yield f"entry {step_id}", ENTRY[EntryState(entry)][kind], same
        for number, execution in enumerate(executions):
            same = after.executions[step_id][number] == execution
            latest = number == len(executions) - 1
            name = f"execution {step_id}" if latest else f"execution {number} of {step_id} (old)"
            yield name, EXECUTION[ExecutionState(execution)][kind], same


def _replaced(entry: str, by: str | None) -> bool:
    """The step was dispatched anew: a closed entry did not move, another took its place."""
    return entry in (EntryState.SENT, EntryState.FAILED_FINAL) and by == EntryState.HELD
