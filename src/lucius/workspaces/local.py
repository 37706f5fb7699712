"""Workspace objects as local files, addressed by `file://` URIs.

What is written is durable when the call returns. A path that leads outside the roots, or into what
is protected inside of them, is refused, also where it leads there by `..` or symbolic links.
"""

import asyncio
import copy
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import file_digest
from pathlib import Path
from threading import Lock
from typing import Final, TypeVar
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from lucius.core.errors import WorkspaceError, WorkspaceRefusedError
from lucius.ports.workspace import Digest
from lucius.workspaces.places import Places, below, real_path

INLINE_BYTES: Final = 256 * 1024
"""Files up to this size are read at once: that is quicker than handing the read to a thread."""
TEMPORARY: Final = ".lucius-tmp-"
_REPLACING: Final = Lock()
"""Held while a file is compared and replaced, because a file system cannot do both in one step."""
T = TypeVar("T")


class LocalWorkspace:
    """Implements `lucius.ports.workspace.Workspace` below `root`.

    `readable` and `writable` add directories for inputs and outputs. `protected` is refused even
    where it lies inside of them.
    """

    def __init__(
        self,
        root: Path,
        *,
        readable: Sequence[Path] = (),
        writable: Sequence[Path] = (),
        protected: Sequence[Path] = (),
    ) -> None:
        self._root = os.path.realpath(root)
        self._folders: tuple[str, ...] = ()
        self._found: tuple[str, ...] | None = (self._root,)
        self._writable = tuple(os.path.realpath(place) for place in writable)
        self._readable = (*self._writable, *(os.path.realpath(place) for place in readable))
        self._protected = Places(protected)
        self._protected_from_jobs = Places([*protected, self._root])

    def within(self, *folders: str) -> "LocalWorkspace":
        """A view of these folders alone. Those that are not below the root are left out."""
        scoped = copy.copy(self)
        scoped._folders, scoped._found = folders, None
        scoped._protected = self._protected_from_jobs
        return scoped

    def _own(self) -> tuple[str, ...]:
        """The folders of this view, which are allowed before anything is protected. Resolved at first use."""
        if self._found is None:
            found = map(self._folder, self._folders)
            self._found = tuple(real for real in found if real is not None)
        return self._found

    def _folder(self, uri: str) -> str | None:
        try:
            real = real_path(path_of(uri))
        except WorkspaceRefusedError:
            return None
        return real if real != self._root and below(real, self._root) else None

    def writable(self, uri: str) -> bool:
        try:
            self._path(uri, self._writable)
        except WorkspaceRefusedError:
            return False
        return True

    async def read(self, uri: str) -> bytes | None:
        path = self._path(uri, self._readable)
        with _reported(uri):
            try:
                if _size(path) <= INLINE_BYTES:
                    return _read(path)
                return await asyncio.to_thread(_read, path)
            except FileNotFoundError:
                return None

    async def size(self, uri: str) -> int | None:
        path = self._path(uri, self._readable)
        with _reported(uri):
            try:
                return _size(path)
            except FileNotFoundError:
                return None

    async def digest(self, uri: str) -> Digest | None:
        path = self._path(uri, self._readable)
        with _reported(uri):
            try:
                if _size(path) <= INLINE_BYTES:
                    return _digest(path)
                return await asyncio.to_thread(_digest, path)
            except FileNotFoundError:
                return None

    async def write(self, uri: str, data: bytes) -> None:
        await _in_thread(uri, lambda: _replace(self._path(uri, self._writable), data))

    async def create(self, uri: str, data: bytes) -> bool:
        return await _in_thread(uri, lambda: _create(self._path(uri, self._writable), data))

    async def replace(self, uri: str, data: bytes, expected: Digest) -> bool:
        """Exact within one process. Two processes that compare at the same moment may both replace."""
        path = self._path(uri, self._writable)
        return await _in_thread(uri, lambda: _swap(path, data, expected))

    async def remove(self, uri: str) -> None:
        self._path(uri, self._writable)
        await _in_thread(uri, lambda: _remove(path_of(uri), whole=uri.endswith("/")))

    async def folders(self, uri: str) -> list[str]:
        path = self._path(uri, self._readable)
        found = await _in_thread(uri, lambda: _folders(path))
        return [Path(each).as_uri() + "/" for each in found]

    def _list(self, prefix: str) -> list[str]:
        """The objects below a prefix, which need not end at a slash, as in an object store."""
        start = self._path(prefix, self._readable)
        if prefix.endswith("/") or start in (*self._own(), *self._readable):
            start = start.rstrip("/") + "/"
        found = (path for path in _walk(os.path.dirname(start)) if path.startswith(start))
        return sorted(Path(path).as_uri() for path in found if self._open(path))

    def _path(self, uri: str, roots: tuple[str, ...]) -> str:
        """The real path behind a URI, if it may be touched there."""
        real = real_path(path_of(uri))
        if not self._open(real):
            raise WorkspaceRefusedError(f"{uri} is not open to this job")
        if not any(below(real, root) for root in (*self._own(), *roots)):
            raise WorkspaceRefusedError(f"{uri} is outside the workspace")
        return real

    def _open(self, real: str) -> bool:
        return any(below(real, own) for own in self._own()) or not self._protected.hold(real)

    async def list(self, prefix: str) -> list[str]:
        return await _in_thread(prefix, lambda: self._list(prefix))


