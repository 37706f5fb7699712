"""Blocking work on local files: what is read, what is listed, and how a name is made to last."""

import ctypes
import errno
import os
import platform
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from hashlib import file_digest
from typing import Final
from uuid import uuid4

from lucius.core.errors import WorkspaceRefusedError
from lucius.ports.workspace import Digest
from lucius.workspaces.places import below

TEMPORARY: Final = ".lucius-tmp-"
NOTES_FILE: Final = ".notes.sqlite3"
HIDDEN: Final = (TEMPORARY, NOTES_FILE)
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
