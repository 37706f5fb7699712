"""Blocking work on local files: what is read, what is listed, and how a name is made to last."""

import asyncio
import ctypes
import errno
import os
import platform
import shutil
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from hashlib import file_digest
from threading import Lock
from typing import Final
from uuid import uuid4

from lucius.adapters.workspaces.places import below
from lucius.core.errors import WorkspaceRefusedError
from lucius.ports.workspace import Digest

TEMPORARY: Final = ".lucius-tmp-"
RECORDS_FILE: Final = ".notes.sqlite3"
HIDDEN: Final = (TEMPORARY, RECORDS_FILE)
"""How the names of files begin that are no objects."""
NAMELESS: Final = hasattr(os, "O_TMPFILE") and os.path.exists("/proc/self/fd")
"""Whether a file can be written before it has a name. Some file systems cannot even then."""
KNOWN: Final = 10_000
"""Folders that are remembered before all are forgotten."""
_NOT_NAMELESS: Final = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOTSUP})


def size_of(path: str) -> int:
    """The size of a regular file. Devices and pipes are refused: they may have no end."""
    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode):
        raise WorkspaceRefusedError(f"{path} is not a regular file")
    return found.st_size


def read_file(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def digest_of(path: str) -> Digest:
    with open(path, "rb") as file:
        found = file_digest(file, "sha256").hexdigest()
        return Digest(found, file.tell())


def walk(directory: str) -> Iterator[str]:
    for folder, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(folder, name)
            if not name.startswith(HIDDEN) and not os.path.islink(path):
                yield path


def folders_in(directory: str) -> list[str]:
    if not os.path.isdir(directory):
        return []
    with os.scandir(directory) as entries:
        return sorted(each.path for each in entries if each.is_dir(follow_symlinks=False))


def remove(path: str, *, whole: bool) -> None:
    """Delete files and folders. Of a link only the link is deleted, never what it leads to."""
    path = path.rstrip("/")
    if whole and os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
        return
    with suppress(FileNotFoundError):
        os.unlink(path)


# -- writing -----------------------------------------------------------------------------------


def open_temporary(directory: str) -> tuple[int, str]:
    """A new file beside the one that it will become: its handle and its path."""
    path = os.path.join(directory, f"{TEMPORARY}{uuid4().hex}")
    mode = 0o600 if _closed(directory) else 0o666
    return os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, mode), path


def create_unsynced(path: str, data: bytes, top: str, folders: dict[str, bool]) -> bool:
    """Create a file that appears whole; whether it lasts is not waited for. False: it was there.

    `folders` are those that were met before, and whether they are closed to others.
    """
    directory = os.path.dirname(path)
    try:
        handle, temporary = _open_nameless(directory, _found(directory, top, folders))
    except FileNotFoundError:  # it was removed
        folders.clear()
        handle, temporary = _open_nameless(directory, _found(directory, top, folders))
    try:
        write_all(handle, data)
        if temporary is None:
            os.link(f"/proc/self/fd/{handle}", path, src_dir_fd=handle)
        else:
            os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        os.close(handle)
        if temporary is not None:
            os.unlink(temporary)
    return True


def _found(directory: str, top: str, folders: dict[str, bool]) -> bool:
    """Whether a folder is closed to others. One that is not there is made, and its parents before it."""
    closed = folders.get(directory)
    if closed is not None:
        return closed
    if len(folders) >= KNOWN:
        folders.clear()
    if below(top, directory):
        make_folder(directory, top)
        closed = _closed(directory)
    else:
        closed = _found(os.path.dirname(directory), top, folders)
        try:
            os.mkdir(directory, 0o700 if closed else 0o777)
        except FileExistsError:
            closed = _closed(directory)
    folders[directory] = closed
    return closed


def _open_nameless(directory: str, closed: bool) -> tuple[int, str | None]:
    """A new file that gets its first name when it is whole. Where that is not possible it has one already."""
    if NAMELESS:
        mode = 0o600 if closed else 0o666
        try:
            flags = os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC
            return os.open(directory, flags, mode), None
        except OSError as error:
            if error.errno not in _NOT_NAMELESS:
                raise
    return open_temporary(directory)


def write_all(handle: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(handle, left) :]


def make_folder(directory: str, top: str) -> None:
    """Create the directory and its parents. Down to `top` they last at once.

    Those below it are made to last by whoever names an object in them.
    """
    parent = os.path.dirname(directory)
    try:
        os.mkdir(directory, 0o700 if _closed(parent) else 0o777)
    except FileNotFoundError:
        make_folder(parent, top)
        make_folder(directory, top)
    except FileExistsError:
        if not os.path.isdir(directory):
            raise
    else:
        if below(top, directory):
            sync_folder(parent)


def _closed(directory: str) -> bool:
    """Whether only the owner may enter the directory. Then the file is made for its owner alone."""
    return not os.stat(directory).st_mode & (stat.S_IRWXG | stat.S_IRWXO)


# -- making it last ----------------------------------------------------------------------------


def sync_folder(directory: str) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _syncs_file_systems() -> bool:
    """Linux from 5.8 on: before, `syncfs` did not say that the disk had failed."""
    if sys.platform != "linux":
        return False
    numbers = platform.release().split(".")
    with suppress(ValueError, IndexError):
        return (int(numbers[0]), int(numbers[1])) >= (5, 8)
    return False


SYNCS_FILE_SYSTEMS: Final = _syncs_file_systems()


def sync_file_system(handle: int) -> None:
    """Everything that was written to the file system of an open file, by anyone, is on disk on return."""
    if ctypes.CDLL(None, use_errno=True).syncfs(handle) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


# Files that are written together become durable together: one sync for all, however many there are.
#
# A file is durable before it is named, and its name before anyone is told. Each round names the files
# that the round before it has made durable, writes those that came meanwhile, and syncs once for both.

FEW: Final = 4
"""Up to so many files a round are synced one by one: what other programs write is not waited for."""
_NAMING: Final = Lock()
"""Held while a file is compared and replaced, because a file system cannot do both in one step."""


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
