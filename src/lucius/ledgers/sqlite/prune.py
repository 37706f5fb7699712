"""Retention: old jobs that have ended and owe nothing are deleted, the claim first."""

import sqlite3
from collections.abc import Callable
from datetime import datetime
from typing import Final

from lucius.ledgers.sqlite.memory import Memory
from lucius.ledgers.sqlite.rows import Rows
from lucius.ledgers.stored.job_codec import SCHEMA
from lucius.ledgers.stored.json_form import micros

# A debt has a moment at which it falls due, so a job without one owes nothing.
FIND: Final = """
    SELECT jobs.no, id, tenant, claim_hash FROM jobs LEFT JOIN plans USING (no)
    WHERE completed_at < ? AND due_at IS NULL AND schema <= ? AND NOT EXISTS (
        SELECT 1 FROM jobs AS later
        WHERE later.id = json_extract(CAST(jobs.doc AS TEXT), '$.redriven'))
    ORDER BY completed_at LIMIT ?"""
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


def pruning(before: datetime, limit: int) -> Callable[[sqlite3.Connection, Memory], int]:
    def prune(conn: sqlite3.Connection, memory: Memory) -> int:
        found = conn.execute(FIND, (micros(before), SCHEMA, limit)).fetchall()
        claims = [value for _, job_id, tenant, claim in found for value in (tenant, claim, job_id)]
        DROP_CLAIMS.run(conn, claims)
        for statement in DROP_ROWS:
            statement.run(conn, [no for no, *_ in found])
        for _, job_id, _, _ in found:
            memory.heads.pop(job_id, None)
        return len(found)

    return prune
