"""Statements that take many rows at once.

A thread that runs one statement a row gives up the interpreter lock at every row, and a busy event
loop makes it wait for milliseconds each time. So each kind of write is one statement a batch. Sizes
are powers of two, so that few statements are prepared; rows of nulls fill up and match nothing.
"""

import sqlite3
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

MOST: Final = 256


class Rows:
    """One kind of statement: `sql` has `{values}` where its rows go, `width` columns each."""

    __slots__ = ("_sql", "width")

    def __init__(self, width: int, sql: str) -> None:
        self._sql = sql
        self.width = width

    def run(self, conn: sqlite3.Connection, flat: Sequence[Any]) -> int:
        """Execute for all rows, given as one flat list. Returns how many rows were touched."""
        touched = 0
        for params, size in self._portions(flat):
            touched += conn.execute(_statement(self._sql, self.width, size), params).rowcount
        return touched

    def fetch(self, conn: sqlite3.Connection, flat: Sequence[Any]) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        for params, size in self._portions(flat):
            found += conn.execute(_statement(self._sql, self.width, size), params).fetchall()
        return found

    def _portions(self, flat: Sequence[Any]) -> list[tuple[list[Any], int]]:
        width, portions = self.width, []
        for start in range(0, len(flat), MOST * width):
            params = list(flat[start : start + MOST * width])
            count = len(params) // width
            size = 1 << (count - 1).bit_length()
            params += [None] * ((size - count) * width)
            portions.append((params, size))
        return portions


@cache
def _statement(sql: str, width: int, size: int) -> str:
    row = f"({','.join('?' * width)})"
    return sql.format(values=",".join([row] * size))


FIND_HEADS: Final = Rows(
    1,
    "SELECT id, no, version, state, schema, ready FROM (VALUES {values}) AS v"
    " CROSS JOIN jobs ON jobs.id = v.column1",
)
FIND_CLAIMS: Final = Rows(
    2,
    "SELECT c.tenant, c.claim_hash, c.body_hash, c.keyed, c.job_id, jobs.state"
    " FROM (VALUES {values}) AS v"
    " CROSS JOIN claims AS c ON c.tenant = v.column1 AND c.claim_hash = v.column2"
    " LEFT JOIN jobs ON jobs.id = c.job_id",
)
PUT_CLAIMS: Final = Rows(
    5,
    "INSERT OR REPLACE INTO claims (tenant, claim_hash, body_hash, keyed, job_id)"
    " SELECT * FROM (VALUES {values}) WHERE column1 IS NOT NULL",
)
ADD_JOBS: Final = Rows(
    16,
    "INSERT INTO jobs (no, id, tenant, request_type, created_at, lane, mode, state, version,"
    " schema, dlq, completed_at, due_at, ready, doc, redrive_of)"
    " SELECT * FROM (VALUES {values}) WHERE column1 IS NOT NULL",
)
ADD_PLANS: Final = Rows(
    4,
    "INSERT INTO plans (no, claim_hash, keyed, doc)"
    " SELECT * FROM (VALUES {values}) WHERE column1 IS NOT NULL",
)
ADD_EVENTS: Final = Rows(
    3,
    "INSERT INTO events (job_no, last_seq, doc)"
    " SELECT * FROM (VALUES {values}) WHERE column1 IS NOT NULL",
)
MOVE_JOBS: Final = Rows(
    5,
    "UPDATE jobs SET version = column3, due_at = column4, doc = column5 FROM (VALUES {values})"
    " WHERE no = column1 AND version = column2",
)
"""The common case: neither the state nor any index but the due one changes."""
CHANGE_JOBS: Final = Rows(
    10,
    "UPDATE jobs SET version = column3, due_at = column4, doc = column5, state = column6,"
    " schema = column7, dlq = column8, completed_at = column9, ready = column10"
    " FROM (VALUES {values}) WHERE no = column1 AND version = column2",
)
ADD_READY: Final = Rows(
    6,
    "INSERT INTO ready (service, lane, tenant, position, job_no, step_id)"
    " SELECT * FROM (VALUES {values}) WHERE column1 IS NOT NULL",
)
DROP_READY: Final = Rows(
    4,
    "DELETE FROM ready WHERE (service, lane, tenant, position) IN ("
    " SELECT r.service, r.lane, r.tenant, r.position FROM (VALUES {values}) CROSS JOIN ready AS r"
    " ON r.service = column1 AND r.lane = column2 AND r.tenant = column3"
    " AND r.position = column4)",
)
COUNT: Final = Rows(
    4,
    "INSERT INTO inflight (tenant, lane, mode, count)"
    " SELECT * FROM (VALUES {values}) WHERE column1 IS NOT NULL"
    " ON CONFLICT DO UPDATE SET count = count + excluded.count",
)
