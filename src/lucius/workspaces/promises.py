"""Files that a note has promised: written after its commit, not synced, and made good after a power loss.

Until a sync of their file systems has covered them, the database of the notes has their contents too.
"""

import asyncio
import logging
import os
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from lucius.core.errors import WorkspaceError
from lucius.workspaces.creations import NewNote
from lucius.workspaces.files import (
    SYNCS_FILE_SYSTEMS,
    create_unsynced,
    read_file,
    sync_file_system,
)
from lucius.workspaces.notes import Notes
from lucius.workspaces.together import Placing, place_alone

log = logging.getLogger(__name__)
SETTLE_SECONDS: Final = 5.0
"""How long a file rests on its promise alone, and the sync takes after that."""
ABANDONED_SECONDS: Final = 60.0
"""After so long whoever made a promise has written the file, or has answered nobody."""
MOST_BYTES: Final = 1024 * 1024
"""Of the files of one note; more are written and synced by themselves."""


@dataclass(frozen=True, slots=True)
class PromisedFile:
    path: str
    top: str
    """The folder of the workspace that it is in."""
    data: bytes


def boot_id() -> str:
    """Names this run of the operating system; empty where nobody can tell."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


class Promises:
    def __init__(self, notes: Notes, boot: str | None = None) -> None:
        self._notes = notes
        self._boot = boot_id() if boot is None else boot
        self._owner = uuid4().hex
        self._settling: asyncio.TimerHandle | asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._systems: dict[int, int] = {}
        """By device, an open folder: whoever keeps one learns of every failure to write."""
        self._folders: dict[str, bool] = {}
        """Folders that files were written to, and whether they are closed to others."""
        self._tops: set[str] = set()
        """Folders whose file systems are among them."""
        self._withdrawn: list[str] = []

    def kept(self, files: Sequence[PromisedFile]) -> bool:
        """Whether such files can be promised on this system."""
        size = sum(len(each.data) for each in files)
        return bool(self._boot) and SYNCS_FILE_SYSTEMS and size <= MOST_BYTES

    async def create(
        self, key: str, data: bytes, files: Sequence[PromisedFile], unless: str | None = None
    ) -> int | None:
        """Create a note, and then its files in order, up to the first that exists: how many in all.

        None: the note `unless` is there, and nothing was created.
        """
        now = time.monotonic()
        rows = [(e.path, e.top, e.data, self._owner, self._boot, now) for e in files]

        def after(won: bool | None) -> int | None:
            if won is None:
                return None
            return 1 + self._written(files) if won else 0

        placed: int | None = await self._notes.change(NewNote(key, data, unless, rows), after)
        if placed is not None and placed > 1:
            self._settle_later()
        if self._withdrawn:
            await self._withdraw()
        return placed

    def _written(self, files: Sequence[PromisedFile]) -> int:
        for number, each in enumerate(files):
            if not create_unsynced(each.path, each.data, each.top, self._folders):
                self._withdrawn.extend(other.path for other in files[number:])
                return number
            if each.top not in self._tops:
                self._keep_open(each.top)
        return len(files)

    def _keep_open(self, top: str) -> None:
        self._tops.add(top)
        device = os.stat(top).st_dev
        if device not in self._systems:
            self._systems[device] = os.open(top, os.O_RDONLY | os.O_CLOEXEC)

    async def _withdraw(self) -> None:
        """What somebody else's file stands in the way of is not promised: it is promoted otherwise."""
        paths, self._withdrawn = self._withdrawn, []
        rows = [(self._owner, path) for path in paths]
        query = "DELETE FROM promised WHERE owner = ? AND path = ?"
        await self._notes.change(lambda conn: conn.executemany(query, rows).rowcount)

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

    async def settle(self) -> None:
        """Sync the file systems; what was promised and written before that needs no promise any more."""
        last = await self._notes.change(self._last)
        await asyncio.to_thread(self._sync)
        kept_since = time.monotonic() - ABANDONED_SECONDS
        values = (self._boot, self._owner, last, kept_since)
        query = "DELETE FROM promised WHERE boot = ? AND ((owner = ? AND id <= ?) OR at < ?)"
        await self._notes.change(lambda conn: conn.execute(query, values).rowcount)

    def _last(self, conn: sqlite3.Connection) -> int:
        query = "SELECT coalesce(max(id), 0) FROM promised WHERE owner = ?"
        found: int = conn.execute(query, (self._owner,)).fetchone()[0]
        return found

    def _sync(self) -> None:
        for handle in tuple(self._systems.values()):
            sync_file_system(handle)

    # -- after a loss of power ---------------------------------------------------------------

    def recover(self) -> int:
        """Write again what an earlier run of the system promised and lost: how many files that were."""
        if not self._notes.exist:
            return 0
        with closing(self._notes.opened()) as conn:
            query = "SELECT id, path, top, data FROM promised WHERE boot != ? ORDER BY id"
            if conn.execute(query, (self._boot,)).fetchone() is None:
                return 0
            conn.execute("BEGIN IMMEDIATE")
            rows = conn.execute(query, (self._boot,)).fetchall()
            restored = sum(map(_restored, rows))
            conn.execute("DELETE FROM promised WHERE boot != ?", (self._boot,))
            conn.execute("COMMIT")
        log.warning(
            "%d of %d files of the last moments were lost and are back", restored, len(rows)
        )
        return restored


def _restored(row: Any) -> bool:
    _, path, top, data = row
    if not _lost(path, data):
        return False
    place_alone(Placing([(path, data)], top, over=True))
    return True


def _lost(path: str, data: bytes) -> bool:
    """Whether nothing stands there, or only what a loss of power leaves of the file: zeros, or less."""
    try:
        found = read_file(path)
    except FileNotFoundError:
        return True
    if found == data or len(found) > len(data):
        return False
    return all(left in (0, right) for left, right in zip(found, data, strict=False))
