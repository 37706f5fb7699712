"""Workspace objects as local files, addressed by `file://` URIs.

What is written is durable when the call returns. A path that leads outside the roots, or into what
is protected inside of them, is refused, also where it leads there by `..` or symbolic links.
"""

import asyncio
import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from hashlib import sha256
from itertools import takewhile
from pathlib import Path
from typing import Final, Self, TypeVar
from urllib.parse import unquote, urlsplit

from lucius.adapters.workspaces.files import (
    FilesTogether,
    Placing,
    digest_of,
    folders_in,
    place_alone,
    read_file,
    remove,
    size_of,
    walk,
)
from lucius.adapters.workspaces.places import Places, PlainPaths, below, real_path
from lucius.adapters.workspaces.records import NewRecord, Records, removed, written
from lucius.adapters.workspaces.write_ahead_files import WriteAheadFile, WriteAheadFiles
from lucius.core.errors import WorkspaceError, WorkspaceRefusedError
from lucius.ports.workspace import RECORD_FOLDERS, Digest, Unrestored

INLINE_BYTES: Final = 256 * 1024
"""Files up to this size are read at once: that is quicker than handing the read to a thread."""
TOGETHER_BYTES: Final = 1024 * 1024
"""Files up to this size are written together with those of others."""
FULL: Final = (errno.ENOSPC, errno.EDQUOT)
UNWRITABLE: Final = (
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR),
    *(errno.ENAMETOOLONG, errno.ELOOP, errno.EFBIG),
)
"""No later try finds such a place writable."""
_RECORD_FOLDERS: Final = frozenset(RECORD_FOLDERS)
T = TypeVar("T")


