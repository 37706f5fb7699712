"""Retention: old jobs that have ended, owe nothing and are needed by nobody are deleted, the claim first.

A page looks at a bounded number of old jobs, from a cursor on, so what is kept is passed once a sweep.
"""

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import datetime
from itertools import chain, groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

from lucius.adapters.ledgers.rules import ready_steps
from lucius.adapters.ledgers.sqlite.batch import Memory
from lucius.adapters.ledgers.sqlite.queries import JOB_COLUMNS, JobRow, read_job, read_positions
from lucius.adapters.ledgers.sqlite.rows import Rows
from lucius.adapters.ledgers.sqlite.schema import ForeignErrors, check_upgraded, connect_readonly
from lucius.adapters.ledgers.stored.job_codec import SCHEMA, decode_events
from lucius.adapters.ledgers.stored.json_form import maybe_micros, micros
from lucius.core.audit import audit
from lucius.core.errors import LedgerError, LedgerTooNewError
from lucius.core.job import TERMINAL_JOB, UNSUCCESSFUL_JOB, Job
from lucius.ports.ledger import Drift, Pruned

# Reads a whole ledger file and reports what contradicts itself. It streams, and it changes nothing.

MOST_DRIFTS: Final = 10_000
ENDED: Final = ", ".join(f"'{state.value}'" for state in sorted(TERMINAL_JOB))
REPLACEABLE: Final = (
    f"keyed = 0 AND state IN ({', '.join(repr(s.value) for s in UNSUCCESSFUL_JOB)})"
)

LOST_ROWS: Final = (
    (
        "claim_without_job",
        "SELECT c.tenant || '/' || claim_hash, 'it names job ' || job_id FROM claims AS c"
        " LEFT JOIN jobs ON id = job_id WHERE no IS NULL",
    ),
    (
        "job_without_claim",
        "SELECT id, 'a duplicate would not find it' FROM jobs JOIN plans AS p USING (no)"
        " LEFT JOIN claims AS c ON c.tenant = jobs.tenant AND c.claim_hash = p.claim_hash"
        f" AND c.job_id = id WHERE c.tenant IS NULL AND NOT (p.{REPLACEABLE})",
    ),
    (
        "ready_without_job",
        "SELECT service || '/' || r.lane || '/' || r.tenant || '/' || position,"
        " 'it names job number ' || job_no FROM ready AS r LEFT JOIN jobs ON no = job_no"
        " WHERE no IS NULL",
    ),
    (
        "plan_without_job",
        "SELECT p.no, 'a plan that no job has' FROM plans AS p LEFT JOIN jobs USING (no)"
        " WHERE id IS NULL",
    ),
    (
        "events_without_job",
        "SELECT job_no, 'events that no job has' FROM (SELECT DISTINCT job_no FROM events)"
        " LEFT JOIN jobs ON no = job_no WHERE no IS NULL",
    ),
    (
        "inflight",
        "SELECT tenant || '/' || lane || '/' || mode,"
        " 'counted ' || sum(n) || ', recorded ' || sum(recorded) FROM ("
        f" SELECT tenant, lane, mode, count(*) AS n, 0 AS recorded FROM jobs"
        f" WHERE state NOT IN ({ENDED}) GROUP BY tenant, lane, mode"
        " UNION ALL SELECT tenant, lane, mode, 0, count FROM inflight)"
        " GROUP BY tenant, lane, mode HAVING sum(n) != sum(recorded)",
    ),
)
"""Rows that name something that is not there: the subject, and a sentence."""

JOBS: Final = f"""
    SELECT no, tenant, request_type, created_at, lane, mode, state, dlq, completed_at, due_at,
        redrive_of, {JOB_COLUMNS} FROM jobs LEFT JOIN plans USING (no) ORDER BY no"""
EVENTS: Final = "SELECT job_no, last_seq, doc FROM events ORDER BY job_no, last_seq"
READY: Final = """
    SELECT job_no, step_id, service, lane, tenant, position FROM ready ORDER BY job_no, position"""


def verify_file(path: Path) -> list[Drift]:
    """One consistent reading, beside whoever writes."""
    with ForeignErrors(path), contextlib.closing(connect_readonly(path)) as conn:
        check_upgraded(path, conn)
        conn.execute("BEGIN")
        found = chain(_storage(conn), _lost_rows(conn), _jobs(conn))
        drifts = list(islice(found, MOST_DRIFTS))
        if len(drifts) == MOST_DRIFTS:
            drifts.append(Drift("more", "ledger", f"only the first {MOST_DRIFTS} are listed"))
        return drifts


