"""One turn of a job: the draft that a decision writes on, every move checked against the table."""

from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from lucius.core.effects import Decision, Effect, Event, Outcome, PublishDirective
from lucius.core.inputs import Bound, Kind
from lucius.core.job import Entry, Execution, Fault, Job, Step
from lucius.core.plan import Json, StepPlan
from lucius.core.record import amend, copied
from lucius.core.retry import Track, backoff, due_at
from lucius.core.states import (
    AbortReason,
    EntryState,
    ExecutionState,
    JobState,
    StepState,
)
from lucius.core.table import check_move

MAX_NOTED: Final = 20
"""How many late, stale and duplicate callbacks a job records before it stops writing them down."""
MAX_NOTED_MESSAGE: Final = 512
"""Characters of the error message of such a callback."""
MAX_EXECUTIONS: Final = 32
"""Leases kept for a step; beyond it the oldest returned lease is dropped (its events remain)."""


class Turn:
    """Accumulates the changes of one input. Nothing outside sees it; `decision` freezes it."""

    __slots__ = (
        "_own_entries",
        "_own_executions",
        "_own_steps",
        "changed",
        "changes",
        "data",
        "effects",
        "job",
        "kind",
        "moves",
        "now",
        "state",
        "steps",
        "subject",
    )

    def __init__(self, job: Job, kind: Kind, now: datetime) -> None:
        self.job = job
        self.kind = kind
        self.now = now
        self.state = job.state
        self.steps = list(job.steps)
        self.changes: dict[str, Any] = {}
        self.moves: list[str] = []
        self.effects: list[Effect] = []
        self.data: Json | None = None
        self.subject: tuple[str | None, int | None, str | None] = (None, None, None)
        self.changed = False
        self._own_steps: set[int] = set()
        self._own_entries: set[int] = set()
        self._own_executions: set[int] = set()

    # -- moves, one machine each -------------------------------------------------------------

    def move_job(self, target: JobState) -> None:
        self.moves.append(f"job {check_move('job', self.state, self.kind, target)}")
        self.state = target
        self.changed = True

    def move_step(self, index: int, target: StepState, **changes: Any) -> None:
        step = self.own_step(index)
        self._note("step", index, step.state, target)
        step.state, step.updated_at = target, self.now
        if changes:
            amend(step, changes)

    def move_entry(self, index: int, target: EntryState, **changes: Any) -> None:
        entry = self.own_entry(index)
        self._note("entry", index, entry.state, target)
        entry.state = target
        if changes:
            amend(entry, changes)

    def move_execution(self, index: int, target: ExecutionState, **changes: Any) -> None:
        """The latest execution moves: earlier ones are at rest."""
        execution = self.own_execution(index)
        self._note("execution", index, execution.state, target)
        execution.state = target
        if changes:
            amend(execution, changes)

    def _note(self, machine: str, index: int, source: StrEnum, target: StrEnum) -> None:
        arrow = check_move(machine, source, self.kind, target)
        self.moves.append(f"{machine} {self.job.plan.steps[index].step_id} {arrow}")

    # -- plain changes -----------------------------------------------------------------------

    def set_job(self, **changes: Any) -> None:
        self.changes |= changes
        self.changed = True

    # -- drafts ------------------------------------------------------------------------------
    # A record is copied at its first change; from then on the turn writes on the copy. Drafts are
    # `Any`, because to the type checker a record cannot be written on at all.

    def own_step(self, index: int) -> Any:
        if index in self._own_steps:
            return self.steps[index]
        self._own_steps.add(index)
        self.changed = True
        step = self.steps[index] = copied(self.steps[index])
        return step

    def own_entry(self, index: int) -> Any:
        entry = self.entry(index)
        if index not in self._own_entries:
            self._own_entries.add(index)
            entry = self.own_step(index).entry = copied(entry)
        return entry

    def own_execution(self, index: int) -> Any:
        """The latest one."""
        executions = self.steps[index].executions
        execution = executions[-1]
        if index not in self._own_executions:
            self._own_executions.add(index)
            execution = copied(execution)
            self.own_step(index).executions = (*executions[:-1], execution)
        return execution

    # -- reading -----------------------------------------------------------------------------

    def plan(self, index: int) -> StepPlan:
        return self.job.plan.steps[index]

    def entry(self, index: int) -> Entry:
        entry = self.steps[index].entry
        assert entry is not None, "a dispatching step has an entry"
        return entry

    # -- the life of a directive -------------------------------------------------------------

    def hold(self, index: int) -> None:
        """A directive is wanted: the step gets an outbox entry, which waits for the window."""
        self.move_step(index, StepState.DISPATCHING)
        step = self.own_step(index)
        step.entry = Entry(EntryState.HELD, attempt_no=step.used + 1, created_at=self.now)
        step.retry_at = None

    def release(self, index: int, lease_id: str) -> None:
        """The attempt begins here: it gets its lease, and the engine is told to publish it."""
        self.move_entry(index, EntryState.RELEASED)
        step, entry = self.own_step(index), self.own_entry(index)
        entry.lease_id, entry.released_at, entry.asked_at = lease_id, self.now, self.now
        lease = Execution(lease_id, entry.attempt_no, ExecutionState.LEASED, leased_at=self.now)
        step.executions = _trimmed((*step.executions, lease))
        step.attempt_no, step.updated_at = entry.attempt_no, self.now
        self.ask_publish(index)

    def ask_publish(self, index: int) -> None:
        execution = self.steps[index].executions[-1]
        self.effects.append(
            PublishDirective(self.plan(index).step_id, execution.attempt_no, execution.exec_id)
        )

    def ask_publish_again(self, index: int) -> None:
        self.own_entry(index).asked_at = self.now
        self.ask_publish(index)

    def sent(self, index: int) -> None:
        """The bus has it (or evidence proves so): the ACK clock starts, earlier stages are done."""
        planned = self.plan(index)
        self.move_entry(index, EntryState.SENT)
        self.own_entry(index).sent_at = self.now
        self.move_step(index, StepState.AWAITING_ACK)
        self.own_execution(index).lease_expires_at = self.now + planned.policy.ack_timeout
        self.finish_committed(before=planned.stage)

    def started(self, index: int, worker_id: str | None) -> None:
        """A service has taken a slot for it; whatever the ACK overtook is made good in order."""
        if self.steps[index].state is StepState.DISPATCHING:
            self.sent(index)
        self.move_step(index, StepState.IN_PROGRESS)
        self.move_execution(index, ExecutionState.IN_PROGRESS)
        execution = self.own_execution(index)
        execution.started_at, execution.lease_owner = self.now, worker_id
        execution.lease_expires_at = self.now + self.plan(index).policy.lease
        self.acknowledged()

    def acknowledged(self) -> None:
        """Some service has been at work: from the first time on, the job is in progress."""
        if self.job.first_ack_at is None:
            self.set_job(first_ack_at=self.now)
        if self.state is JobState.DISPATCHING:
            self.move_job(JobState.IN_PROGRESS)

    def abort(self, index: int, reason: AbortReason, *, final: bool = False) -> None:
        """End the running attempt of a step, if there is one."""
        execution = self.steps[index].execution
        if execution is not None and execution.state in (
            ExecutionState.LEASED,
            ExecutionState.IN_PROGRESS,
        ):
            self.move_execution(
                index, ExecutionState.ABORTED, reason=reason, finished_at=self.now, final=final
            )

    def finish_committed(self, before: int | None = None) -> None:
        """`DONE`: a directive of a later stage is out, or the job is closed."""
        for index, step in enumerate(self.steps):
            if before is not None and self.plan(index).stage >= before:
                continue
            execution = step.execution
            if execution is not None and execution.state is ExecutionState.COMMITTED:
                self.move_execution(index, ExecutionState.DONE)

    def fail_attempt(self, index: int, track: Track, reason: AbortReason, fault: Fault) -> None:
        """An attempt is used up: wait and try again, or give the step up."""
        used = self.steps[index].used + 1
        policy = self.plan(index).policy
        last = used >= policy.max_attempts
        self.abort(index, reason, final=last)
        if last:
            self.give_up(index, fault, used)
        elif self.state is JobState.CANCELLING:
            self.drop(index, used=used, fault=fault)
        else:
            wait = backoff(policy, track, used)
            self.move_step(
                index, StepState.FAILED_RETRY, used=used, fault=fault, retry_at=self.now + wait
            )

    def give_up(self, index: int, fault: Fault, used: int) -> None:
        self._close_entry(index)
        self.mark_final(index)
        self.move_step(
            index,
            StepState.FAILED_FINAL,
            used=used,
            fault=fault,
            retry_at=None,
            completed_at=self.now,
        )

    def drop(self, index: int, **changes: Any) -> None:
        """The step will not be tried (again): its job is being cancelled or has failed elsewhere."""
        self._close_entry(index)
        self.abort(index, AbortReason.CANCELLED, final=True)
        self.mark_final(index)
        self.move_step(index, StepState.CANCELLED, retry_at=None, completed_at=self.now, **changes)

    def mark_final(self, index: int) -> None:
        """The last abort of a step that ends without success says so: `phase` reads only executions."""
        execution = self.steps[index].execution
        if execution is not None and execution.state is ExecutionState.ABORTED:
            self.own_execution(index).final = True

    def withdraw(self, index: int) -> None:
        """Take a held entry back: nobody has seen it, so it costs no attempt."""
        ready_at = self.entry(index).ready_at or self.now
        self._close_entry(index)
        self.put_back(index, ready_at)

    def put_back(self, index: int, retry_at: datetime) -> None:
        """To where the step was before its entry: it starts, or retries, when the job resumes."""
        if self.steps[index].used:
            self.move_step(index, StepState.FAILED_RETRY, retry_at=retry_at)
        else:
            self.move_step(index, StepState.PENDING)

    def _close_entry(self, index: int) -> None:
        entry = self.steps[index].entry
        if entry is not None and entry.state in (EntryState.HELD, EntryState.RELEASED):
            self.move_entry(index, EntryState.FAILED_FINAL, ready_at=None)

    # -- the end of a turn -------------------------------------------------------------------

    def decision(self, outcome: Outcome) -> Decision:
        if not self.changed:
            return Decision(self.job, outcome, effects=tuple(self.effects), changed=False)
        events = self._events()
        job: Any = copied(self.job)
        if self.changes:
            amend(job, self.changes)
        job.state, job.steps, job.updated_at = self.state, tuple(self.steps), self.now
        job.version += 1
        job.seq += len(events)
        job.due_at = due_at(job)
        return Decision(job, outcome, events, tuple(self.effects))

    def _events(self) -> tuple[Event, ...]:
        if not self.moves and not self.data:
            return ()
        step_id, attempt_no, lease_id = self.subject
        moves = tuple(self.moves)
        seq, kind = self.job.seq + 1, str(self.kind)
        return (Event(seq, kind, self.now, step_id, attempt_no, lease_id, moves, self.data),)


def _trimmed(executions: tuple[Execution, ...]) -> tuple[Execution, ...]:
    if len(executions) <= MAX_EXECUTIONS:
        return executions
    for at, execution in enumerate(executions):
        if execution.reason is AbortReason.RETURNED:
            return executions[:at] + executions[at + 1 :]
    return executions


def blank_step(carried: bool, now: datetime) -> Step:
    if carried:
        return Step(StepState.SUCCEEDED, updated_at=now, completed_at=now)
    return Step(StepState.PENDING, updated_at=now)


def rejected(job: Job, code: str) -> Decision:
    return Decision(job, Outcome.REJECTED, changed=False, code=code)


def matches(execution: Execution | None, received: Bound) -> bool:
    return (
        execution is not None
        and execution.exec_id == received.lease_id
        and execution.attempt_no == received.attempt_no
    )


def about(
    turn: Turn,
    step_id: str,
    execution: Execution | None,
    attempt_no: int | None = None,
    lease_id: str | None = None,
) -> None:
    if execution is not None:
        attempt_no, lease_id = execution.attempt_no, execution.exec_id
    turn.subject = (step_id, attempt_no, lease_id)