class LocalWorkspace:
    """Implements `lucius.ports.workspace.Workspace` below `root`.

    `readable` and `writable` add directories for inputs and outputs. `protected` is refused even
    where it lies inside of them. `boot` names this run of the operating system, if it is not to be asked.
    `small_as_files`: small outputs below `root` are files too. Otherwise they stay in the database of the
    notes, from where everyone reads them who reads through a workspace.
    """

    def __init__(
        self,
        root: Path,
        *,
        readable: Sequence[Path] = (),
        writable: Sequence[Path] = (),
        protected: Sequence[Path] = (),
        boot: str | None = None,
        small_as_files: bool = True,
    ) -> None:
        self._root = os.path.realpath(root)
        self._small_as_files = small_as_files
        self._together = FilesTogether()
        self._records = Records(self._root)
        self._write_ahead_files = WriteAheadFiles(self._records, boot)
        self._home = (f"{Path(self._root).as_uri().rstrip('/')}/", self._root)
        self._folders: tuple[str, ...] = ()
        self._found: tuple[str, ...] | None = (self._root,)
        self._spelt: tuple[tuple[str, str], ...] = (self._home,)
        self._writable = tuple(os.path.realpath(place) for place in writable)
        self._readable = (*self._writable, *(os.path.realpath(place) for place in readable))
        self._protected = Places(protected)
        self._protected_from_jobs = Places([*protected, self._root])
        self._plain = PlainPaths()
        self._allowed: dict[str, str] | None = None
        """Of a view: paths by their URIs that were found writable, and are written next."""

    def within(self, *folders: str) -> Self:
        """A view of these folders alone. Those that are not below the root are left out."""
        scoped = self.__class__.__new__(self.__class__)
        scoped.__dict__.update(self.__dict__)
        scoped._folders, scoped._found, scoped._allowed = folders, None, {}
        scoped._protected = self._protected_from_jobs
        return scoped

    def _own(self) -> tuple[str, ...]:
        """The folders of this view, which are allowed before anything is protected. Resolved at first use."""
        if self._found is None:
            reals = ((folder, self._folder(folder)) for folder in self._folders)
            self._spelt = tuple(
                (f"{folder.rstrip('/')}/", real) for folder, real in reals if real is not None
            )
            self._found = tuple(real for _, real in self._spelt)
        return self._found

    def _folder(self, uri: str) -> str | None:
        try:
            real = self._plain.path(self._home, uri.rstrip("/")) or real_path(path_of(uri))
        except WorkspaceRefusedError:
            return None
        return real if real != self._root and below(real, self._root) else None

    def writable(self, uri: str) -> bool:
        try:
            path = self._path(uri, self._writable)
        except WorkspaceRefusedError:
            return False
        if self._allowed is not None:
            self._allowed[uri] = path
        return True

    def recover(self) -> None:
        """After a loss of power: write again what was promised. To be called before anything is read."""
        with _reported(self._root):
            self._write_ahead_files.recover()

    def settle_left(self) -> None:
        """After a kill: sync soon what the killed process has written. On a running event loop."""
        self._write_ahead_files.settle_left()

    def unrestored(self) -> list[Unrestored]:
        return self._write_ahead_files.unrestored()

    # -- objects -----------------------------------------------------------------------------

    async def read(self, uri: str) -> bytes | None:
        path = self._path(uri, self._readable)
        if self._is_record(path):
            return await self._records.read(path)
        with _reported(uri):
            try:
                if size_of(path) <= INLINE_BYTES:
                    return read_file(path)
                return await asyncio.to_thread(read_file, path)
            except FileNotFoundError:
                return await self._beside(path)

    async def _beside(self, path: str) -> bytes | None:
        """An object of a workspace that is no file: a small output may be in the database alone."""
        return await self._records.read(path) if below(path, self._root) else None

    async def size(self, uri: str) -> int | None:
        path = self._path(uri, self._readable)
        if self._is_record(path):
            found = await self._records.read(path)
            return None if found is None else len(found)
        with _reported(uri):
            try:
                return size_of(path)
            except FileNotFoundError:
                found = await self._beside(path)
                return None if found is None else len(found)

    async def digest(self, uri: str) -> Digest | None:
        path = self._path(uri, self._readable)
        if self._is_record(path):
            return _digest(await self._records.read(path))
        with self._reported(uri, path):
            try:
                if size_of(path) <= INLINE_BYTES:
                    return digest_of(path)
                return await asyncio.to_thread(digest_of, path)
            except FileNotFoundError:
                return _digest(await self._beside(path))

    async def write(self, uri: str, data: bytes) -> None:
        path = self._path(uri, self._writable)
        if self._is_record(path):
            await self._records.change(lambda conn: written(conn, path, data))
        else:
            await self._place(uri, [(path, data)], over=True)

    async def create(self, uri: str, data: bytes) -> bool:
        return await self.create_all([(uri, data)]) == 1

    async def create_all(
        self, objects: Sequence[tuple[str, bytes]], *, unless: str | None = None
    ) -> int | None:
        files = [(self._path(each, self._writable), data) for each, data in objects]
        uri, (first, data) = objects[0][0], files[0]
        if not self._is_record(first):
            if unless is not None and await self.size(unless) is not None:
                return None
            return await self._place(uri, files)
        mark = None if unless is None else self._path(unless, self._writable)
        beside = [] if self._small_as_files else self._staying(files[1:])
        wanted = files[1 + len(beside) :]
        rest = [WriteAheadFile(path, self._top(path), data) for path, data in wanted]
        with _reported(uri):
            if self._write_ahead_files.supported(rest) and not any(
                self._is_record(each.path) for each in rest
            ):
                return await self._write_ahead_files.create(first, data, rest, mark, beside)
        created = await self._records.change(NewRecord(first, data, mark))
        if not created or not rest:
            return None if created is None else int(created)
        return 1 + (await self.create_all(objects[1:]) or 0)

    def _staying(self, files: Sequence[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
        """The first of them, as far as they are of a job's workspace."""
        own = takewhile(
            lambda each: below(each[0], self._root) and not self._is_record(each[0]), files
        )
        return list(own)

    async def _place(
        self, uri: str, files: Sequence[tuple[str, bytes]], *, over: bool = False
    ) -> int:
        placing = Placing(files, self._top(files[0][0]), over=over)
        with self._reported(uri, files[0][0]):
            for path, _ in files:
                await self._write_ahead_files.release(path)
            if sum(len(data) for _, data in files) > TOGETHER_BYTES:
                return await asyncio.to_thread(place_alone, placing)
            return await self._together.place(placing)

    def _reported(self, uri: str, path: str) -> AbstractContextManager[None]:
        """What goes wrong where a client wants its output is a fault of the place that it named."""
        return _reported(uri, output=not below(path, self._root))

    def _top(self, path: str) -> str:
        """The folder of this workspace that the path is in; what is above it is not ours to sync."""
        tops = [top for top in (self._root, *self._writable) if below(path, top)]
        return max(tops, key=len, default=self._root)

    async def replace(self, uri: str, data: bytes, expected: Digest) -> bool:
        """Exact within one process. Two processes that compare at the same moment may both replace."""
        path = self._path(uri, self._writable)
        if self._is_record(path):
            raise WorkspaceRefusedError(f"{uri} is a note: it is created or written, not replaced")
        placing = Placing([(path, data)], self._top(path), over=True)

        def unchanged() -> bool:
            return os.path.exists(path) and digest_of(path) == expected

        with self._reported(uri, path):
            await self._write_ahead_files.release(path)
            return await asyncio.to_thread(place_alone, placing, unchanged) == 1

    async def remove(self, uri: str) -> None:
        path, whole = self._path(uri, self._writable), uri.endswith("/")
        if self._records.exist:
            await self._records.change(lambda conn: removed(conn, path, whole=whole))
        await _in_thread(uri, lambda: remove(path_of(uri), whole=whole))
        self._together.forget()

    async def folders(self, uri: str) -> list[str]:
        path = self._path(uri, self._readable).rstrip("/")
        found = set(await _in_thread(uri, lambda: folders_in(path)))
        rest = (key[len(path) + 1 :] for key in await asyncio.to_thread(self._records.below, path))
        found |= {f"{path}/{each.partition('/')[0]}" for each in rest if "/" in each}
        return [Path(each).as_uri() + "/" for each in sorted(found)]

    def _list(self, prefix: str) -> list[str]:
        """The objects below a prefix, which need not end at a slash, as in an object store."""
        start = self._path(prefix, self._readable)
        if prefix.endswith("/") or start in (*self._own(), *self._readable):
            start = start.rstrip("/") + "/"
        folder = os.path.dirname(start)
        found = {*walk(folder), *self._records.below(folder)}
        return sorted(
            Path(path).as_uri() for path in found if path.startswith(start) and self._open(path)
        )

    def _path(self, uri: str, roots: tuple[str, ...]) -> str:
        """The real path behind a URI, if it may be touched there."""
        if self._allowed and uri in self._allowed:
            return self._allowed[uri]
        own = self._own_path(uri)
        if own is not None:
            return own
        real = path_of(uri)
        if not self._protected.miss(real):
            real = real_path(real)
            if not self._open(real):
                raise WorkspaceRefusedError(f"{uri} is not open to this job")
        if not any(below(real, root) for root in (*self._own(), *roots)):
            raise WorkspaceRefusedError(
                f"{uri} is not open to jobs: the directory {os.path.dirname(path_of(uri))} is not below one"
                " of LUCIUS_INPUT_ROOTS (to read) or LUCIUS_OUTPUT_ROOTS (to write)"
            )
        return real

    def _own_path(self, uri: str) -> str | None:
        """The quick way to an object in a folder of this view: no link on the way, no odd spelling."""
        self._own()
        for place in self._spelt:
            path = self._plain.path(place, uri.rstrip("/"))
            if path is not None:
                return path
        return None

    def _is_record(self, path: str) -> bool:
        """Everything else is a file, under the name that it has. Names of notes' folders begin with `_`."""
        if "/_" not in path or not below(path, self._root):
            return False
        return not _RECORD_FOLDERS.isdisjoint(path[len(self._root) :].split("/"))

    def _open(self, real: str) -> bool:
        return any(below(real, own) for own in self._own()) or not self._protected.hold(real)

    async def list(self, prefix: str) -> list[str]:
        """Notes alone are looked up at once: that is quicker than handing it to a thread."""
        start = self._path(prefix, self._readable)
        if prefix.endswith("/") and self._is_record(start):
            return [Path(path).as_uri() for path in self._records.below(start) if self._open(path)]
        return await _in_thread(prefix, lambda: self._list(prefix))

    async def close(self) -> None:
        await self._write_ahead_files.close()
        await self._records.close()


def _digest(data: bytes | None) -> Digest | None:
    return None if data is None else Digest(sha256(data).hexdigest(), len(data))


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
def _reported(uri: str, *, output: bool = False) -> Iterator[None]:
    """`output`: it is where a client wants its output, and no workspace."""
    try:
        yield
    except OSError as error:
        said = f"{uri}: {error.strerror or error}"
        if error.errno in FULL:
            raise WorkspaceError(said, code="DISK_FULL") from error
        if output and error.errno in UNWRITABLE:
            raise WorkspaceRefusedError(said, code="OUTPUT_NOT_WRITABLE") from error
        raise WorkspaceError(said) from error


async def _in_thread(uri: str, work: Callable[[], T]) -> T:
    with _reported(uri):
        return await asyncio.to_thread(work)
