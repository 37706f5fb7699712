"""The one thread that writes. It takes everything that is queued, commits it once, and answers all.

There is no timer: what arrives while a commit is under way forms the next batch.
"""

import asyncio
import logging
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Final

from lucius.adapters.ledgers.sqlite.batch import Batch, Call, ContradictionError, Memory, WriterCall
from lucius.adapters.ledgers.sqlite.queries import read_counts, read_held
from lucius.adapters.ledgers.sqlite.schema import ledger_error
from lucius.core.errors import (
    LedgerCorruptError,
    LedgerError,
    LedgerRowUnreadableError,
    LedgerUnavailableError,
)

# Whether the ledger's file takes writes: what the last one said, and whether any page is damaged.

ledger_log = logging.getLogger("lucius.ledger")

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
            ledger_log.error("the ledger does not take writes: %s", error)
        self.failure = error

    def took(self) -> None:
        if self.failure is not None:
            self.failure = None
            ledger_log.warning("the ledger takes writes again")

    def heard(self, error: LedgerError) -> None:
        """Any statement failed, of whoever."""
        if isinstance(error, LedgerCorruptError) and self.damage is None:
            self.damage = error
            ledger_log.error("the ledger is damaged: %s; stop, and restore a backup", error)


def fill_probe(conn: sqlite3.Connection, memory: Memory) -> int:
    sql = "INSERT OR REPLACE INTO probe (no, doc) VALUES (1, zeroblob(?))"
    return conn.execute(sql, (PROBE_BYTES,)).rowcount


def empty_probe(conn: sqlite3.Connection, memory: Memory) -> int:
    return conn.execute("DELETE FROM probe").rowcount


log = logging.getLogger("lucius.ledgers.sqlite.writer")
BY_CONTENT: Final = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    ContradictionError,
    LedgerRowUnreadableError,
    OverflowError,
    UnicodeError,
)
"""Errors that one operation causes by itself: the others of its batch are tried without it."""


AT_ONCE: Final = 64
"""Operations that are answered in one turn of the event loop: others want a turn too."""
TURNS: Final = 8
"""Turns of the event loop for which a batch waits for more, unless it has enough."""
ENOUGH: Final = 512
PROBE_PAUSE: Final = timedelta(seconds=1)
"""Between two tries at writing while writes fail, however often someone asks."""
SWITCH_SECONDS: Final = 0.0005
"""How long a busy event loop may keep the interpreter from the writer, which needs it several times a
commit. At Python's default of 5 ms, a loop that always has work cuts the throughput to a fifth."""


