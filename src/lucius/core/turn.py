"""One turn of a job: the drafts that a decision writes on, every move checked against the table."""

from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Protocol, overload

from lucius.core.effects import Decision, Effect, Event, Outcome, PublishDirective, effect_of
from lucius.core.inputs import Bound, Kind
from lucius.core.job import (
    RUNNING_EXECUTION,
    AbortReason,
    Entry,
    EntryState,
    Execution,
    ExecutionState,
    Fault,
    Job,
    JobState,
    Owed,
    Step,
    StepState,
)
from lucius.core.plan import Json, StepPlan
from lucius.core.record import copied
from lucius.core.retry import TRACK_OF, WORKFLOW_EFFECTS, Track, backoff, due_at, effect_backoff
from lucius.core.table import check_move

# What a decision may write on a record: to the type checker, everything else stays read-only.
#
# A draft is a copy of its record that one turn alone has seen. It is the same object under another type,
# so it costs nothing. No decision changes a field that is missing here: the plan, an id, when a lease began.


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


MAX_EXECUTIONS: Final = 32
"""Leases kept for a step; beyond it the oldest that ended without a word is dropped (its events remain)."""


ACK: Final = "step_ack"
SIGNALS: Final = {
    Kind.ENTRY_RELEASED: "step_released",
    Kind.ACK: ACK,
    Kind.HEARTBEAT: ACK,
    Kind.LEASE_RETURNED: "step_returned",
    Kind.BUS_RESTARTED: "step_returned",
    Kind.SUCCESS: "step_result",
    Kind.FAILURE_RETRYABLE: "step_result",
    Kind.FAILURE_FINAL: "step_result",
    Kind.TICK: "step_timeout",
    Kind.CANCEL: "cancel",
    Kind.PAUSE: "pause",
    Kind.RESUME: "resume",
}
"""What the workflow of a job is told when these have moved it. The rest it has asked for itself."""
WAKE: Final = "wake"
"""The signal that reminds a workflow."""


