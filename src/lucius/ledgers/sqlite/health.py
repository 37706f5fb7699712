"""Whether the ledger's file takes writes: what the last one said, and whether any page is damaged."""

import logging
import sqlite3
from typing import Final

from lucius.core.errors import LedgerCorruptError, LedgerError
from lucius.ledgers.sqlite.memory import Memory

log = logging.getLogger("lucius.ledger")

PROBE_BYTES: Final = 32_768
"""About as much as a new job adds to the file."""


class WriteHealth:
    def __init__(self) -> None:
        self.failure: LedgerError | None = None
        """Why the last write was not taken."""
        self.damage: LedgerCorruptError | None = None
        """A page was found damaged. No later success makes up for that: only a restart looks anew."""

    def failed(self, error: LedgerError) -> None:
        self.heard(error)
        if self.failure is None:
            log.error("the ledger does not take writes: %s", error)
        self.failure = error

    def took(self) -> None:
        if self.failure is not None:
            self.failure = None
            log.warning("the ledger takes writes again")

    def heard(self, error: LedgerError) -> None:
        """Any statement failed, of whoever."""
        if isinstance(error, LedgerCorruptError) and self.damage is None:
            self.damage = error
            log.error("the ledger is damaged: %s; stop, and restore a backup", error)


def fill_probe(conn: sqlite3.Connection, memory: Memory) -> int:
    sql = "INSERT OR REPLACE INTO probe (no, doc) VALUES (1, zeroblob(?))"
    return conn.execute(sql, (PROBE_BYTES,)).rowcount


def empty_probe(conn: sqlite3.Connection, memory: Memory) -> int:
    return conn.execute("DELETE FROM probe").rowcount
