"""One transaction's worth of writes: each operation is judged in memory, then all are written together.

The process is the only writer (see `sqlite_lock`), so the versions it remembers are the stored ones;
the statements check them again, and a contradiction makes the writer forget and look.
"""

import sqlite3
from asyncio import Future
from collections.abc import Callable, Sequence
from typing import Any, Final

from lucius.adapters.ledgers.rules import (
    HeldClaim,
    InflightGroup,
    QueueKey,
    existing_claim,
    group_of,
    queue_of,
    ready_steps,
)
from lucius.adapters.ledgers.sqlite import rows
from lucius.adapters.ledgers.sqlite.queries import Positions, read_counts, read_positions
from lucius.adapters.ledgers.stored.job_codec import SCHEMA, encode_events, encode_job
from lucius.adapters.ledgers.stored.json_form import maybe_micros, micros
from lucius.adapters.ledgers.stored.plan_codec import encode_plan
from lucius.core.effects import Event
from lucius.core.errors import LedgerRowUnreadableError
from lucius.core.job import TERMINAL_JOB, Job
from lucius.ports.ledger import Claim, Created, CreateOutcome, Limits

# What the writer of a SQLite ledger remembers, so that most saves need not read first.

MOST_HEADS: Final = 100_000


class Head:
    """What the writer must know about a stored job to save it again."""

    __slots__ = ("batch", "no", "ready", "schema", "state", "version")

    def __init__(self, no: int, version: int, state: str, schema: int, ready: str | None) -> None:
        self.no = no
        self.version = version
        self.state = state
        self.schema = schema
        self.ready = read_positions(ready)
        self.batch: object = None
        """The batch that wrote it last."""


def write_positions(ready: Positions) -> str | None:
    return ",".join(f"{index}:{position}" for index, position in ready) or None


class Memory:
    """What the writer keeps between batches. All of it can be read again from the file."""

    def __init__(self, conn: sqlite3.Connection) -> None:
        self.heads: dict[str, Head] = {}
        self.counts = read_counts(conn)
        numbers = "SELECT max(no) AS no FROM jobs UNION ALL SELECT max(no) FROM plans"
        self.last_no: int = _one(conn, f"SELECT max(no) FROM ({numbers})")
        self.last_position: int = _one(conn, "SELECT max(position) FROM ready")

    def remember(self, job_id: str, head: Head) -> None:
        if len(self.heads) >= MOST_HEADS:
            del self.heads[next(iter(self.heads))]
        self.heads[job_id] = head


def _one(conn: sqlite3.Connection, sql: str) -> int:
    return conn.execute(sql).fetchone()[0] or 0


class ContradictionError(Exception):
    """What is stored is not what the writer remembers."""


# -- operations ------------------------------------------------------------------------------


class Save:
    __slots__ = ("doc", "due_at", "events", "expected", "future", "job", "outcome", "ready")

    def __init__(self, job: Job, expected: int, events: Sequence[Event]) -> None:
        self.job = job
        self.expected = expected
        self.doc = encode_job(job)
        self.due_at = maybe_micros(job.due_at)
        self.events = encode_events(events) if events else None
        self.ready = ready_steps(job)
        self.future: Future[bool] | None = None
        self.outcome: bool | Exception = False

    def stage(self, batch: "Batch") -> None:
        self.outcome = batch.save(self)


class Create:
    __slots__ = ("claim", "doc", "events", "future", "job", "limits", "outcome", "plan_doc")

    def __init__(self, claim: Claim, job: Job, events: Sequence[Event], limits: Limits) -> None:
        self.claim = claim
        self.job = job
        self.limits = limits
        self.doc = encode_job(job)
        self.plan_doc = encode_plan(job.plan)
        self.events = encode_events(events) if events else None
        self.future: Future[CreateOutcome] | None = None
        self.outcome: CreateOutcome | Exception | None = None

    def stage(self, batch: "Batch") -> None:
        self.outcome = batch.create(self)


