"""Notes in the SQLite file: small rows with a stamp, written by the one writer like everything else."""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from uuid import uuid4

from lucius.core.errors import LedgerCorruptError
from lucius.ledgers.sqlite.batch import Call
from lucius.ledgers.sqlite.memory import Memory
from lucius.ledgers.sqlite.schema import ForeignErrors
from lucius.ledgers.sqlite.writer import Writer
from lucius.ledgers.stored.json_form import dumps, loads
from lucius.ports.leases import LeaseRow

log = logging.getLogger("lucius.ledger")
ALL: Final = "SELECT key, holder, content, stamp FROM notes ORDER BY key"
ADD: Final = "INSERT OR IGNORE INTO notes (holder, content, stamp, key) VALUES (?, ?, ?, ?)"
CHANGE: Final = "UPDATE notes SET holder = ?, content = ?, stamp = ? WHERE key = ? AND stamp = ?"
DROP: Final = "DELETE FROM notes WHERE key = ? AND stamp = ?"


class SqliteNotes:
    def __init__(
        self, reader: sqlite3.Connection, writing: Callable[[], Writer], foreign: ForeignErrors
    ) -> None:
        self._reader = reader
        self._writing = writing
        self._foreign = foreign
        self._damaged: set[str] = set()

    async def rows(self) -> Sequence[LeaseRow]:
        with self._foreign:
            found = self._reader.execute(ALL).fetchall()
        return [
            LeaseRow(str(key), holder, self._read(str(key), content), stamp)
            for key, holder, content, stamp in found
        ]

    def _read(self, key: str, content: Any) -> Mapping[str, Any]:
        """A damaged note is empty to its readers, who know what to do without it. The log names it once."""
        try:
            note = loads(content)
            if not isinstance(note, dict):
                raise LedgerCorruptError(f"it is no object: {note!r:.100}")
        except (LedgerCorruptError, TypeError, ValueError) as error:
            if key not in self._damaged:
                log.error("the stored note %s cannot be read: %s", key, error)
            self._damaged.add(key)
            return {}
        return note

    async def put(self, row: LeaseRow) -> str | None:
        stamp, guard = uuid4().hex, (row.etag,) if row.etag is not None else ()
        values = (row.holder, dumps(dict(row.content)), stamp, row.key, *guard)
        return stamp if await self._write(CHANGE if guard else ADD, values) else None

    async def put_all(self, rows: Sequence[LeaseRow]) -> Sequence[str | None]:
        """In one turn of the writer: what comes together is committed together."""
        return await asyncio.gather(*map(self.put, rows))

    async def delete(self, row: LeaseRow) -> bool:
        return bool(await self._write(DROP, (row.key, row.etag)))

    async def _write(self, sql: str, values: tuple[object, ...]) -> int:
        """How many rows it touched."""

        def act(conn: sqlite3.Connection, memory: Memory) -> int:
            return conn.execute(sql, values).rowcount

        touched: int = await self._writing().submit(Call(act))
        return touched
