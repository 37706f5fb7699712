"""The embedded ledger: one SQLite file, one writing process, nothing acknowledged before it is durable."""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self
from uuid import uuid4

from lucius.adapters.ledgers import LEDGERS
from lucius.adapters.ledgers.rules import Unreadable, matches_inside
from lucius.adapters.ledgers.sqlite import lists, queries
from lucius.adapters.ledgers.sqlite.backup import WriterLock, write_backup
from lucius.adapters.ledgers.sqlite.batch import Call, Create, Memory, Save
from lucius.adapters.ledgers.sqlite.schema import (
    MIGRATIONS,
    ForeignErrors,
    Migration,
    allocate_log,
    connect,
    connect_readonly,
    migrate,
    probe,
)
from lucius.adapters.ledgers.sqlite.upkeep import PrunePage, count_prunable, verify_file
from lucius.adapters.ledgers.sqlite.writer import WriteHealth, Writer
from lucius.adapters.ledgers.stored.json_form import dumps, loads
from lucius.core.effects import Event
from lucius.core.errors import LedgerCorruptError, LedgerError, LedgerRowUnreadableError
from lucius.core.job import Job
from lucius.ports.leases import LeaseRow
from lucius.ports.ledger import (
    NO_LIMITS,
    AnswerWrites,
    Claim,
    CreateOutcome,
    Drift,
    DueJob,
    Inflight,
    JobPage,
    JobQuery,
    JobSave,
    LedgerCapabilities,
    Limits,
    Pruned,
    ReadyEntry,
    ReadyQueue,
    Taken,
    Write,
    WriteOutcome,
    looks_inside,
)
from lucius.system.machine import private_folder

# Notes in the SQLite file: small rows with a stamp, written by the one writer like everything else.

log = logging.getLogger("lucius.ledger")
ALL: Final = "SELECT key, holder, content, stamp FROM notes ORDER BY key"
ADD: Final = "INSERT OR IGNORE INTO notes (holder, content, stamp, key) VALUES (?, ?, ?, ?)"
CHANGE: Final = "UPDATE notes SET holder = ?, content = ?, stamp = ? WHERE key = ? AND stamp = ?"
DROP: Final = "DELETE FROM notes WHERE key = ? AND stamp = ?"


class SqliteSharedRecords:
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


TEXT_IDS: Final = "UPDATE jobs SET id = 'damaged ' || hex(id) WHERE id >= x''"
"""An id that is no text cannot be named. As text, it makes its job one that cannot be read."""
PRUNED_AT_ONCE: Final = 256
FAR: Final = datetime.max.replace(tzinfo=UTC)
LOOKED_INSIDE: Final = 20
"""Pages that are read for one, where what is asked for is inside the jobs."""
DECODED_AT_ONCE: Final = 10
"""Jobs of a list that are decoded before other tasks get a turn."""


