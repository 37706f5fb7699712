"""The records of a local workspace: small objects in one database, which many writers commit together.

It refuses to be shared by machines: SQLite needs the locks of one.
"""

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import Any, Final

from lucius.adapters.workspaces.files import RECORDS_FILE, make_folder, sync_folder
from lucius.core.errors import WorkspaceError

# Records that come together are created by a few statements, however many there are.
#
# A thread gives up the interpreter at every statement, and a busy event loop makes it wait each time.

MOST: Final = 64
"""Rows of one statement. Fewer are powers of two, so that few statements are prepared."""


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record to create, unless another one is there; with it go rows of the table `promised`.

    `beside` are objects that stay in the database, by their paths, instead of becoming files.
    """

    key: str
    data: bytes
    unless: str | None = None
    write_ahead_rows: Sequence[tuple[Any, ...]] = ()
    beside: Sequence[tuple[str, bytes]] = ()


def create_together(conn: sqlite3.Connection, creations: Sequence[NewRecord]) -> list[bool | None]:
    """For each whether it was created, in order; None: the note `unless` is there.

    Inside of a transaction that keeps others from writing.
    """
    there = _there(conn, creations)
    outcomes: list[bool | None] = []
    for each in creations:
        outcomes.append(None if each.unless in there else each.key not in there)
        if outcomes[-1]:
            there.add(each.key)
    won = [each for each, created in zip(creations, outcomes, strict=True) if created]
    _insert(conn, "notes (key, data)", [(each.key, each.data) for each in won])
    beside = {path: data for each in won for path, data in each.beside}
    _insert(conn, "notes (key, data)", list(beside.items()), how="INSERT OR REPLACE")
    write_ahead_rows = [row for each in won for row in each.write_ahead_rows]
    _insert(conn, "promised (path, top, data, owner, boot, at, note)", write_ahead_rows)
    return outcomes


def _there(conn: sqlite3.Connection, creations: Sequence[NewRecord]) -> set[str]:
    """Which of their notes exist, those that are to be created and those that keep them from it."""
    asked = {key for each in creations for key in (each.key, each.unless) if key is not None}
    found: set[str] = set()
    for portion in _portions(list(asked)):
        query = _repeated("SELECT key FROM notes WHERE key IN ({})", 1, len(portion))
        found.update(key for (key,) in conn.execute(query, portion))
    return found


def _insert(
    conn: sqlite3.Connection, table: str, rows: Sequence[tuple[Any, ...]], how: str = "INSERT"
) -> None:
    for portion in _portions(rows):
        query = _repeated(f"{how} INTO {table} VALUES {{}}", len(portion[0]), len(portion))
        conn.execute(query, [value for row in portion for value in row])


def _portions(rows: Sequence[Any]) -> Iterator[Sequence[Any]]:
    start = 0
    while (left := len(rows) - start) > 0:
        size = min(MOST, 1 << (left.bit_length() - 1))
        yield rows[start : start + size]
        start += size


@cache
def _repeated(query: str, width: int, count: int) -> str:
    row = ",".join("?" * width)
    return query.format(",".join([row if width == 1 else f"({row})"] * count))


BUSY_SECONDS: Final = 30.0
QUICK_SECONDS: Final = 0.05
"""While commits take less, new notes are committed on the loop itself: a thread gives up the interpreter at
every system call, and has to wait for it each time. A disk that is slower is waited for in a thread."""
SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS notes (
    no INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS promised (
    id INTEGER PRIMARY KEY AUTOINCREMENT, path TEXT NOT NULL, top TEXT NOT NULL, data BLOB NOT NULL,
    owner TEXT NOT NULL, boot TEXT NOT NULL, at REAL NOT NULL, note TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS promised_places ON promised (path, owner, boot, at);
"""
RecordChange = Callable[[sqlite3.Connection], Any]
Wanted = tuple[str, asyncio.Future[bytes | None]]
"""The key of a note that is to be read, and who waits for it."""


@dataclass(slots=True)
class Asked:
    change: RecordChange | NewRecord
    after: Callable[[Any], Any]
    """What is done once the change is durable; its answer is the caller's."""
    answered: asyncio.Future[Any]
    outcome: Any = None
    error: Exception | None = None


