"""Files that a note has promised: written after its commit, not synced, and made good after a power loss.

Until a sync of their file systems has covered them, the database of the notes has their contents too. Of
one place the latest promise counts, and none once something else has been written there.
"""

import asyncio
import json
import logging
import os
import sqlite3
import time
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

from lucius.adapters.workspaces.files import (
    SYNCS_FILE_SYSTEMS,
    Placing,
    create_unsynced,
    place_alone,
    read_file,
    size_of,
    sync_file_system,
)
from lucius.adapters.workspaces.records import NewRecord, Records
from lucius.core.errors import WorkspaceError
from lucius.ports.workspace import Unrestored

log = logging.getLogger("lucius.workspaces.promises")
SETTLE_SECONDS: Final = 5.0
"""How long a file rests on its promise alone, and the sync takes after that."""
ABANDONED_SECONDS: Final = 60.0
"""After so long whoever made a promise has written the file, or has answered nobody."""
MOST_BYTES: Final = 1024 * 1024
"""Of the files of one note; more are written and synced by themselves."""
LATEST: Final = """
FROM promised AS mine
WHERE NOT EXISTS (SELECT 1 FROM promised WHERE path = mine.path AND id > mine.id)
AND (note = '' OR EXISTS (SELECT 1 FROM notes WHERE key = mine.note))
"""
"""Promises that count. A note is removed with its job, and its promises are void then."""
SETTLED: Final = """
DELETE FROM promised WHERE id IN (SELECT old.id FROM promised AS new JOIN promised AS old
ON old.path = new.path AND old.id <= new.id WHERE new.owner = ? AND new.id <= ?)
"""
"""What this process has written, and what others had promised at the same places before."""


@dataclass(frozen=True, slots=True)
class WriteAheadFile:
    path: str
    top: str
    """The folder of the workspace that it is in."""
    data: bytes