def _storage(conn: sqlite3.Connection) -> Iterator[Drift]:
    for (answer,) in conn.execute("PRAGMA integrity_check(20)"):
        if answer != "ok":
            yield Drift("storage", "file", answer)


def _lost_rows(conn: sqlite3.Connection) -> Iterator[Drift]:
    for kind, sql in LOST_ROWS:
        for subject, detail in conn.execute(sql):
            yield Drift(kind, str(subject), detail)


def _jobs(conn: sqlite3.Connection) -> Iterator[Drift]:
    """Jobs, their events and their ready rows, side by side in the order of the jobs."""
    history = _Beside(conn.execute(EVENTS))
    queued = _Beside(conn.execute(READY))
    for row in conn.execute(JOBS):
        stored = JobRow(*row[11:])
        events, ready = history.of(row[0]), queued.of(row[0])
        try:
            job = read_job(stored)
            yield from (Drift(kind, job.job_id, detail) for kind, detail in audit(job))
            yield from _columns(job, row)
            yield from _events(job, events)
            yield from _ready(job, stored.ready, ready)
        except LedgerTooNewError:
            continue
        except LedgerError as error:
            yield Drift("unreadable", stored.job_id, str(error))


class _Beside:
    """Walks grouped rows in step with the jobs: at most one group is in memory."""

    def __init__(self, rows: Iterator[tuple[Any, ...]]) -> None:
        self._groups = groupby(rows, key=itemgetter(0))
        self._next = self._advance()

    def _advance(self) -> tuple[int, list[tuple[Any, ...]]] | None:
        for no, rows in self._groups:
            return no, list(rows)
        return None

    def of(self, no: int) -> list[tuple[Any, ...]]:
        while self._next is not None and self._next[0] < no:
            self._next = self._advance()
        if self._next is None or self._next[0] != no:
            return []
        rows, self._next = self._next[1], self._advance()
        return rows


def _columns(job: Job, row: tuple[Any, ...]) -> Iterator[Drift]:
    """The columns repeat the document, so that indexes can find it."""
    wanted = {
        "tenant": (row[1], job.tenant_id),
        "request_type": (row[2], job.plan.request_type),
        "created_at": (row[3], micros(job.plan.accepted_at)),
        "lane and mode": (tuple(row[4:6]), (job.plan.shard, job.plan.routing.resolved_mode)),
        "state": (row[6], job.state.value),
        "dlq": (bool(row[7]), job.in_dlq),
        "completed_at": (row[8], maybe_micros(job.completed_at)),
        "due_at": (row[9], maybe_micros(job.due_at)),
        "redrive_of": (row[10], job.plan.redrive_of),
    }
    for name, (stored, said) in wanted.items():
        if stored != said:
            kind = "missing_due_at" if name == "due_at" and stored is None else "column_drift"
            yield Drift(kind, job.job_id, f"column {name} has {stored}, the document {said}")


def _events(job: Job, rows: list[tuple[Any, ...]]) -> Iterator[Drift]:
    seqs: list[int] = []
    for _, last_seq, doc in rows:
        seqs += (event.seq for event in decode_events(doc))
        if not seqs or seqs[-1] != last_seq:
            yield Drift("event_gap", job.job_id, f"a row of events does not end with {last_seq}")
    if seqs != [*range(1, job.seq + 1)]:
        yield Drift("event_gap", job.job_id, f"events do not run from 1 to {job.seq}")


def _ready(job: Job, column: str | None, rows: list[tuple[Any, ...]]) -> Iterator[Drift]:
    steps = job.plan.steps
    wanted = {steps[i].step_id: job.plan.queue_name(steps[i].service) for i in ready_steps(job)}
    stored = {step_id: service for _, step_id, service, *_ in rows}
    for step_id in wanted.keys() - stored.keys():
        yield Drift("ready_missing", job.job_id, f"step {step_id} is ready and not queued")
    for _, step_id, service, lane, tenant, position in rows:
        place = (service, lane, tenant)
        if place != (wanted.get(step_id), job.plan.shard, job.tenant_id):
            yield Drift("ready_without_step", job.job_id, f"{step_id} at {place}, {position}")
    positions = {(steps[index].step_id, position) for index, position in read_positions(column)}
    if positions != {(step_id, position) for _, step_id, *_, position in rows}:
        yield Drift("column_drift", job.job_id, f"column ready has {column}, the queue not")


# A debt has a moment at which it falls due, so a job without one owes nothing.
FREE: Final = "dlq = 0 AND due_at IS NULL AND schema <= {schema} AND completed_at < {before}"
HAS_HEIR: Final = "EXISTS (SELECT 1 FROM jobs AS heir WHERE heir.redrive_of = jobs.id)"
COLUMNS: Final = "jobs.no, id, tenant, claim_hash, redrive_of"

