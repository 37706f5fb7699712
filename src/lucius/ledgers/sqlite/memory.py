"""What the writer of a SQLite ledger remembers, so that most saves need not read first."""

import sqlite3
from typing import Final

from lucius.ledgers.sqlite.queries import Positions, read_counts, read_positions

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