def path_of(uri: str) -> str:
    """The absolute path that a `file://` URI names, as written."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        raise WorkspaceRefusedError(f"{uri!r} is not a URI") from None
    path = unquote(parts.path)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise WorkspaceRefusedError(f"{uri!r} is not a local file")
    if parts.query or parts.fragment or not path.startswith("/") or "\0" in path:
        raise WorkspaceRefusedError(f"{uri!r} does not name a file")
    if ".." in path.split("/"):
        raise WorkspaceRefusedError(f"{uri!r} steps out of its directory")
    return path


@contextmanager
def _reported(uri: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise WorkspaceError(f"{uri}: {error.strerror or error}") from error


async def _in_thread(uri: str, work: Callable[[], T]) -> T:
    with _reported(uri):
        return await asyncio.to_thread(work)


def _size(path: str) -> int:
    """The size of a regular file. Devices and pipes are refused: they may have no end."""
    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode):
        raise WorkspaceRefusedError(f"{path} is not a regular file")
    return found.st_size


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _digest(path: str) -> Digest:
    with open(path, "rb") as file:
        found = file_digest(file, "sha256").hexdigest()
        return Digest(found, file.tell())


def _replace(path: str, data: bytes) -> None:
    temporary = _written(path, data)
    try:
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    _sync(os.path.dirname(path))


def _swap(path: str, data: bytes, expected: Digest) -> bool:
    temporary = _written(path, data)
    try:
        with _REPLACING:
            if not os.path.exists(path) or _digest(path) != expected:
                return False
            os.replace(temporary, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
    _sync(os.path.dirname(path))
    return True


def _create(path: str, data: bytes) -> bool:
    """Create a file that appears under its name with all its bytes, or not at all."""
    if os.path.lexists(path):
        _sync(os.path.dirname(path))  # whoever relies on it must not see it vanish
        return False
    temporary = _written(path, data)
    try:
        os.link(temporary, path)
        created = True
    except FileExistsError:
        created = False
    finally:
        os.unlink(temporary)
    _sync(os.path.dirname(path))
    return created


def _written(path: str, data: bytes) -> str:
    """Write the bytes to a temporary file beside the path, durably, and return its path."""
    directory = os.path.dirname(path)
    _make(directory)
    temporary = os.path.join(directory, f"{TEMPORARY}{uuid4().hex}")
    try:
        mode = 0o600 if _closed(directory) else 0o666
        with open(temporary, "xb", opener=lambda path, flags: os.open(path, flags, mode)) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
    return temporary


def _make(directory: str) -> None:
    """Create the directory and its parents, durably."""
    if os.path.isdir(directory):
        return
    parent = os.path.dirname(directory)
    _make(parent)
    try:
        os.mkdir(directory, 0o700 if _closed(parent) else 0o777)
    except FileExistsError:
        if not os.path.isdir(directory):
            raise
    _sync(parent)


def _closed(directory: str) -> bool:
    """Whether only the owner may enter the directory. Then the file is made for its owner alone."""
    return not os.stat(directory).st_mode & (stat.S_IRWXG | stat.S_IRWXO)


def _sync(directory: str) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _walk(directory: str) -> Iterator[str]:
    for folder, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(folder, name)
            if not name.startswith(TEMPORARY) and not os.path.islink(path):
                yield path


def _folders(directory: str) -> list[str]:
    if not os.path.isdir(directory):
        return []
    with os.scandir(directory) as entries:
        return sorted(each.path for each in entries if each.is_dir(follow_symlinks=False))


def _remove(path: str, *, whole: bool) -> None:
    """Delete files and folders. Of a link only the link is deleted, never what it leads to."""
    path = path.rstrip("/")
    if whole and os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
        return
    with suppress(FileNotFoundError):
        os.unlink(path)
