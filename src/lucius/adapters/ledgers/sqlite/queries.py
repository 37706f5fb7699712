"""What the SQLite ledger is asked often: small reads of committed data, through one connection."""

import sqlite3
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final, NamedTuple

from lucius.adapters.ledgers.rules import (
    HeldClaim,
    HeldCounts,
    InflightCounts,
    InflightGroup,
    QueueKey,
    existing_claim,
    may_be_out,
)
from lucius.adapters.ledgers.stored.job_codec import SCHEMA, decode_events, decode_job, too_new
from lucius.adapters.ledgers.stored.json_form import instant, micros
from lucius.adapters.ledgers.stored.plan_codec import decode_plan
from lucius.core.effects import Event
from lucius.core.errors import LedgerCorruptError, LedgerRowUnreadableError
from lucius.core.job import Job
from lucius.ports.ledger import Claim, DueJob, ReadyEntry, Taken

Positions = tuple[tuple[int, int], ...]
"""Step and position of each ready entry of a job."""
_EVER: Final = -1
"""Before every moment."""
_LAST: Final = micros(datetime.max.replace(tzinfo=UTC))
"""What is stored as later, or is no number, is no moment."""


class JobRow(NamedTuple):
    """What is stored of one job, in the order of `JOB_COLUMNS`."""

    job_id: str
    tenant_id: str
    schema: int
    version: int
    ready: str | None
    plan: bytes | None
    doc: bytes


JOB_COLUMNS: Final = "id, tenant, schema, version, ready, plans.doc, jobs.doc"


def read_job(row: JobRow) -> Job:
    """LedgerTooNewError where a newer version wrote it, LedgerRowUnreadableError where nobody did."""
    try:
        newer = row.schema > SCHEMA
        job = None if newer else _decoded(row)
    except Exception as error:  # whatever it is, it is this row's alone
        why = str(error) or type(error).__name__
        raise LedgerRowUnreadableError(row.job_id, why, tenant_id=row.tenant_id) from error
    if job is None:
        raise too_new(row.schema, row.job_id)
    return job


def _decoded(row: JobRow) -> Job:
    if row.plan is None:
        raise LedgerCorruptError("it has no plan")
    job = decode_job(decode_plan(row.plan), row.doc)
    if (job.job_id, job.version) != (row.job_id, row.version):
        said = f"{job.job_id} in version {job.version}"
        raise LedgerCorruptError(f"its row has version {row.version}, its documents are of {said}")
    read_positions(row.ready)
    return job


def load(conn: sqlite3.Connection, job_id: str) -> Job | None:
    row = conn.execute(
        f"SELECT {JOB_COLUMNS} FROM jobs LEFT JOIN plans USING (no) WHERE id = ?", (job_id,)
    ).fetchone()
    return None if row is None else read_job(JobRow(*row))


def read_positions(text: str | None) -> Positions:
    """`step:position`, joined by commas."""
    pairs = (part.split(":") for part in text.split(",")) if text else ()
    return tuple((int(index), int(position)) for index, position in pairs)


def claimed(conn: sqlite3.Connection, claim: Claim) -> Taken | None:
    row = conn.execute(
        "SELECT body_hash, keyed, job_id, state FROM claims LEFT JOIN jobs ON id = job_id"
        " WHERE claims.tenant = ? AND claim_hash = ?",
        (claim.tenant_id, claim.claim_hash),
    ).fetchone()
    if row is None:
        return None
    body_hash, keyed, job_id, state = row
    return existing_claim(claim, HeldClaim(body_hash, bool(keyed), job_id, state))


# -- due -------------------------------------------------------------------------------------


def due(
    conn: sqlite3.Connection,
    before: datetime,
    lanes: Collection[int],
    limit: int,
    after: DueJob | None = None,
) -> Sequence[DueJob]:
    """One short range of the index for each lane, merged."""
    start, no = _place_after(conn, after) if after is not None else (_EVER, 0)
    params: list[Any] = []
    for lane in lanes:
        params += (lane, start, micros(before), SCHEMA, start, no, limit)
    if not params:
        return []
    rows = conn.execute(_due_sql(len(lanes)), (*params, limit))
    return [DueJob(job_id, instant(at), may_be_out(state)) for job_id, at, state in rows]