class Writer:
    """Lives on the event loop; its thread touches the connection and its own memory only.

    `inflight` and `held` are what was last committed, kept for readers on the loop.
    """

    def __init__(self, path: Path, conn: sqlite3.Connection) -> None:
        self.health = WriteHealth()
        self._probe_at = 0.0
        self._path = path
        self._conn = conn
        self._loop = asyncio.get_running_loop()
        self._pending: list[WriterCall] = []
        self._queue: SimpleQueue[list[WriterCall] | None] = SimpleQueue()
        self._memory: Memory | None = Memory(conn)
        self._thread = Thread(target=self._run, name="lucius-ledger-writer", daemon=True)
        self._ended = self._loop.create_future()
        self._closed = False
        self.inflight = read_counts(conn)
        self.held = read_held(conn)
        sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_SECONDS))
        self._thread.start()

    # -- on the loop -------------------------------------------------------------------------

    def submit(self, operation: Any) -> asyncio.Future[Any]:
        """Queue an operation. Its future resolves once the commit that holds it has returned."""
        future = operation.future = self._loop.create_future()
        self._queue_up([operation])
        return future

    async def submit_all(self, operations: Sequence[WriterCall]) -> None:
        """Queue operations of one commit. Each has its `outcome` when this returns."""
        if operations:
            future: asyncio.Future[Any] = self._loop.create_future()
            operations[-1].future = future  # they are committed together, so one answers for all
            self._queue_up(operations)
            with suppress(LedgerError):
                await future

    def _queue_up(self, operations: Sequence[WriterCall]) -> None:
        if self._closed:
            raise LedgerUnavailableError(f"{self._path} is closed")
        if not self._pending:
            self._loop.call_soon(self._wait_for_more, TURNS)
        self._pending += operations

    def _wait_for_more(self, turns: int) -> None:
        """A few turns of the loop: no time at all while it is idle, and a fuller batch while it is not."""
        if turns and len(self._pending) < ENOUGH:
            self._loop.call_soon(self._wait_for_more, turns - 1)
        else:
            self._hand_over()

    def _hand_over(self) -> None:
        if self._pending:
            self._queue.put(self._pending)
            self._pending = []

    async def check(self) -> None:
        """Raise why the last write failed, unless another one, tried now and then, is taken."""
        if self.health.failure is None:
            return
        if self._loop.time() >= self._probe_at:
            self._probe_at = self._loop.time() + PROBE_PAUSE.total_seconds()
            await self.submit(Call(fill_probe))
            await self.submit(Call(empty_probe))
        if self.health.failure is not None:
            raise LedgerUnavailableError(str(self.health.failure))

    async def close(self) -> None:
        """Write what is queued, then end the thread."""
        if not self._closed:
            self._closed = True
            self._hand_over()
            self._queue.put(None)
        await asyncio.shield(self._ended)
        self._thread.join()
        self._conn.close()

    def _answer(self, operations: Sequence[WriterCall], batch: Batch | None) -> None:
        if batch is None:
            outcome = operations[0].outcome
            if isinstance(outcome, LedgerError):
                self.health.failed(outcome)
        else:
            self.health.took()
            for group, change in batch.inflight:
                self.inflight.add(group, change)
            for key, change in batch.held:
                self.held.add(key, change)
        self._resolve(operations)

    def _resolve(self, operations: Sequence[WriterCall]) -> None:
        """A portion now, the rest in the next turn of the loop."""
        for operation in operations[:AT_ONCE]:
            future: asyncio.Future[Any] | None = operation.future
            if future is None or future.done():
                continue
            if isinstance(operation.outcome, Exception):
                future.set_exception(operation.outcome)
            else:
                future.set_result(operation.outcome)
        if len(operations) > AT_ONCE:
            self._loop.call_soon(self._resolve, operations[AT_ONCE:])

    # -- in the thread -----------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while operations := self._take():
                batch = self._write(operations)
                self._loop.call_soon_threadsafe(self._answer, operations, batch)
            self._loop.call_soon_threadsafe(self._ended.set_result, None)
        except RuntimeError:
            log.warning("the event loop ended before its ledger was closed")

    def _take(self) -> list[WriterCall]:
        """Wait for something to do, then take all there is; empty at the end."""
        first = self._queue.get()
        if first is None:
            return []
        operations = first
        try:
            while (more := self._queue.get_nowait()) is not None:
                operations += more
            self._queue.put(None)
        except Empty:
            pass
        return operations

    def _write(self, operations: Sequence[WriterCall]) -> Batch | None:
        """None: nothing of it is stored, and every operation knows."""
        try:
            try:
                return self._together(operations)
            except BY_CONTENT:
                self._roll_back()
                return self._one_by_one(operations)
        except Exception as error:
            self._roll_back()
            self._fail(operations, error)
            return None

    def _together(self, operations: Sequence[WriterCall]) -> Batch:
        batch = self._begin()
        batch.run(operations)
        self._conn.execute("COMMIT")
        return batch

    def _one_by_one(self, operations: Sequence[WriterCall]) -> Batch:
        """Still one transaction, but what fails by its content is undone alone."""
        whole = self._begin()
        for operation in operations:
            self._conn.execute("SAVEPOINT one")
            part = Batch(self._conn, self._known())
            try:
                part.run([operation])
            except ContradictionError:
                self._undo()
                operation.outcome = False
            except LedgerRowUnreadableError as error:
                self._undo()
                operation.outcome = error
            except BY_CONTENT as error:
                self._undo()
                operation.outcome = LedgerError(f"the ledger cannot store this: {error}")
            else:
                whole.inflight += part.inflight
                whole.held += part.held
            self._conn.execute("RELEASE one")
        self._conn.execute("COMMIT")
        return whole

    def _begin(self) -> Batch:
        self._conn.execute("BEGIN IMMEDIATE")
        return Batch(self._conn, self._known())

    def _known(self) -> Memory:
        if self._memory is None:
            self._memory = Memory(self._conn)
        return self._memory

    def _undo(self) -> None:
        self._conn.execute("ROLLBACK TO one")
        self._memory = None

    def _roll_back(self) -> None:
        """Forget what the failed batch changed: the file knows better."""
        self._memory = None
        try:
            if self._conn.in_transaction:
                self._conn.execute("ROLLBACK")
        except sqlite3.Error:
            log.exception("the ledger could not roll back")

    def _fail(self, operations: Sequence[WriterCall], error: Exception) -> None:
        if not isinstance(error, sqlite3.Error):
            log.error("a batch failed unexpectedly", exc_info=error)
        for operation in operations:
            if isinstance(error, sqlite3.Error):
                operation.outcome = ledger_error(self._path, error)
            else:
                operation.outcome = LedgerUnavailableError(f"{self._path}: {error!r}")
