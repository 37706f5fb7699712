"""Files that are written together become durable together: one sync for all, however many there are.

A file is durable before it is named, and its name before anyone is told. Each round names the files
that the round before it has made durable, writes those that came meanwhile, and syncs once for both.
"""

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from threading import Lock
from typing import Final

from lucius.workspaces.files import (
    SYNCS_FILE_SYSTEMS,
    make_folder,
    open_temporary,
    sync_file_system,
    sync_folder,
    write_all,
)

FEW: Final = 4
"""Up to so many files a round are synced one by one: what other programs write is not waited for."""
_NAMING: Final = Lock()
"""Held while a file is compared and replaced, because a file system cannot do both in one step."""
KNOWN: Final = 10_000
"""Folders that are remembered as durable before all are forgotten."""


class Placing:
    """Files to create in order, up to the first that exists; or to write whatever exists.

    Paths are real paths. `placed` is how many were.
    """

    def __init__(self, files: Sequence[tuple[str, bytes]], top: str, *, over: bool = False) -> None:
        self.files = files
        self.top = top
        self.over = over
        self.placed = 0
        self.error: Exception | None = None
        self.temporaries: list[str] = []
        self.answered: asyncio.Future[int] | None = None

    def write(self, current: "SyncRound") -> None:
        """Whoever comes too late writes nothing."""
        for path, data in self.files:
            if not self.over and os.path.lexists(path):
                return
            self.temporaries.append(current.written(os.path.dirname(path), data, self.top))

    def name(self, current: "SyncRound") -> None:
        for temporary, (path, _) in zip(self.temporaries, self.files, strict=False):
            if self.over:
                os.replace(temporary, path)
            elif not _linked(temporary, path):
                break
            self.placed += 1
        for path, _ in self.files[: self.placed + 1]:  # one that exists is relied on as well
            current.named(os.path.dirname(path), self.top)

    def clear(self) -> None:
        for temporary in self.temporaries:
            with suppress(OSError):
                os.unlink(temporary)


def _linked(temporary: str, path: str) -> bool:
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    return True


def _tried(placing: Placing, step: Callable[["SyncRound"], None], current: "SyncRound") -> None:
    """What goes wrong with one is its own affair."""
    try:
        step(current)
    except Exception as error:
        placing.error = error


def _answer(placings: Iterable[Placing]) -> None:
    for each in placings:
        if each.answered is None or each.answered.done():
            continue  # nobody waits for it
        if each.error is None:
            each.answered.set_result(each.placed)
        else:
            each.answered.set_exception(each.error)


class SyncRound:
    """What one sync has to cover."""

    def __init__(self, known: set[str], *, singly: bool) -> None:
        self._known = known
        self._singly = singly
        self._files: list[int] = []
        self._folders: dict[str, None] = {}
        self._systems: dict[int, int] = {}
        """By device, a handle that is older than what is written: so it learns of every failure."""

    def written(self, directory: str, data: bytes, top: str) -> str:
        try:
            handle, path = open_temporary(directory)
        except FileNotFoundError:
            make_folder(directory, top)
            handle, path = open_temporary(directory)
        try:
            self._cover(handle, directory)
            write_all(handle, data)
        except BaseException:
            os.unlink(path)
            raise
        finally:
            if not self._singly:
                os.close(handle)
        return path

    def _cover(self, handle: int, directory: str) -> None:
        if self._singly:
            self._files.append(handle)
        elif (device := os.fstat(handle).st_dev) not in self._systems:
            self._systems[device] = os.open(directory, os.O_RDONLY)

    def named(self, directory: str, top: str) -> None:
        """The folder, and each above it that is not known to be named durably itself."""
        if self._singly:
            self._folders[directory] = None
            while directory not in (top, "/") and directory not in self._known:
                self._known.add(directory)
                directory = os.path.dirname(directory)
                self._folders[directory] = None
        else:
            device = os.stat(directory).st_dev
            if device not in self._systems:
                self._systems[device] = os.open(directory, os.O_RDONLY)

    def sync(self) -> None:
        for handle in self._files:
            os.fsync(handle)
        for folder in self._folders:
            sync_folder(folder)
        for handle in self._systems.values():
            sync_file_system(handle)

    def close(self) -> None:
        for handle in (*self._files, *self._systems.values()):
            os.close(handle)


class FilesTogether:
    """Lives on an event loop; its rounds run in a thread, one after the other."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asked: list[Placing] = []
        self._syncing: asyncio.Task[None] | None = None
        self._known: set[str] = set()

    async def place(self, placing: Placing) -> int:
        """How many of its files were placed, once they are durable."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._asked, self._syncing = loop, [], None
        placing.answered = loop.create_future()
        self._asked.append(placing)
        if self._syncing is None:
            self._syncing = loop.create_task(self._sync_while_asked())
        return await placing.answered

    def forget(self) -> None:
        """Folders were removed: they may come again, and are then new."""
        self._known.clear()

    async def _sync_while_asked(self) -> None:
        written: list[Placing] = []
        while self._asked or written:
            asked, self._asked = self._asked, []
            await asyncio.to_thread(self._round, written, asked)
            _answer(written)
            _answer(each for each in asked if each.error)
            written = [each for each in asked if not each.error]
        self._syncing = None

    def _round(self, written: Sequence[Placing], asked: Sequence[Placing]) -> None:
        if len(self._known) > KNOWN:
            self._known.clear()
        count = sum(len(each.files) for each in (*written, *asked))
        few = count <= FEW or not SYNCS_FILE_SYSTEMS
        if not take_round(written, asked, SyncRound(self._known, singly=few)):
            self._known.clear()


def take_round(written: Sequence[Placing], asked: Sequence[Placing], current: SyncRound) -> bool:
    """Name what is written, write what is asked, sync. False: nobody knows what is durable."""
    try:
        for each in written:
            _tried(each, each.name, current)
        for each in asked:
            _tried(each, each.write, current)
        current.sync()
        return True
    except Exception as error:
        for each in (*written, *asked):
            each.error = each.error or error
        return False
    finally:
        current.close()
        for each in (*written, *(each for each in asked if each.error)):
            each.clear()


def place_alone(placing: Placing, allowed: Callable[[], bool] = lambda: True) -> int:
    """At once, whatever others do. It is named only if that is still allowed when it is written."""
    take_round((), (placing,), SyncRound(set(), singly=True))
    if placing.error is None:
        with _NAMING:
            if not allowed():
                placing.clear()
                return 0
            take_round((placing,), (), SyncRound(set(), singly=True))
    if placing.error is not None:
        raise placing.error
    return placing.placed
