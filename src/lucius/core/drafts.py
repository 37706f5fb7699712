"""What a decision may write on a record: to the type checker, everything else stays read-only.

A draft is a copy of its record that one turn alone has seen. It is the same object under another type,
so it costs nothing. No decision changes a field that is missing here: the plan, an id, when a lease began.
"""

from datetime import datetime
from typing import Any, Protocol, overload

from lucius.core.job import Entry, Execution, Fault, Job, Owed, Step
from lucius.core.record import copied
from lucius.core.states import AbortReason, EntryState, ExecutionState, JobState, StepState


class EntryDraft(Protocol):
    state: EntryState
    attempt_no: int
    lease_id: str | None
    ready_at: datetime | None
    released_at: datetime | None
    asked_at: datetime | None
    sent_at: datetime | None


class ExecutionDraft(Protocol):
    state: ExecutionState
    lease_expires_at: datetime | None
    lease_owner: str | None
    started_at: datetime | None
    unclaimed_at: datetime | None
    finished_at: datetime | None
    reason: AbortReason | None
    final: bool


class StepDraft(Protocol):
    state: StepState
    attempt_no: int
    used: int
    returns: int
    deaths: int
    entry: Entry | None
    executions: tuple[Execution, ...]
    retry_at: datetime | None
    result_ref: Any
    fault: Fault | None
    updated_at: datetime | None
    completed_at: datetime | None


class JobDraft(Protocol):
    """`steps` is written once, when the turn ends: until then they are in `Drafts.steps`."""

    state: JobState
    steps: tuple[Step, ...]
    updated_at: datetime
    sla_at: datetime
    due_at: datetime | None
    version: int
    seq: int
    noted: int
    first_ack_at: datetime | None
    cancel_requested_at: datetime | None
    paused_at: datetime | None
    completed_at: datetime | None
    fault: Fault | None
    final_output: Any
    owed: tuple[Owed, ...]
    dismissed_at: datetime | None
    redriven_by: str | None


@overload
def writable(copy: Entry) -> EntryDraft: ...
@overload
def writable(copy: Execution) -> ExecutionDraft: ...
@overload
def writable(copy: Step) -> StepDraft: ...
@overload
def writable(copy: Job) -> JobDraft: ...
def writable(copy: Any) -> Any:
    """Only for a copy that nobody else has seen yet."""
    return copy


class Drafts:
    """A job that is written on: each record is copied at its first change, and only then.

    `job` is the job as it was given, `steps` are the steps as they are by now, and `after` is what becomes
    of the job. `changed` says whether there is anything to save.
    """

    __slots__ = (
        "_own_entries",
        "_own_executions",
        "_own_steps",
        "after",
        "changed",
        "job",
        "steps",
    )

    def __init__(self, job: Job) -> None:
        self.job = self.after = job
        self.steps = list(job.steps)
        self.changed = False
        self._own_steps: set[int] = set()
        self._own_entries: set[int] = set()
        self._own_executions: set[int] = set()

    def own_job(self) -> JobDraft:
        if self.after is self.job:
            self.after = copied(self.job)
            self.changed = True
        return writable(self.after)

    def own_step(self, index: int) -> StepDraft:
        step = self.steps[index]
        if index not in self._own_steps:
            self._own_steps.add(index)
            self.changed = True
            step = self.steps[index] = copied(step)
        return writable(step)

    def own_entry(self, index: int) -> EntryDraft:
        entry = self.entry(index)
        if index not in self._own_entries:
            self._own_entries.add(index)
            entry = self.own_step(index).entry = copied(entry)
        return writable(entry)

    def own_execution(self, index: int) -> ExecutionDraft:
        """The latest one."""
        executions = self.steps[index].executions
        execution = executions[-1]
        if index not in self._own_executions:
            self._own_executions.add(index)
            execution = copied(execution)
            self.own_step(index).executions = (*executions[:-1], execution)
        return writable(execution)

    def entry(self, index: int) -> Entry:
        entry = self.steps[index].entry
        assert entry is not None, "a dispatching step has an entry"
        return entry
