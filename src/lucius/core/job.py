"""The job aggregate: job, steps, executions and outbox entries, changed and saved as one value."""

from dataclasses import field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from lucius.contract.words import DELIVERING_JOB as DELIVERING_JOB
from lucius.contract.words import LIVE_JOB as LIVE_JOB
from lucius.contract.words import PAUSED_JOB as PAUSED_JOB
from lucius.contract.words import RUNNING_JOB as RUNNING_JOB
from lucius.contract.words import TERMINAL_JOB as TERMINAL_JOB
from lucius.contract.words import UNSUCCESSFUL_JOB as UNSUCCESSFUL_JOB
from lucius.contract.words import AbortReason as AbortReason
from lucius.contract.words import ExecutionState as ExecutionState
from lucius.contract.words import JobState as JobState
from lucius.contract.words import Phase as Phase
from lucius.contract.words import StepState as StepState
from lucius.core.plan import Json, Plan
from lucius.core.record import record

# The states of the four machines, and the coarser words that clients read beside them.


class EntryState(StrEnum):
    """An outbox entry. Clients read `HELD` and `RELEASED` as `PENDING`."""

    HELD = "HELD"
    RELEASED = "RELEASED"
    SENT = "SENT"
    FAILED_FINAL = "FAILED_FINAL"


TERMINAL_STEP = (StepState.SUCCEEDED, StepState.FAILED_FINAL, StepState.CANCELLED)
RUNNING_EXECUTION = (ExecutionState.LEASED, ExecutionState.IN_PROGRESS)
COMMITTED_EXECUTION = (ExecutionState.COMMITTED, ExecutionState.DONE)
PRESUMED_DEAD = (AbortReason.ACK_TIMEOUT, AbortReason.LEASE_EXPIRED)
"""Aborts that rest on silence: a success that arrives before the next lease disproves them."""

JOB_STATUS = {
    JobState.DISPATCHING: "QUEUED",
    JobState.PAUSING: "IN_PROGRESS",
    JobState.CANCELLING: "IN_PROGRESS",
}
STEP_STATUS = {
    StepState.DISPATCHING: "INITIATED",
    StepState.AWAITING_ACK: "INITIATED",
    StepState.IN_PROGRESS: "PROCESSING",
}
ENTRY_STATUS = {EntryState.HELD: "PENDING", EntryState.RELEASED: "PENDING"}


def job_status(state: JobState) -> str:
    return JOB_STATUS.get(state, state.value)


def step_status(state: StepState) -> str:
    return STEP_STATUS.get(state, state.value)


def entry_status(state: EntryState) -> str:
    return ENTRY_STATUS.get(state, state.value)


@record
class Fault:
    """Why something failed: a stable code and a sentence for people."""

    code: str
    message: str


@record
class Entry:
    """The outbox entry of a step: one directive on its way to the bus.

    A held entry has no lease yet, unless a workflow has proposed one. `ready_at` is set while it waits
    out a refused publish; `asked_at` is when the engine was last told to publish it.
    """

    state: EntryState
    attempt_no: int
    created_at: datetime
    lease_id: str | None = None
    ready_at: datetime | None = None
    released_at: datetime | None = None
    asked_at: datetime | None = None
    sent_at: datetime | None = None
    extra: Json | None = field(default=None, compare=False)


@record
class Execution:
    """One attempt of one step. `exec_id` is its lease id; `final` marks the abort that ended the step.

    `unclaimed_at`: the bus had its directive by then, and no service was subscribed to take it.
    """

    exec_id: str
    attempt_no: int
    state: ExecutionState
    leased_at: datetime
    lease_expires_at: datetime | None = None
    lease_owner: str | None = None
    started_at: datetime | None = None
    unclaimed_at: datetime | None = None
    finished_at: datetime | None = None
    reason: AbortReason | None = None
    final: bool = False
    extra: Json | None = field(default=None, compare=False)