class Call:
    """Anything else that writes, as a function of the connection and the writer's memory."""

    __slots__ = ("act", "future", "outcome")

    def __init__(self, act: Callable[[sqlite3.Connection, Memory], int]) -> None:
        self.act = act
        self.future: Future[int] | None = None
        self.outcome: int | Exception = 0

    def stage(self, batch: "Batch") -> None:
        batch.flush()
        self.outcome = self.act(batch.conn, batch.memory)


WriterCall = Save | Create | Call


# -- the batch -------------------------------------------------------------------------------


class Batch:
    """Rows that wait to be written, and the changes of the counts that go with them."""

    def __init__(self, conn: sqlite3.Connection, memory: Memory) -> None:
        self.conn = conn
        self.memory = memory
        self.inflight: list[tuple[InflightGroup, int]] = []
        self.held: list[tuple[QueueKey, int]] = []
        self._claims: dict[tuple[str, str], HeldClaim] = {}
        self._counted = 0
        self._clear()

    def _clear(self) -> None:
        self._added: list[Any] = []
        self._plans: list[Any] = []
        self._claimed: list[Any] = []
        self._moved: list[Any] = []
        self._changed: list[Any] = []
        self._events: list[Any] = []
        self._ready: list[Any] = []
        self._unready: list[Any] = []

    def run(self, operations: Sequence[WriterCall]) -> None:
        self._look_up(operations)
        for operation in operations:
            operation.stage(self)
        self.flush()

    def _look_up(self, operations: Sequence[WriterCall]) -> None:
        """Read at once what the operations will ask for."""
        heads, ids = self.memory.heads, list[str]()
        claims: list[str] = []
        for operation in operations:
            if isinstance(operation, Save):
                if operation.job.plan.job_id not in heads:
                    ids.append(operation.job.plan.job_id)
            elif isinstance(operation, Create):
                claims += (operation.claim.tenant_id, operation.claim.claim_hash)
        self._find_heads(ids)
        for tenant, claim_hash, body, keyed, job_id, state in rows.FIND_CLAIMS.fetch(
            self.conn, claims
        ):
            self._claims[tenant, claim_hash] = HeldClaim(body, bool(keyed), job_id, state)

    def _find_heads(self, ids: list[str]) -> None:
        for job_id, no, version, state, schema, ready in rows.FIND_HEADS.fetch(self.conn, ids):
            if job_id not in self.memory.heads:
                try:
                    head = Head(no, version, state, schema, ready)
                except ValueError as error:
                    raise LedgerRowUnreadableError(job_id, str(error)) from error
                self.memory.remember(job_id, head)

    def _head(self, job_id: str) -> Head | None:
        head = self.memory.heads.get(job_id)
        if head is None or head.batch is self:
            # It ended, or was written to, in this very batch: order matters, so write that first.
            self.flush()
        if head is None:
            self._find_heads([job_id])
            head = self.memory.heads.get(job_id)
        return head

    # -- save --------------------------------------------------------------------------------

    def save(self, op: Save) -> bool:
        job = op.job
        head = self.memory.heads.get(job.plan.job_id)
        if head is None or head.batch is self:
            head = self._head(job.plan.job_id)
        if head is None or head.version != op.expected or head.schema > SCHEMA:
            return False
        guard = (head.no, head.version, job.version, op.due_at, op.doc)
        if (
            job.state == head.state
            and job.completed_at is None
            and not op.ready
            and not head.ready
            and head.schema == SCHEMA
        ):
            self._moved += guard
        else:
            self._change(job, head, op.ready, guard)
        if op.events is not None:
            self._events += (head.no, job.seq, op.events)
        head.version = job.version
        head.batch = self
        return True

    def _change(
        self, job: Job, head: Head, wanted: tuple[int, ...], guard: tuple[Any, ...]
    ) -> None:
        if job.terminal and head.state not in TERMINAL_JOB:
            self._count(group_of(job), -1)
        head.state, head.schema = job.state.value, SCHEMA
        head.ready = self._requeue(job, head, wanted)
        self._changed += guard
        self._changed += (head.state, head.schema, job.in_dlq, maybe_micros(job.completed_at))
        self._changed.append(write_positions(head.ready))
        if job.terminal:
            self.memory.heads.pop(job.job_id, None)

    def _requeue(self, job: Job, head: Head, wanted: tuple[int, ...]) -> Positions:
        kept = []
        for index, position in head.ready:
            if index in wanted:
                kept.append((index, position))
            else:
                key = queue_of(job, index)
                self._unready += (*key, position)
                self.held.append((key, -1))
        known = {index for index, _ in kept}
        return (*kept, *(self._enqueue(job, head.no, i) for i in wanted if i not in known))

    def _enqueue(self, job: Job, no: int, index: int) -> tuple[int, int]:
        key = queue_of(job, index)
        self.memory.last_position += 1
        position = self.memory.last_position
        self._ready += (*key, position, no, job.plan.steps[index].step_id)
        self.held.append((key, 1))
        return index, position

    # -- create ------------------------------------------------------------------------------

    def create(self, op: Create) -> CreateOutcome:
        """In the order look up, limits, claim, rows."""
        claim, job = op.claim, op.job
        key, group = (claim.tenant_id, claim.claim_hash), group_of(job)
        refused = existing_claim(claim, self._claims.get(key))
        refused_by_limit = refused or self.memory.counts.saturated(group, op.limits)
        if refused_by_limit is not None:
            return refused_by_limit
        self._claims[key] = HeldClaim(claim.body_hash, claim.keyed, job.job_id, job.state)
        self._claimed += (*key, claim.body_hash, claim.keyed, job.job_id)
        if not job.terminal:
            self._count(group, 1)
        self._add(op, group)
        return Created()

    def _add(self, op: Create, group: InflightGroup) -> None:
        job, memory = op.job, self.memory
        memory.last_no += 1
        head = Head(memory.last_no, job.version, job.state.value, SCHEMA, None)
        head.batch = self
        head.ready = self._requeue(job, head, ready_steps(job))
        memory.remember(job.job_id, head)
        plan = job.plan
        self._added += (head.no, job.job_id, group.tenant_id, plan.request_type)
        self._added += (micros(plan.accepted_at), plan.shard, group.mode, head.state, job.version)
        self._added += (head.schema, job.in_dlq, maybe_micros(job.completed_at))
        self._added += (maybe_micros(job.due_at), write_positions(head.ready), op.doc)
        self._added.append(plan.redrive_of)
        self._plans += (head.no, op.claim.claim_hash, op.claim.keyed, op.plan_doc)
        if op.events is not None:
            self._events += (head.no, job.seq, op.events)

    def _count(self, group: InflightGroup, change: int) -> None:
        self.memory.counts.add(group, change)
        self.inflight.append((group, change))

    # -- writing -----------------------------------------------------------------------------

    def flush(self) -> None:
        """Write what waits. Claims go first, and whatever is created before it is changed."""
        conn = self.conn
        rows.PUT_CLAIMS.run(conn, self._claimed)
        rows.ADD_JOBS.run(conn, self._added)
        rows.ADD_PLANS.run(conn, self._plans)
        self._expect(rows.MOVE_JOBS, self._moved)
        self._expect(rows.CHANGE_JOBS, self._changed)
        rows.DROP_READY.run(conn, self._unready)
        rows.ADD_READY.run(conn, self._ready)
        rows.ADD_EVENTS.run(conn, self._events)
        rows.COUNT.run(conn, self._changes_of_counts())
        self._clear()

    def _expect(self, statement: rows.Rows, flat: list[Any]) -> None:
        if statement.run(self.conn, flat) != len(flat) // statement.width:
            raise ContradictionError("a stored version is not the one remembered")

    def _changes_of_counts(self) -> list[Any]:
        changes: dict[InflightGroup, int] = {}
        for group, change in self.inflight[self._counted :]:
            changes[group] = changes.get(group, 0) + change
        self._counted = len(self.inflight)
        return [value for group, change in changes.items() if change for value in (*group, change)]
