"""Retention: old jobs that have ended, owe nothing and are needed by nobody are deleted, the claim first.

A page looks at a bounded number of old jobs, from a cursor on, so what is kept is passed once a sweep.
"""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from lucius.ledgers.sqlite.memory import Memory
from lucius.ledgers.sqlite.rows import Rows
from lucius.ledgers.sqlite.schema import ForeignErrors, check_upgraded, connect_readonly
from lucius.ledgers.stored.job_codec import SCHEMA
from lucius.ledgers.stored.json_form import micros
from lucius.ports.ledger import Pruned

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