class SqliteLedger:
    """Reads are small and run on the event loop; writes go through the one writer thread."""

    capabilities = LedgerCapabilities(exact_limits=True)

    def __init__(
        self,
        path: Path,
        reader: sqlite3.Connection,
        writer: Writer | None = None,
        lock: WriterLock | None = None,
    ) -> None:
        self.path = path
        self._reader = reader
        self._writer = writer
        self._lock = lock
        self._health = writer.health if writer is not None else WriteHealth()
        self._foreign = ForeignErrors(path, self._health.heard)
        self._counting = asyncio.Lock()
        self._unreadable = Unreadable()

    @classmethod
    async def open(cls, path: Path | str, *, migrations: Sequence[Migration] = MIGRATIONS) -> Self:
        """Open to write, creating or upgrading the file.

        Raises LedgerLockedError, LedgerCorruptError or LedgerTooNewError, and then leaves it as it is.
        """
        path = Path(path)
        private_folder(path.parent)
        lock = WriterLock(path)
        try:
            probe(path, len(migrations))
            with ForeignErrors(path):
                conn = _connect(path, migrations)
                return cls(path, connect_readonly(path), Writer(path, conn), lock)
        except BaseException:
            lock.release()
            raise

    @classmethod
    async def open_readonly(cls, path: Path | str) -> Self:
        """Open to read only, beside a process that may be writing."""
        path = Path(path)
        if not path.exists():
            raise LedgerError(f"there is no ledger at {path}")
        probe(path)
        with ForeignErrors(path):
            return cls(path, connect_readonly(path))

    async def close(self) -> None:
        self._reader.close()
        if self._writer is not None:
            await self._writer.close()
        if self._lock is not None:
            self._lock.release()

    # -- writing -----------------------------------------------------------------------------

    def _writing(self) -> Writer:
        if self._writer is None:
            raise LedgerError(f"{self.path} is open for reading only")
        return self._writer

    def shared_records(self) -> SqliteSharedRecords:
        return SqliteSharedRecords(self._reader, self._writing, self._foreign)

    async def claimed(self, claim: Claim) -> Taken | None:
        with self._foreign:
            return queries.claimed(self._reader, claim)

    async def create(
        self, claim: Claim, job: Job, events: Sequence[Event], limits: Limits = NO_LIMITS
    ) -> CreateOutcome:
        outcome: CreateOutcome = await self._writing().submit(Create(claim, job, events, limits))
        return outcome

    async def save(self, job: Job, expected: int, events: Sequence[Event]) -> bool:
        saved: bool = await self._writing().submit(Save(job, expected, events))
        return saved

    async def save_all(self, writes: Sequence[Write], answered: AnswerWrites) -> None:
        """One commit for all of them, and one answer."""
        answers: list[tuple[int, WriteOutcome]] = []
        operations: list[Save | Create] = []
        places: list[int] = []
        for place, write in enumerate(writes):
            try:
                if isinstance(write, JobSave):
                    operations.append(Save(write.job, write.expected, write.events))
                else:
                    operations.append(Create(write.claim, write.job, write.events, write.limits))
                places.append(place)
            except Exception as error:  # its content cannot be stored: the others can
                answers.append((place, error))
        try:
            await self._writing().submit_all(operations)
        except LedgerError as error:
            answers += [(place, error) for place in places]
        else:
            for place, operation in zip(places, operations, strict=True):
                assert operation.outcome is not None, "it was committed"
                answers.append((place, operation.outcome))
        answered(answers)

    async def prune(self, before: datetime, limit: int, cursor: str | None = None) -> Pruned:
        """One short transaction, so that other writers do not wait long for it."""
        page = PrunePage(before, min(limit, PRUNED_AT_ONCE), cursor)
        await self._writing().submit(Call(page))
        return page.pruned

    async def prunable(self, before: datetime) -> int:
        return await asyncio.to_thread(count_prunable, self.path, before)

    # -- reading -----------------------------------------------------------------------------

    async def load(self, job_id: str) -> Job | None:
        try:
            with self._foreign:
                job = queries.load(self._reader, job_id)
        except LedgerRowUnreadableError as error:
            self._unreadable.note(error)
            raise
        self._unreadable.forget(job_id)
        return job

    async def unreadable(self) -> int:
        return len(self._unreadable)

    async def due(
        self,
        before: datetime,
        lanes: Collection[int],
        limit: int,
        after: DueJob | None = None,
    ) -> Sequence[DueJob]:
        with self._foreign:
            found = queries.due(self._reader, before, lanes, limit + len(self._unreadable), after)
        return self._unreadable.leave_out(found, limit)

    async def next_due(self, lanes: Collection[int]) -> datetime | None:
        if self._unreadable:
            first = await self.due(FAR, lanes, 1)
            return first[0].due_at if first else None
        with self._foreign:
            return queries.next_due(self._reader, lanes)

    async def ready_queues(self, lanes: Collection[int]) -> Sequence[ReadyQueue]:
        with self._foreign:
            held = self._writer.held if self._writer else queries.read_held(self._reader)
        return held.view(frozenset(lanes))

    async def ready(
        self, queue_name: str, lane: int, tenant_id: str, limit: int
    ) -> Sequence[ReadyEntry]:
        queue = (queue_name, lane, tenant_id)
        with self._foreign:
            found = queries.ready(self._reader, queue, limit + len(self._unreadable))
        return self._unreadable.leave_out(found, limit)

    async def list(self, query: JobQuery) -> JobPage:
        """A query that looks inside reads on while jobs do not match, for a bounded number of pages."""
        page = await self._page(query)
        if not looks_inside(query):
            return page
        jobs, cursor = list(page.jobs), page.next_cursor
        for _ in range(LOOKED_INSIDE):
            if cursor is None or len(jobs) >= query.limit:
                break
            rest = replace(query, limit=query.limit - len(jobs), cursor=cursor)
            page = await self._page(rest)
            jobs += page.jobs
            cursor = page.next_cursor
        return JobPage(jobs, cursor)

    async def _page(self, query: JobQuery) -> JobPage:
        with self._foreign:
            found = lists.find(self._reader, query)
        jobs: list[Job] = []
        for start in range(0, len(found.rows), DECODED_AT_ONCE):
            jobs += lists.decode(found.rows[start : start + DECODED_AT_ONCE], self._unreadable)
            await asyncio.sleep(0)
        kept = [job for job in jobs if matches_inside(query, job)]
        return JobPage(kept, lists.next_cursor(query, found))

    async def count(self, query: JobQuery) -> int:
        """Beside the event loop, and one at a time: it reads as much of an index as there are jobs."""
        async with self._counting:
            return await asyncio.to_thread(lists.count_in, self.path, query)

    async def events(self, job_id: str, after: int, limit: int) -> Sequence[Event]:
        with self._foreign:
            return queries.events(self._reader, job_id, after, limit)

    async def inflight(self) -> Inflight:
        with self._foreign:
            writer = self._writer
            counts = writer.inflight if writer else queries.read_counts(self._reader)
        return counts.view()

    # -- keeping -----------------------------------------------------------------------------

    async def check(self) -> None:
        if self._health.damage is not None:
            raise LedgerCorruptError(str(self._health.damage))
        if self._writer is not None:
            await self._writer.check()
        with self._foreign:
            self._reader.execute("SELECT 1 FROM inflight LIMIT 1").fetchone()

    async def verify(self) -> Sequence[Drift]:
        return await asyncio.to_thread(verify_file, self.path)

    async def backup(self, target: Path | str) -> None:
        """Copy the ledger as it is now, while it is being written. The copy appears whole or not at all."""
        await asyncio.to_thread(write_backup, self.path, Path(target))


def _connect(path: Path, migrations: Sequence[Migration]) -> sqlite3.Connection:
    path.touch(0o600)  # SQLite gives its log and index the mode of the file
    conn = connect(path)
    try:
        migrate(conn, migrations)
        conn.execute(TEXT_IDS)
        allocate_log(conn)
    except BaseException:
        conn.close()
        raise
    return conn


async def open_ledger(given: Mapping[str, str], *, readonly: bool = False) -> SqliteLedger:
    path = Path(given["LUCIUS_DATA_DIR"]) / LEDGERS["sqlite"].file
    return await (SqliteLedger.open_readonly(path) if readonly else SqliteLedger.open(path))