PAGE: Final = f"""
    SELECT completed_at, {FREE.format(schema="?", before="?")} AND NOT {HAS_HEIR}, {COLUMNS}
    FROM jobs INDEXED BY jobs_prunable LEFT JOIN plans USING (no)
    WHERE (completed_at, no) > (?, ?) AND completed_at < ? AND dlq = 0
    ORDER BY completed_at, no LIMIT ?"""
"""Whether it goes, for each old job from a place on."""
EARLIER: Final = Rows(
    3,
    f"SELECT {COLUMNS} FROM (VALUES {{values}}) CROSS JOIN jobs ON id = column1"
    " LEFT JOIN plans USING (no)"
    f" WHERE {FREE.format(schema='column2', before='column3')} AND NOT {HAS_HEIR}",
)
"""Jobs that were redriven, once none of those that took over is left."""
COUNT: Final = f"""
    WITH RECURSIVE needed (id) AS (
        SELECT redrive_of FROM jobs INDEXED BY jobs_redrives WHERE redrive_of IS NOT NULL
            AND NOT coalesce({FREE.format(schema=":schema", before=":before")}, 0)
        UNION SELECT redrive_of FROM needed JOIN jobs USING (id) WHERE redrive_of IS NOT NULL)
    SELECT count(*) FROM jobs INDEXED BY jobs_prunable
    WHERE {FREE.format(schema=":schema", before=":before")} AND id NOT IN (SELECT id FROM needed)"""
DROP_CLAIMS: Final = Rows(
    3,
    "DELETE FROM claims WHERE (tenant, claim_hash) IN (SELECT c.tenant, c.claim_hash"
    " FROM (VALUES {values}) AS v CROSS JOIN claims AS c"
    " ON c.tenant = column1 AND c.claim_hash = column2 AND c.job_id = column3)",
)
"""A claim that another job has taken over since stays."""
DROP_ROWS: Final = (
    Rows(1, "DELETE FROM events WHERE job_no IN (VALUES {values})"),
    Rows(1, "DELETE FROM plans WHERE no IN (VALUES {values})"),
    Rows(1, "DELETE FROM jobs WHERE no IN (VALUES {values})"),
)


class Doomed(NamedTuple):
    no: int
    job_id: str
    tenant_id: str
    claim_hash: str | None
    redrive_of: str | None


class PrunePage:
    """One page, as a write. `pruned` says what it did."""

    def __init__(self, before: datetime, limit: int, cursor: str | None) -> None:
        self.pruned = Pruned(0)
        self._before = micros(before)
        self._limit = limit
        completed_at, no = (cursor or "0:0").split(":")
        self._after = (int(completed_at), int(no))

    def __call__(self, conn: sqlite3.Connection, memory: Memory) -> int:
        bounds = (SCHEMA, self._before, *self._after, self._before, self._limit)
        found = conn.execute(PAGE, bounds).fetchall()
        doomed = [Doomed(*row) for _, goes, *row in found if goes]
        deleted = 0
        while doomed:
            _delete(conn, memory, doomed)
            deleted += len(doomed)
            doomed = self._set_free(conn, doomed)
        more = f"{found[-1][0]}:{found[-1][2]}" if len(found) == self._limit else None
        self.pruned = Pruned(deleted, more)
        return deleted

    def _set_free(self, conn: sqlite3.Connection, gone: Sequence[Doomed]) -> list[Doomed]:
        earlier = {job.redrive_of for job in gone if job.redrive_of is not None}
        flat = [value for job_id in earlier for value in (job_id, SCHEMA, self._before)]
        return [Doomed(*row) for row in EARLIER.fetch(conn, flat)]


def _delete(conn: sqlite3.Connection, memory: Memory, doomed: Sequence[Doomed]) -> None:
    claims: list[Any] = []
    for job in doomed:
        claims += (job.tenant_id, job.claim_hash, job.job_id)
        memory.heads.pop(job.job_id, None)
    DROP_CLAIMS.run(conn, claims)
    for statement in DROP_ROWS:
        statement.run(conn, [job.no for job in doomed])


def count_prunable(path: Path, before: datetime) -> int:
    """All that a sweep would delete; no work for the event loop."""
    with ForeignErrors(path), closing(connect_readonly(path)) as conn:
        check_upgraded(path, conn)
        values = {"schema": SCHEMA, "before": micros(before)}
        return int(conn.execute(COUNT, values).fetchone()[0])
