"""Bare SQLite: what a ledger wrote, in the same transactions, from a plain loop without a ledger.

Once with the very statements of the ledger, which take many rows each, and once with one statement a row,
as a program without them would.
"""

import shutil
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from lucius.adapters.ledgers.sqlite import rows
from lucius.adapters.ledgers.sqlite.ledger import SqliteLedger
from lucius.adapters.ledgers.sqlite.schema import connect

Statement = tuple[str, Sequence[Any]]
Row = Sequence[Any]


class Recorder:
    """A connection that notes every statement that writes."""

    def __init__(self, conn: sqlite3.Connection) -> None:
        self._conn = conn
        self.statements: list[Statement] = []

    def execute(self, sql: str, params: Any = ()) -> sqlite3.Cursor:
        if not sql.startswith("SELECT"):
            self.statements.append((sql, params))
        return self._conn.execute(sql, params)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._conn, name)

    @property
    def commits(self) -> int:
        return sum(sql == "COMMIT" for sql, _ in self.statements)


def record(ledger: SqliteLedger) -> Recorder:
    """From now on every statement of this ledger is noted."""
    writer = ledger._writing()
    recorder = Recorder(writer._conn)
    writer._conn = recorder  # type: ignore[assignment]
    return recorder


# -- the ledger's own statements -------------------------------------------------------------


def replay(start: Path, statements: Sequence[Statement], target: Path) -> float:
    """Seconds to run them on a copy of the file that the ledger started from."""
    conn = connect(Path(shutil.copy(start, target)))
    started = time.perf_counter()
    for sql, params in statements:
        conn.execute(sql, params)
    seconds = time.perf_counter() - started
    conn.close()
    return seconds


# -- one statement a row ---------------------------------------------------------------------

BY_ROW: Final[dict[rows.Rows, str]] = {
    rows.PUT_CLAIMS: "INSERT OR REPLACE INTO claims (tenant, claim_hash, body_hash, keyed, job_id)"
    " VALUES (?, ?, ?, ?, ?)",
    rows.ADD_JOBS: "INSERT INTO jobs (no, id, tenant, request_type, created_at, lane, mode, state,"
    " version, schema, dlq, completed_at, due_at, ready, doc, redrive_of)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    rows.ADD_PLANS: "INSERT INTO plans (no, claim_hash, keyed, doc) VALUES (?, ?, ?, ?)",
    rows.ADD_EVENTS: "INSERT INTO events (job_no, last_seq, doc) VALUES (?, ?, ?)",
    rows.MOVE_JOBS: "UPDATE jobs SET version = ?3, due_at = ?4, doc = ?5"
    " WHERE no = ?1 AND version = ?2",
    rows.CHANGE_JOBS: "UPDATE jobs SET version = ?3, due_at = ?4, doc = ?5, state = ?6,"
    " schema = ?7, dlq = ?8, completed_at = ?9, ready = ?10 WHERE no = ?1 AND version = ?2",
    rows.ADD_READY: "INSERT INTO ready (service, lane, tenant, position, job_no, step_id)"
    " VALUES (?, ?, ?, ?, ?, ?)",
    rows.DROP_READY: "DELETE FROM ready"
    " WHERE service = ? AND lane = ? AND tenant = ? AND position = ?",
    rows.COUNT: "INSERT INTO inflight (tenant, lane, mode, count) VALUES (?, ?, ?, ?)"
    " ON CONFLICT DO UPDATE SET count = count + excluded.count",
}


def replay_by_row(start: Path, statements: Sequence[Statement], target: Path) -> float:
    """The same rows in the same transactions, each row by a statement of its own."""
    prepared = [by_row(statement) for statement in statements]
    conn = connect(Path(shutil.copy(start, target)))
    started = time.perf_counter()
    for sql, params in prepared:
        if params:
            conn.executemany(sql, params)
        else:
            conn.execute(sql)
    seconds = time.perf_counter() - started
    conn.close()
    return seconds


def by_row(statement: Statement) -> tuple[str, list[Row]]:
    """The plain statement and its rows. What takes no rows, such as COMMIT, stays as it is."""
    sql, params = statement
    for kind, plain in BY_ROW.items():
        if sql.startswith(kind._sql.partition("{values}")[0]):
            return plain, list(_rows(params, kind.width))
    if "(VALUES" in sql:
        raise LookupError(f"no plain form is known of: {sql[:80]}")
    return sql, [params] if params else []


def _rows(flat: Sequence[Any], width: int) -> Iterator[Row]:
    """Without the rows of nulls that only fill up."""
    for start in range(0, len(flat), width):
        if flat[start] is not None:
            yield tuple(flat[start : start + width])