class Records:
    """Changes come from one event loop and run in a thread, those that wait in one transaction."""

    def __init__(self, folder: str) -> None:
        self.path = os.path.join(folder, RECORDS_FILE)
        self._writing: sqlite3.Connection | None = None
        self._reading: sqlite3.Connection | None = None
        self._lock = Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asked: list[Asked] = []
        self._wanted: list[Wanted] = []
        self._committing: asyncio.Task[None] | None = None
        self._took = 0.0
        """Seconds that the last commit took."""

    @property
    def exist(self) -> bool:
        return os.path.exists(self.path)

    # -- reading -----------------------------------------------------------------------------

    async def read(self, key: str) -> bytes | None:
        """Whoever asks in the same turn of the loop shares one look at the database."""
        loop = asyncio.get_running_loop()
        if not self._wanted or self._wanted[0][1].get_loop() is not loop:
            self._wanted = []
            loop.call_soon(self._answer, self._wanted)
        found: asyncio.Future[bytes | None] = loop.create_future()
        self._wanted.append((key, found))
        return await found

    def _answer(self, wanted: list[Wanted]) -> None:
        if self._wanted is wanted:
            self._wanted = []
        try:
            found = self._found([key for key, _ in wanted])
        except Exception as error:
            failure: Exception | None = error
        else:
            failure = None
        for key, answer in wanted:
            if answer.done():
                continue  # whoever asked has gone
            if failure is None:
                answer.set_result(found.get(key))
            else:
                answer.set_exception(failure)

    def _found(self, keys: Sequence[str]) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for start in range(0, len(keys), MOST):
            portion = keys[start : start + MOST]
            marks = ",".join("?" * len(portion))
            query = f"SELECT key, data FROM notes WHERE key IN ({marks})"
            found.update(self.rows(query, *portion))
        return found

    def below(self, folder: str) -> list[str]:
        """The keys below a folder."""
        ends = folder.rstrip("/") + "/", folder.rstrip("/") + "0"  # "0" follows "/"
        found = self.rows("SELECT key FROM notes WHERE key > ? AND key < ? ORDER BY key", *ends)
        return [key for (key,) in found]

    def rows(self, query: str, *values: object) -> list[Any]:
        """What a query finds; nothing where there is no database."""
        with self._lock:
            try:
                if self._reading is None:
                    if not self.exist:
                        return []
                    self._reading = self.opened()
                return self._reading.execute(query, values).fetchall()
            except sqlite3.Error as error:
                raise self._failure(error) from error

    def opened(self) -> sqlite3.Connection:
        """For its owner alone, as the records have what documents say."""
        folder = os.path.dirname(self.path)
        make_folder(folder, folder)
        with suppress(FileExistsError):
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            sync_folder(folder)
        made = sqlite3.connect(
            self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        made.execute("PRAGMA journal_mode = WAL")
        made.execute("PRAGMA synchronous = FULL")
        made.executescript(SCHEMA)
        return made

    async def close(self) -> None:
        """Whoever asks later opens it again."""
        if self._committing is not None and self._loop is asyncio.get_running_loop():
            await self._committing
        with self._lock:
            for each in (self._reading, self._writing):
                if each is not None:
                    each.close()
            self._reading = self._writing = None

    def _failure(self, error: Exception) -> WorkspaceError:
        return WorkspaceError(f"{self.path}: {error}")

    # -- changing ----------------------------------------------------------------------------

    async def change(
        self, change: RecordChange | NewRecord, after: Callable[[Any], Any] = lambda found: found
    ) -> Any:
        """What `after` makes of the change's outcome, once that is durable.

        Of a creation that is whether the note was created; None: `unless` kept it from being.
        """
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._asked, self._committing = loop, [], None
        asked = Asked(change, after, loop.create_future())
        self._asked.append(asked)
        if self._committing is None:
            self._committing = loop.create_task(self._commit_while_asked())
        return await asked.answered

    async def _commit_while_asked(self) -> None:
        while self._asked:
            asked, self._asked = self._asked, []
            if not self._is_quick(asked) or not self._commit(asked, patience=0.0):
                await asyncio.to_thread(self._commit, asked)
            for each in asked:
                if each.answered.done():
                    continue
                if each.error is None:
                    each.answered.set_result(each.outcome)
                else:
                    each.answered.set_exception(each.error)
        self._committing = None

    def _is_quick(self, asked: Sequence[Asked]) -> bool:
        new = all(type(each.change) is NewRecord for each in asked)
        return new and self._took < QUICK_SECONDS and self._writing is not None

    def _commit(self, asked: Sequence[Asked], patience: float = BUSY_SECONDS) -> bool:
        """False: somebody else writes for longer than this is to wait, and nothing was done."""
        began = time.monotonic()
        try:
            if not self._committed(asked, patience):
                return False
        except Exception as error:
            failure = self._failure(error)
            for each in asked:
                each.error = failure
        for each in asked:
            try:
                if each.error is None:
                    each.outcome = each.after(each.outcome)
            except Exception as error:
                each.error = error
        self._took = time.monotonic() - began
        return True

    def _committed(self, asked: Sequence[Asked], patience: float) -> bool:
        if self._writing is None:
            self._writing = self.opened()
        self._writing.execute(f"PRAGMA busy_timeout = {int(patience * 1000)}")
        try:
            self._writing.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if not patience and error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
                return False
            raise
        try:
            _make(self._writing, asked)
            self._writing.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                self._writing.execute("ROLLBACK")
            raise
        return True


def _make(conn: sqlite3.Connection, asked: Sequence[Asked]) -> None:
    """Creations first: all together are a few statements."""
    creations = [(each, each.change) for each in asked if isinstance(each.change, NewRecord)]
    made = create_together(conn, [creation for _, creation in creations])
    for (each, _), outcome in zip(creations, made, strict=True):
        each.outcome = outcome
    for each in asked:
        if not isinstance(each.change, NewRecord):
            each.outcome = each.change(conn)


def written(conn: sqlite3.Connection, key: str, data: bytes) -> None:
    conn.execute("INSERT OR REPLACE INTO notes (key, data) VALUES (?, ?)", (key, data))


def removed(conn: sqlite3.Connection, path: str, *, whole: bool) -> None:
    """Remove a record, or everything below a folder, and the write-ahead copies of files there."""
    ends = (path.rstrip("/") + "/", path.rstrip("/") + "0") if whole else (path, path)
    within = "BETWEEN ? AND ?"
    conn.execute(f"DELETE FROM notes WHERE key {within}", ends)
    conn.execute(f"DELETE FROM promised WHERE path {within}", ends)