def _place_after(conn: sqlite3.Connection, after: DueJob) -> tuple[int, int]:
    row = conn.execute("SELECT no FROM jobs WHERE id = ?", (after.job_id,)).fetchone()
    return micros(after.due_at), row[0] if row is not None else 0


@cache
def _due_sql(lanes: int) -> str:
    lane = (
        "SELECT * FROM (SELECT no, due_at FROM jobs INDEXED BY jobs_due"
        " WHERE lane = ? AND due_at BETWEEN ? AND ? AND schema <= ? AND (due_at, no) > (?, ?)"
        " ORDER BY due_at, no LIMIT ?)"
    )
    earliest = " UNION ALL ".join([lane] * lanes) + " ORDER BY due_at, no LIMIT ?"
    return (
        f"SELECT id, e.due_at, state FROM ({earliest}) AS e CROSS JOIN jobs USING (no)"
        " ORDER BY e.due_at, no"
    )


def next_due(conn: sqlite3.Connection, lanes: Collection[int]) -> datetime | None:
    if not lanes:
        return None
    params = [value for lane in lanes for value in (lane, SCHEMA)]
    (value,) = conn.execute(_next_due_sql(len(lanes)), params).fetchone()
    return None if value is None else instant(value)


@cache
def _next_due_sql(lanes: int) -> str:
    lane = (
        "SELECT * FROM (SELECT due_at FROM jobs INDEXED BY jobs_due"
        f" WHERE lane = ? AND due_at <= {_LAST} AND schema <= ? ORDER BY due_at LIMIT 1)"
    )
    return f"SELECT min(due_at) FROM ({' UNION ALL '.join([lane] * lanes)})"


# -- ready -----------------------------------------------------------------------------------


def ready(
    conn: sqlite3.Connection, queue: tuple[str, int, str], limit: int
) -> Sequence[ReadyEntry]:
    rows = conn.execute(
        "SELECT position, id, step_id FROM ready CROSS JOIN jobs ON no = job_no"
        " WHERE service = ? AND ready.lane = ? AND ready.tenant = ?"
        " AND schema <= ? ORDER BY position LIMIT ?",
        (*queue, SCHEMA, limit),
    )
    return [ReadyEntry(position, job_id, step, *queue) for position, job_id, step in rows]


# -- events ----------------------------------------------------------------------------------


def events(conn: sqlite3.Connection, job_id: str, after: int, limit: int) -> Sequence[Event]:
    """A row holds at least one event, so `limit` rows are enough."""
    rows = conn.execute(
        "SELECT doc FROM events WHERE job_no = (SELECT no FROM jobs WHERE id = ?)"
        " AND last_seq > ? ORDER BY last_seq LIMIT ?",
        (job_id, after, limit),
    )
    found = (event for (doc,) in rows for event in decode_events(doc))
    try:
        return [event for event in found if event.seq > after][:limit]
    except LedgerCorruptError as error:
        raise LedgerRowUnreadableError(job_id, str(error)) from error


# -- counts ----------------------------------------------------------------------------------


def read_counts(conn: sqlite3.Connection) -> InflightCounts:
    counts = InflightCounts()
    sql = "SELECT tenant, lane, mode, CAST(count AS INTEGER) FROM inflight"  # whatever is stored
    for *group, count in conn.execute(sql):
        counts.add(InflightGroup(*group), count)
    return counts


def read_held(conn: sqlite3.Connection) -> HeldCounts:
    held = HeldCounts()
    sql = (
        "SELECT service, lane, tenant, count(*) FROM ready WHERE typeof(service) = 'text'"
        " GROUP BY service, lane, tenant"
    )
    for *key, count in conn.execute(sql):
        held[QueueKey(*key)] = count
    return held