@record
class Step:
    """`attempt_no` is the latest attempt; `used` counts the attempts that are used up.

    `returns` counts the leases that services gave back, `deaths` those that were lost with their process.
    """

    state: StepState
    attempt_no: int = 0
    used: int = 0
    returns: int = 0
    deaths: int = 0
    entry: Entry | None = None
    executions: tuple[Execution, ...] = ()
    retry_at: datetime | None = None
    result_ref: Any = field(default=None, compare=False)
    fault: Fault | None = None
    updated_at: datetime | None = None
    completed_at: datetime | None = None
    extra: Json | None = field(default=None, compare=False)

    @property
    def execution(self) -> Execution | None:
        return self.executions[-1] if self.executions else None

    @property
    def attempt(self) -> Execution | None:
        """The latest attempt; a record that only marks a job's end is none."""
        return next((run for run in reversed(self.executions) if run.attempt_no > 0), None)

    @property
    def out(self) -> bool:
        """A directive was released and its attempt has not ended: some service may be at work."""
        if self.state is StepState.DISPATCHING:
            return self.entry is not None and self.entry.state is EntryState.RELEASED
        return self.state is StepState.AWAITING_ACK or self.state is StepState.IN_PROGRESS

    @property
    def held(self) -> bool:
        return (
            self.state is StepState.DISPATCHING
            and self.entry is not None
            and self.entry.state is EntryState.HELD
        )

    @property
    def ready(self) -> bool:
        """Held, and waiting for nothing but room in the dispatch window."""
        entry = self.entry
        return (
            self.state is StepState.DISPATCHING
            and entry is not None
            and entry.state is EntryState.HELD
            and entry.ready_at is None
        )

    @property
    def asked_for(self) -> bool:
        """Held, under a lease that its workflow has proposed."""
        return self.held and self.entry is not None and self.entry.lease_id is not None

    @property
    def unacked(self) -> bool:
        """Counts against the dispatch window."""
        return self.out and self.state is not StepState.IN_PROGRESS


NOTIFY: Final = "notify_client"
"""The kind of effect that tells a client how its job ended."""


@record
class Owed:
    """An effect other than a publish that is still to be performed, with its own retry clock.

    `fault`: why the last try failed, of a webhook.
    """

    owed_id: str
    kind: str
    target: str
    attempts: int
    next_at: datetime
    fault: str | None = None
    extra: Json | None = field(default=None, compare=False)


@record
class Job:
    plan: Plan = field(repr=False, compare=False)
    state: JobState
    steps: tuple[Step, ...]
    updated_at: datetime
    sla_at: datetime
    due_at: datetime | None = None
    version: int = 0
    seq: int = 0
    noted: int = 0
    first_ack_at: datetime | None = None
    cancel_requested_at: datetime | None = None
    paused_at: datetime | None = None
    completed_at: datetime | None = None
    fault: Fault | None = None
    final_output: Any = field(default=None, compare=False)
    owed: tuple[Owed, ...] = ()
    dismissed_at: datetime | None = None
    redriven_by: str | None = None
    extra: Json | None = field(default=None, compare=False)

    @property
    def job_id(self) -> str:
        return self.plan.job_id

    @property
    def tenant_id(self) -> str:
        return self.plan.tenant_id

    @property
    def terminal(self) -> bool:
        return self.state in TERMINAL_JOB

    @property
    def in_dlq(self) -> bool:
        return (
            self.state is JobState.FAILED_FINAL
            and self.dismissed_at is None
            and self.redriven_by is None
        )

    @property
    def attempts_total(self) -> int:
        return sum(step.attempt_no for step in self.steps)

    @property
    def current_index(self) -> int | None:
        """The active step: the lowest that is not finished."""
        for index, step in enumerate(self.steps):
            if step.state not in (StepState.SUCCEEDED, StepState.CANCELLED):
                return index
        return None

    @property
    def retry_at(self) -> datetime | None:
        waits = [
            step.retry_at or (step.entry.ready_at if step.held and step.entry else None)
            for step in self.steps
            if step.state in (StepState.FAILED_RETRY, StepState.DISPATCHING)
        ]
        return min((at for at in waits if at), default=None)


def notices_of(job: Job) -> list[Owed]:
    """The webhooks that its client was not told by."""
    return [owed for owed in job.owed if owed.kind == NOTIFY]


def phase_of(job: Job) -> Phase:
    """The coarse view, from executions and the plan alone: never from the job's own state."""
    executions = [execution for step in job.steps for execution in step.executions]
    if any(execution.state in RUNNING_EXECUTION for execution in executions):
        return Phase.RUNNING  # a step may have failed already; the others may still finish
    if any(execution.final for execution in executions):
        return Phase.FAILED
    done = all(
        plan.step_id in job.plan.carried
        or any(e.state is ExecutionState.DONE for e in step.executions)
        for plan, step in zip(job.plan.steps, job.steps, strict=True)
    )
    if done:
        return Phase.SUCCEEDED
    if any(execution.state is not ExecutionState.ABORTED for execution in executions):
        return Phase.RUNNING
    return Phase.PENDING