def boot_id() -> str:
    """Names this run of the operating system; empty where nobody can tell."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def process_name(pid: int | str) -> str:
    """Names a process while the system runs, as this container sees it; empty if there is none."""
    with suppress(OSError, IndexError):
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        if state not in "ZX":  # one that has ended and was not waited for
            return f"{os.stat('/proc/self/ns/pid').st_ino}-{pid}-{rest[18]}"
    return ""


def has_ended(owner: str) -> bool:
    """Whether the process that made a promise is gone for certain. In another container it may live."""
    namespace, *named = owner.split("-")
    if len(named) != 3 or namespace != process_name("self").split("-")[0]:
        return False
    return process_name(named[0]) != owner.rpartition("-")[0]


class WriteAheadFiles:
    def __init__(self, records: Records, boot: str | None = None) -> None:
        self._records = records
        self._boot = boot_id() if boot is None else boot
        self._owner = f"{process_name(os.getpid())}-{uuid4().hex[:8]}"
        self._settling: asyncio.TimerHandle | asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._systems: dict[int, int] = {}
        """By device, an open folder: whoever keeps one learns of every failure to write."""
        self._folders: dict[str, bool] = {}
        """Folders that files were written to, and whether they are closed to others."""
        self._withdrawn: list[str] = []
        self._unrestored: dict[int, Unrestored] = {}

    def supported(self, files: Sequence[WriteAheadFile]) -> bool:
        """Whether such files can be promised on this system."""
        size = sum(len(each.data) for each in files)
        return bool(self._boot) and SYNCS_FILE_SYSTEMS and size <= MOST_BYTES

    async def create(
        self,
        key: str,
        data: bytes,
        files: Sequence[WriteAheadFile],
        unless: str | None = None,
        beside: Sequence[tuple[str, bytes]] = (),
    ) -> int | None:
        """Create a note, what stays beside it, and then its files in order, up to the first that exists.

        How many were created in all. None: the note `unless` is there, and nothing was created.
        """
        now = time.monotonic()
        rows = [(e.path, e.top, e.data, self._owner, self._boot, now, key) for e in files]

        def after(won: bool | None) -> int | None:
            if won is None:
                return None
            return 1 + len(beside) + self._written(files) if won else 0

        record = NewRecord(key, data, unless, rows, beside)
        placed: int | None = await self._records.change(record, after)
        if placed is not None and placed > 1 + len(beside):
            self._settle_later()
        if self._withdrawn:
            await self._withdraw()
        return placed

    def _written(self, files: Sequence[WriteAheadFile]) -> int:
        for number, each in enumerate(files):
            if not create_unsynced(each.path, each.data, each.top, self._folders):
                self._withdrawn.extend(other.path for other in files[number:])
                return number
            self._keep_open(os.path.dirname(each.path))
        return len(files)

    def _keep_open(self, folder: str) -> None:
        device = os.stat(folder).st_dev
        if device not in self._systems:
            self._systems[device] = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)

    async def _withdraw(self) -> None:
        """What somebody else's file stands in the way of is not promised: it is promoted otherwise."""
        paths, self._withdrawn = self._withdrawn, []
        rows = [(self._owner, path) for path in paths]
        query = "DELETE FROM promised WHERE owner = ? AND path = ?"
        await self._records.change(lambda conn: conn.executemany(query, rows).rowcount)

    # -- settling ----------------------------------------------------------------------------

    def _settle_later(self) -> None:
        loop = asyncio.get_running_loop()
        if self._settling is None or self._loop is not loop:
            self._loop = loop
            self._settling = loop.call_later(SETTLE_SECONDS, self._begin_to_settle)

    def _begin_to_settle(self) -> None:
        self._settling = asyncio.get_running_loop().create_task(self._settle_and_go_on())

    async def _settle_and_go_on(self) -> None:
        try:
            await self.settle()
            self._settling = None
        except (OSError, WorkspaceError) as error:
            log.error("the files of the workspace cannot be synced, and stay promised: %s", error)
            self._settling = None
            self._settle_later()
        except RuntimeError:
            return  # the process ends: whoever comes next settles what is left

    def settle_left(self) -> None:
        """Settle soon what processes have left that ended otherwise than in order."""
        query = "SELECT 1 FROM promised WHERE boot = ? LIMIT 1"
        try:
            left = self._records.rows(query, self._boot)
        except WorkspaceError as error:
            log.error("what was promised cannot be read: %s", error)
            return
        if left:
            self._settle_later()

    async def settle(self) -> None:
        """Sync the file systems; what was promised and written before that needs no promise any more.

        Neither does what a process promised that has ended. The sync covers what it wrote; a file that is
        not there was removed since, or nobody was told of it.
        """
        last, left = await self._records.change(self._unsettled)
        closed = await asyncio.to_thread(self._sync, [path for _, path in left])
        gone = [(number,) for number, path in left if os.path.dirname(path) not in closed]

        def settled(conn: sqlite3.Connection) -> None:
            conn.execute(SETTLED, (self._owner, last))
            conn.executemany("DELETE FROM promised WHERE id = ?", gone)

        await self._records.change(settled)

    def _unsettled(self, conn: sqlite3.Connection) -> tuple[int, list[tuple[int, str]]]:
        """The last promise of this process, and those that others have left."""
        query = "SELECT coalesce(max(id), 0) FROM promised WHERE owner = ?"
        last: int = conn.execute(query, (self._owner,)).fetchone()[0]
        query = "SELECT id, path, owner, at FROM promised WHERE boot = ? AND owner != ?"
        others = conn.execute(query, (self._boot, self._owner)).fetchall()
        ended = {owner for owner in {owner for _, _, owner, _ in others} if has_ended(owner)}
        since = time.monotonic() - ABANDONED_SECONDS
        return last, [(no, path) for no, path, owner, at in others if owner in ended or at < since]

    def _sync(self, paths: Iterable[str]) -> set[str]:
        """The file systems that this process has written to, and those of files that others wrote.

        The answer: folders that cannot be opened. Their files stay promised, and keep no other from it.
        """
        closed = set()
        for folder in {os.path.dirname(path) for path in paths}:
            try:
                self._keep_open(folder)
            except (FileNotFoundError, NotADirectoryError):
                continue  # then so is the file
            except OSError as error:
                log.warning("%s cannot be synced, its files stay promised: %s", folder, error)
                closed.add(folder)
        for handle in tuple(self._systems.values()):
            sync_file_system(handle)
        return closed

    async def release(self, path: str) -> None:
        """Before something else is written there: sync what stands, and promise it no more."""
        boots = self._records.rows("SELECT boot FROM promised WHERE path = ?", path)
        if not boots:
            return
        if (self._boot,) in boots:
            closed = await asyncio.to_thread(self._sync, [path])
            if closed:
                raise WorkspaceError(f"the folder of {path} cannot be opened")
        query = "DELETE FROM promised WHERE path = ?"
        await self._records.change(lambda conn: conn.execute(query, (path,)).rowcount)

    async def close(self) -> None:
        """Settle what is left, so that a process that ends in order leaves no promises behind."""
        if self._loop is asyncio.get_running_loop():
            if isinstance(self._settling, asyncio.Task):
                await self._settling
            elif self._settling is not None:
                self._settling.cancel()
        self._settling = None
        try:
            if self._records.rows("SELECT 1 FROM promised WHERE boot = ? LIMIT 1", self._boot):
                await self.settle()
        except (OSError, WorkspaceError) as error:
            log.error("the files of the workspace cannot be synced, and stay promised: %s", error)
        for handle in self._systems.values():
            os.close(handle)
        self._systems.clear()

    # -- after a loss of power ---------------------------------------------------------------

    def recover(self) -> None:
        """Write again what an earlier run of the system promised and lost.

        A file that cannot be written is set aside until the next start; the others are not concerned.
        """
        if not self._records.exist:
            return
        try:
            conn = self._records.opened()
        except sqlite3.Error as error:
            raise WorkspaceError(
                f"{self._records.path} has the commit records of all jobs and cannot be opened: {error}."
                " Restore it from a backup"
            ) from error
        with closing(conn):
            try:
                self._restore(conn)
            except sqlite3.Error as error:
                log.error("%s: what was promised cannot be read: %s", self._records.path, error)

    def _restore(self, conn: sqlite3.Connection) -> None:
        query = "SELECT 1 FROM promised WHERE boot != ? LIMIT 1"
        if conn.execute(query, (self._boot,)).fetchone() is None:
            return
        conn.execute("BEGIN IMMEDIATE")
        query = f"SELECT id, path, top, data, note {LATEST} AND boot != ? ORDER BY id"
        rows, restored = conn.execute(query, (self._boot,)).fetchall(), 0
        self._unrestored = {}
        for number, path, top, data, record in rows:
            try:
                restored += _restored(path, top, data)
            except Exception as error:
                reason = getattr(error, "strerror", None) or str(error) or repr(error)
                self._unrestored[number] = Unrestored(str(path), _job_of(conn, record), reason)
        kept = ",".join(map(str, self._unrestored))
        conn.execute(f"DELETE FROM promised WHERE boot != ? AND id NOT IN ({kept})", (self._boot,))
        conn.execute("COMMIT")
        if restored:
            log.warning(
                "%d of %d files of the last moments were lost and are back", restored, len(rows)
            )
        for each in self._unrestored.values():
            log.error(
                "the output %s of %s was lost and cannot be written again: %s. Clear the way and"
                " start again; until then `lucius verify` names it",
                each.path,
                each.job_id,
                each.reason,
                extra={"jobId": each.job_id},
            )

    def unrestored(self) -> list[Unrestored]:
        """Files that could not be written again and are still wanted."""
        query = f"SELECT 1 {LATEST} AND id = ?"
        return [each for no, each in self._unrestored.items() if self._records.rows(query, no)]


def _job_of(conn: sqlite3.Connection, record: str) -> str:
    """The job whose note made the promise, as far as the note says so."""
    with suppress(Exception):  # whatever it says, the next promise is read
        query = "SELECT data FROM notes WHERE key = ?"
        return str(json.loads(conn.execute(query, (record,)).fetchone()[0])["job_id"])
    return "an unknown job"


def _restored(path: str, top: str, data: bytes) -> bool:
    """Whether it was lost and is back. Raises where it cannot be: also where `top` is gone, or a link."""
    if not _lost(path, data):
        return False
    if not os.path.isdir(top):
        raise WorkspaceError(f"the folder {top} is not there")
    folder = os.path.dirname(path)
    if os.path.realpath(folder) != folder:
        raise WorkspaceError(f"{folder} leads elsewhere by now")
    place_alone(Placing([(path, data)], top, over=True))
    return True


def _lost(path: str, data: bytes) -> bool:
    """Whether nothing stands there, or only what a loss of power leaves of the file: zeros, or less."""
    try:
        if size_of(path) > len(data):
            return False
        found = read_file(path)
    except FileNotFoundError:
        return True
    if found == data:
        return False
    return all(left in (0, right) for left, right in zip(found, data, strict=False))