class Turn(Drafts):
    """Accumulates the changes of one input. Nothing outside sees it; `decision` ends it.

    `told`: the workflow of the job hears of it otherwise.
    """

    __slots__ = ("data", "effects", "kind", "moves", "now", "subject", "told")

    def __init__(self, job: Job, kind: Kind, now: datetime) -> None:
        super().__init__(job)
        self.kind = kind
        self.now = now
        self.moves: list[str] = []
        self.effects: list[Effect] = []
        self.data: Json | None = None
        self.subject: tuple[str | None, int | None, str | None] = (None, None, None)
        self.told = False

    # -- moves, one machine each; the answer is the draft, for what changes with the state -----------

    def move_job(self, target: JobState) -> JobDraft:
        job = self.own_job()
        self.moves.append(f"job {check_move('job', job.state, self.kind, target)}")
        job.state = target
        return job

    def move_step(self, index: int, target: StepState) -> StepDraft:
        step = self.own_step(index)
        self._note("step", index, step.state, target)
        step.state, step.updated_at = target, self.now
        return step

    def move_entry(self, index: int, target: EntryState) -> EntryDraft:
        entry = self.own_entry(index)
        self._note("entry", index, entry.state, target)
        entry.state = target
        return entry

    def move_execution(self, index: int, target: ExecutionState) -> ExecutionDraft:
        """Move the latest execution of a step; earlier ones are at rest."""
        execution = self.own_execution(index)
        self._note("execution", index, execution.state, target)
        execution.state = target
        return execution

    def _note(self, machine: str, index: int, source: StrEnum, target: StrEnum) -> None:
        arrow = check_move(machine, source, self.kind, target)
        self.moves.append(f"{machine} {self.job.plan.steps[index].step_id} {arrow}")

    # -- reading -----------------------------------------------------------------------------

    @property
    def state(self) -> JobState:
        """The state of the job, as the turn has made it so far."""
        return self.after.state

    @property
    def out(self) -> bool:
        """Some service may be at work on a step."""
        return any(step.out for step in self.steps)

    def plan(self, index: int) -> StepPlan:
        return self.job.plan.steps[index]

    # -- what the event says beside its moves --------------------------------------------------

    def about(self, index: int) -> None:
        """The event speaks of the latest attempt of this step."""
        execution = self.steps[index].executions[-1]
        self.subject = (self.plan(index).step_id, execution.attempt_no, execution.exec_id)

    def explain(self, fault: Fault) -> None:
        self.data = {"fault": fault.code, "message": fault.message}

    # -- effects -----------------------------------------------------------------------------

    def owe(self, owed: Owed) -> None:
        """The engine performs it after the save, and again until it is settled."""
        job = self.own_job()
        job.owed = (*job.owed, owed)
        self.perform(owed)

    def perform(self, owed: Owed) -> None:
        effect = effect_of(owed)
        if effect is not None:
            self.effects.append(effect)

    def signal(self, name: str) -> None:
        """Owe the workflow a signal, in place of earlier ones: the newest says all that they said."""
        job, kind = self.own_job(), "signal_workflow"
        job.owed = tuple(owed for owed in job.owed if owed.kind != kind)
        target = f"{name} {self.subject[0] or ''}".strip()
        next_at = self.now + effect_backoff(1, kind)
        self.owe(Owed(f"signal-{self.job.version + 1}", kind, target, 1, next_at))

    def has_workflow(self, *, answered: bool = False) -> None:
        """Owe no start any more: the workflow asked, or is not needed. `answered`: owe no signal either."""
        settled = WORKFLOW_EFFECTS if answered else ("start_workflow",)
        if any(owed.kind in settled for owed in self.after.owed):
            kept = tuple(owed for owed in self.after.owed if owed.kind not in settled)
            self.own_job().owed = kept

    def ask_publish(self, index: int) -> None:
        execution = self.steps[index].executions[-1]
        self.effects.append(
            PublishDirective(self.plan(index).step_id, execution.attempt_no, execution.exec_id)
        )

    def ask_publish_again(self, index: int) -> None:
        self.own_entry(index).asked_at = self.now
        self.ask_publish(index)

    # -- the life of a directive -------------------------------------------------------------

    def hold(self, index: int) -> None:
        """A directive is wanted: the step gets an outbox entry, which waits for the window."""
        step = self.move_step(index, StepState.DISPATCHING)
        step.entry = Entry(EntryState.HELD, attempt_no=step.used + 1, created_at=self.now)
        step.retry_at = None

    def release(self, index: int, lease_id: str) -> None:
        """The attempt begins here: it gets its lease, and the engine is told to publish it."""
        entry = self.move_entry(index, EntryState.RELEASED)
        entry.lease_id, entry.released_at, entry.asked_at = lease_id, self.now, self.now
        step = self.own_step(index)
        lease = Execution(lease_id, entry.attempt_no, ExecutionState.LEASED, leased_at=self.now)
        step.executions = _trimmed((*step.executions, lease))
        step.attempt_no, step.updated_at = entry.attempt_no, self.now
        if not self.job.plan.on_temporal:
            self.ask_publish(index)

    def sent(self, index: int) -> None:
        """The bus has it (or evidence proves so): the ACK clock starts, earlier stages are done."""
        planned = self.plan(index)
        self.move_entry(index, EntryState.SENT).sent_at = self.now
        self.move_step(index, StepState.AWAITING_ACK)
        self.own_execution(index).lease_expires_at = self.now + planned.policy.ack_timeout
        self.finish_committed(before=planned.stage)

    def started(self, index: int, worker_id: str | None) -> None:
        """A service has taken a slot for it; whatever the ACK overtook is made good in order."""
        if self.steps[index].state is StepState.DISPATCHING:
            self.sent(index)
        self.move_step(index, StepState.IN_PROGRESS)
        execution = self.move_execution(index, ExecutionState.IN_PROGRESS)
        execution.started_at, execution.lease_owner = self.now, worker_id
        execution.lease_expires_at = self.now + self.plan(index).policy.lease
        self.acknowledged()

    def acknowledged(self) -> None:
        """Some service has been at work: from the first time on, the job is in progress."""
        if self.job.first_ack_at is None:
            self.own_job().first_ack_at = self.now
        if self.state is JobState.DISPATCHING:
            self.move_job(JobState.IN_PROGRESS)

    def abort(self, index: int, reason: AbortReason, *, final: bool = False) -> None:
        """End the running attempt of a step, if there is one."""
        execution = self.steps[index].execution
        if execution is not None and execution.state in RUNNING_EXECUTION:
            draft = self.move_execution(index, ExecutionState.ABORTED)
            draft.reason, draft.finished_at, draft.final = reason, self.now, final

    def finish_committed(self, before: int | None = None) -> None:
        """`DONE`: a directive of a later stage is out, or the job is closed."""
        for index, step in enumerate(self.steps):
            if before is not None and self.plan(index).stage >= before:
                continue
            execution = step.execution
            if execution is not None and execution.state is ExecutionState.COMMITTED:
                self.move_execution(index, ExecutionState.DONE)

    def fail_attempt(self, index: int, reason: AbortReason, fault: Fault) -> None:
        """An attempt is used up: wait and try again, or give the step up."""
        policy = self.plan(index).policy
        step = self.own_step(index)
        step.used, step.fault, step.updated_at = step.used + 1, fault, self.now
        last = step.used >= policy.max_attempts
        self.abort(index, reason, final=last)
        if last:
            self.give_up(index, fault)
        elif self.state is JobState.CANCELLING:
            self.drop(index)
        else:
            track = TRACK_OF[reason]
            self._wait(index, track, self.now + backoff(policy, track, step.used))

    def _wait(self, index: int, track: Track, retry_at: datetime) -> None:
        """An entry that the bus refused stays pending: it is leased anew when it is next released."""
        if track is not Track.PUBLISH:
            self.move_step(index, StepState.FAILED_RETRY).retry_at = retry_at
            return
        entry = self.move_entry(index, EntryState.HELD)
        entry.attempt_no, entry.ready_at = self.steps[index].used + 1, retry_at
        entry.lease_id = entry.released_at = entry.asked_at = None

    def give_up(self, index: int, fault: Fault) -> None:
        self._close_entry(index)
        self._end(index, StepState.FAILED_FINAL).fault = fault

    def drop(self, index: int) -> None:
        """The step will not be tried (again): its job is being cancelled or has failed elsewhere."""
        self._close_entry(index)
        self.abort(index, AbortReason.CANCELLED, final=True)
        self._end(index, StepState.CANCELLED)

    def _end(self, index: int, state: StepState) -> StepDraft:
        """Without success. The last abort of the step says so: `phase` reads only executions."""
        execution = self.steps[index].execution
        if execution is not None and execution.state is ExecutionState.ABORTED:
            self.own_execution(index).final = True
        step = self.move_step(index, state)
        step.retry_at, step.completed_at = None, self.now
        return step

    def withdraw(self, index: int) -> None:
        """Take a held entry back: nobody has seen it, so it costs no attempt."""
        ready_at = self.entry(index).ready_at or self.now
        self._close_entry(index)
        self.put_back(index, ready_at)

    def put_back(self, index: int, retry_at: datetime) -> None:
        """Put a step back to where it was before its entry: it starts, or retries, when the job resumes."""
        if self.steps[index].used:
            self.move_step(index, StepState.FAILED_RETRY).retry_at = retry_at
        else:
            self.move_step(index, StepState.PENDING)

    def _close_entry(self, index: int) -> None:
        entry = self.steps[index].entry
        if entry is not None and entry.state in (EntryState.HELD, EntryState.RELEASED):
            self.move_entry(index, EntryState.FAILED_FINAL).ready_at = None

    # -- the end of a turn -------------------------------------------------------------------

    def unchanged(self, outcome: Outcome, code: str | None = None) -> Decision:
        return Decision(self.job, outcome, changed=False, code=code)

    def decision(self, outcome: Outcome) -> Decision:
        if self.job.plan.on_temporal and self.moves and self.kind in SIGNALS and not self.told:
            self.signal(SIGNALS[self.kind])
        if not self.changed:
            return Decision(self.job, outcome, effects=tuple(self.effects), changed=False)
        events = self._events()
        job = self.own_job()
        job.steps, job.updated_at = tuple(self.steps), self.now
        job.version += 1
        job.seq += len(events)
        job.due_at = due_at(self.after)
        return Decision(self.after, outcome, events, tuple(self.effects))

    def _events(self) -> tuple[Event, ...]:
        if not self.moves and not self.data and self.kind is not Kind.SUBMITTED:
            return ()
        step_id, attempt_no, lease_id = self.subject
        moves = tuple(self.moves)
        seq, kind = self.job.seq + 1, str(self.kind)
        return (Event(seq, kind, self.now, step_id, attempt_no, lease_id, moves, self.data),)


def _trimmed(executions: tuple[Execution, ...]) -> tuple[Execution, ...]:
    if len(executions) <= MAX_EXECUTIONS:
        return executions
    for at, execution in enumerate(executions):
        if execution.reason in (AbortReason.RETURNED, AbortReason.PROCESS_DIED):
            return executions[:at] + executions[at + 1 :]
    return executions


def speaks_for(received: Bound, execution: Execution | None) -> bool:
    return (
        execution is not None
        and execution.exec_id == received.lease_id
        and execution.attempt_no == received.attempt_no
    )
