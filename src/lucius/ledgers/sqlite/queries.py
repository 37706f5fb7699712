"""What the SQLite ledger is asked often: small reads of committed data, through one connection."""

import sqlite3
from collections.abc import Collection, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from lucius.core.effects import Event
from lucius.core.errors import LedgerCorruptError
from lucius.core.job import Job
from lucius.core.states import JobState
from lucius.ledgers.rules import (
    Cell,
    HeldClaim,
    HeldCounts,
    InflightCounts,
    QueueKey,
    standing,
)
from lucius.ledgers.stored.event_codec import decode_events
from lucius.ledgers.stored.job_codec import SCHEMA, check_schema, decode_job
from lucius.ledgers.stored.json_form import instant, micros
from lucius.ledgers.stored.plan_codec import decode_plan
from lucius.ports.ledger import Claim, DueJob, Duplicate, KeyReused, ReadyEntry


def read_job(job_id: str, schema: int, plan: bytes | None, doc: bytes) -> Job:
    check_schema(schema, job_id)
    if plan is None:
        raise LedgerCorruptError(f"job {job_id} has no plan")
    return decode_job(decode_plan(plan), doc)


def load(conn: sqlite3.Connection, job_id: str) -> Job | None:
    row = conn.execute(
        "SELECT jobs.id, schema, plans.doc, jobs.doc FROM jobs LEFT JOIN plans USING (no)"
        " WHERE id = ?",
        (job_id,),
    ).fetchone()
    return None if row is None else read_job(*row)


def claimed(conn: sqlite3.Connection, claim: Claim) -> Duplicate | KeyReused | None:
    row = conn.execute(
        "SELECT body_hash, keyed, job_id, state FROM claims LEFT JOIN jobs ON id = job_id"
        " WHERE claims.tenant = ? AND claim_hash = ?",
        (claim.tenant_id, claim.claim_hash),
    ).fetchone()
    if row is None:
        return None
    body_hash, keyed, job_id, state = row
    held = HeldClaim(body_hash, bool(keyed), job_id, JobState(state) if state else None)
    return standing(claim, held)


# -- due -------------------------------------------------------------------------------------


def due(
    conn: sqlite3.Connection, before: datetime, lanes: Collection[int], limit: int
) -> Sequence[DueJob]:
    """One short range of the index for each lane, merged."""
    params: list[Any] = []
    for lane in lanes:
        params += (lane, micros(before), SCHEMA, limit)
    if not params:
        return []
    rows = conn.execute(_due_sql(len(lanes)), (*params, limit))
    return [DueJob(job_id, instant(due_at)) for job_id, due_at in rows]


@cache
def _due_sql(lanes: int) -> str:
    lane = (
        "SELECT * FROM (SELECT no, due_at FROM jobs INDEXED BY jobs_due"
        " WHERE lane = ? AND due_at <= ? AND schema <= ? ORDER BY due_at LIMIT ?)"
    )
    earliest = " UNION ALL ".join([lane] * lanes) + " ORDER BY due_at LIMIT ?"
    return f"SELECT id, e.due_at FROM ({earliest}) AS e CROSS JOIN jobs USING (no) ORDER BY 2"


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
        " WHERE lane = ? AND due_at IS NOT NULL AND schema <= ? ORDER BY due_at LIMIT 1)"
    )
    return f"SELECT min(due_at) FROM ({' UNION ALL '.join([lane] * lanes)})"


# -- ready -----------------------------------------------------------------------------------


def ready(
    conn: sqlite3.Connection, queue: tuple[str, int, str], after: int, limit: int
) -> Sequence[ReadyEntry]:
    rows = conn.execute(
        "SELECT position, id, step_id FROM ready CROSS JOIN jobs ON no = job_no"
        " WHERE service = ? AND ready.lane = ? AND ready.tenant = ? AND position > ?"
        " AND schema <= ? ORDER BY position LIMIT ?",
        (*queue, after, SCHEMA, limit),
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
    return [event for event in found if event.seq > after][:limit]


# -- counts ----------------------------------------------------------------------------------


def read_counts(conn: sqlite3.Connection) -> InflightCounts:
    counts = InflightCounts()
    for *cell, count in conn.execute("SELECT tenant, lane, mode, count FROM inflight"):
        counts.add(Cell(*cell), count)
    return counts


def read_held(conn: sqlite3.Connection) -> HeldCounts:
    held = HeldCounts()
    sql = "SELECT service, lane, tenant, count(*) FROM ready GROUP BY service, lane, tenant"
    for *key, count in conn.execute(sql):
        held[QueueKey(*key)] = count
    return held
