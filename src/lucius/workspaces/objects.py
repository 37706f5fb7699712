"""Workspace objects in an object store. Whoever opens one says how references name its objects.

What a store acknowledges is durable. Objects are created and replaced under a condition that the
store itself checks. Vendor exceptions stop here.
"""

import copy
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import Final
from urllib.parse import quote, unquote

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import ObjectStore

from lucius.core.errors import WorkspaceError, WorkspaceRefusedError
from lucius.ports.workspace import Digest

RACES: Final = 10
"""How often a folder from which others delete too is emptied again."""
REFUSED: Final = (
    "the storage refuses the caller of LUCIUS_BLOB_CONNECTION. A connection string needs a current"
    " account key, an identity the role Storage Blob Data Contributor"
)
MISSING: Final = "its container does not exist: create it"
_STATUS: Final = re.compile(r"status code: (\d{3})[\w ]*")
_STATUS_REASONS: Final = {"401": REFUSED, "403": REFUSED, "404": MISSING}
_QUERY: Final = re.compile(r"\?[^\s\"']*")
"""In a message of the library it may carry a signature."""


@dataclass(frozen=True, slots=True)
class ObjectPlace:
    """An object, or a folder of objects: the path of a folder may end with a slash."""

    base: str
    """How its reference names the container, with a slash at the end."""
    container: str
    path: str

    @property
    def folder(self) -> str:
        return self.path.rstrip("/")

    def below(self, other: "ObjectPlace") -> bool:
        if self.container != other.container:
            return False
        folder = other.folder
        return not folder or self.folder == folder or self.path.startswith(f"{folder}/")

    def uri(self, path: str) -> str:
        return self.base + quote(path)


def checked_path(uri: str, escaped: str) -> str:
    """The path of a reference without its escapes, if a store can have an object of that name."""
    path = unquote(escaped, errors="replace")
    parts = path.removesuffix("/").split("/") if path else []
    if not path.isprintable() or "\\" in path or any(part in ("", ".", "..") for part in parts):
        raise WorkspaceRefusedError(f"{uri!r} does not name an object")
    return path


class ObjectWorkspace:
    """Implements `lucius.ports.workspace.Workspace`.

    `place_of` reads references and raises WorkspaceRefusedError; `store_of` opens a container. Below
    `home` lie the workspaces of the jobs. `readable` and `writable` are open to every job.
    """

    def __init__(
        self,
        place_of: Callable[[str], ObjectPlace],
        store_of: Callable[[str], ObjectStore],
        *,
        home: ObjectPlace | None,
        readable: Sequence[ObjectPlace] = (),
        writable: Sequence[ObjectPlace] = (),
    ) -> None:
        self._place_of = place_of
        self._store_of = store_of
        self._home = home
        self._own: tuple[ObjectPlace, ...] = (home,) if home is not None else ()
        self._writable = tuple(writable)
        self._readable = (*writable, *readable)

    def within(self, *folders: str) -> "ObjectWorkspace":
        """Folders that are not below the home are left out: who names them gets nothing there."""
        scoped = copy.copy(self)
        scoped._own = tuple(self._folders(folders))
        return scoped

    def _folders(self, folders: Sequence[str]) -> Iterator[ObjectPlace]:
        for folder in folders:
            with suppress(WorkspaceRefusedError):
                place = self._place_of(folder)
                home = self._home
                if home is not None and place.below(home) and place.folder != home.folder:
                    yield place

    # -- who may touch what ------------------------------------------------------------------

    def _checked(self, uri: str, roots: tuple[ObjectPlace, ...]) -> ObjectPlace:
        place = self._place_of(uri)
        if not self._open(place, roots):
            raise WorkspaceRefusedError(
                f"{uri} is not open to this job: it is neither in its workspace nor below one of"
                " LUCIUS_INPUT_ROOTS (to read) or LUCIUS_OUTPUT_ROOTS (to write)"
            )
        return place

    def _open(self, place: ObjectPlace, roots: tuple[ObjectPlace, ...]) -> bool:
        """Inside the home only its own folders are, whatever else the roots would open."""
        if any(place.below(own) for own in self._own):
            return True
        if self._home is not None and place.below(self._home):
            return False
        return any(place.below(root) for root in roots)

    def _object(self, uri: str, roots: tuple[ObjectPlace, ...]) -> tuple[ObjectStore, str]:
        place = self._checked(uri, roots)
        if not place.path or place.path.endswith("/"):
            raise WorkspaceRefusedError(f"{uri!r} names a folder, not an object")
        return self._store_of(place.container), place.path

    def writable(self, uri: str) -> bool:
        try:
            self._checked(uri, self._writable)
        except WorkspaceRefusedError:
            return False
        return True

    # -- objects -----------------------------------------------------------------------------

    async def read(self, uri: str) -> bytes | None:
        store, path = self._object(uri, self._readable)
        with _reported(uri):
            try:
                found = await obstore.get_async(store, path)
                return bytes(await found.bytes_async())
            except FileNotFoundError:
                return None

    async def size(self, uri: str) -> int | None:
        store, path = self._object(uri, self._readable)
        with _reported(uri):
            try:
                found = await obstore.head_async(store, path)
                return found["size"]
            except FileNotFoundError:
                return None

    async def digest(self, uri: str) -> Digest | None:
        found = await self._version(uri, self._readable)
        return None if found is None else found[0]

    async def _version(
        self, uri: str, roots: tuple[ObjectPlace, ...]
    ) -> tuple[Digest, str | None] | None:
        """What the object is, and the ETag that it had while it was read."""
        store, path = self._object(uri, roots)
        with _reported(uri):
            try:
                found = await obstore.get_async(store, path)
                content, size = sha256(), 0
                async for portion in found.stream():
                    content.update(portion)
                    size += len(portion)
            except FileNotFoundError:
                return None
            return Digest(content.hexdigest(), size), found.meta["e_tag"]

    async def write(self, uri: str, data: bytes) -> None:
        store, path = self._object(uri, self._writable)
        with _reported(uri):
            await obstore.put_async(store, path, data)

    async def create(self, uri: str, data: bytes) -> bool:
        """If the answer is lost and the request repeated, the object is found there: False."""
        store, path = self._object(uri, self._writable)
        with _reported(uri):
            try:
                await obstore.put_async(store, path, data, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
            return True

    async def create_all(
        self, objects: Sequence[tuple[str, bytes]], *, unless: str | None = None
    ) -> int | None:
        if unless is not None and await self.read(unless) is not None:
            return None
        for number, (uri, data) in enumerate(objects):
            if not await self.create(uri, data):
                return number
        return len(objects)

    async def replace(self, uri: str, data: bytes, expected: Digest) -> bool:
        found = await self._version(uri, self._writable)
        if found is None or found[0] != expected or found[1] is None:
            return False
        store, path = self._object(uri, self._writable)
        with _reported(uri):
            try:
                await obstore.put_async(
                    store, path, data, mode={"e_tag": found[1]}, use_multipart=False
                )
            except (PreconditionError, FileNotFoundError):
                return False
            return True

    # -- folders -----------------------------------------------------------------------------

    async def folders(self, uri: str) -> list[str]:
        place = self._checked(uri, self._readable)
        with _reported(uri):
            found = await obstore.list_with_delimiter_async(
                self._store_of(place.container), place.folder or None
            )
        return sorted(place.uri(path) + "/" for path in found["common_prefixes"])

    async def remove(self, uri: str) -> None:
        place = self._checked(uri, self._writable)
        store = self._store_of(place.container)
        with _reported(uri):
            if not place.path.endswith("/"):
                with suppress(FileNotFoundError):
                    await obstore.delete_async(store, place.path)
                return
            for _ in range(RACES):
                paths = await self._paths(place)
                with suppress(FileNotFoundError):
                    if paths:
                        await obstore.delete_async(store, paths)
                    return
        raise WorkspaceError(f"{uri}: others delete from it all the time")

    async def list(self, prefix: str) -> list[str]:
        place = self._checked(prefix, self._readable)
        with _reported(prefix):
            found = await self._paths(place)
        return sorted(place.uri(path) for path in found if self._listed(place, path))

    async def close(self) -> None: ...

    def _listed(self, place: ObjectPlace, path: str) -> bool:
        return self._open(ObjectPlace(place.base, place.container, path), self._readable)

    async def _paths(self, place: ObjectPlace) -> Sequence[str]:
        """A prefix need not end at a slash, but the library lists whole folders."""
        whole = place.path.endswith("/") or place in (*self._own, *self._readable)
        start = f"{place.folder}/" if whole and place.folder else place.path
        stream = obstore.list(self._store_of(place.container), start.rpartition("/")[0] or None)
        return [
            each["path"]
            async for portion in stream
            for each in portion
            if each["path"].startswith(start)
        ]


@contextmanager
def _reported(uri: str) -> Iterator[None]:
    try:
        yield
    except (PermissionDeniedError, UnauthenticatedError) as error:
        raise WorkspaceError(f"{uri}: {REFUSED}") from error
    except FileNotFoundError as error:
        raise WorkspaceError(f"{uri}: {MISSING}") from error
    except (BaseError, OSError, ValueError) as error:
        raise WorkspaceError(f"{uri}: {_said(error)}") from error


def _said(error: Exception) -> str:
    """A listing tells its status in the message alone. What follows it is for developers."""
    first = str(error).strip().partition("\n")[0]
    status = _STATUS.search(first)
    if status is not None and status[1] in _STATUS_REASONS:
        return _STATUS_REASONS[status[1]]
    shown = first[: status.end()] if status is not None else first
    return _QUERY.sub("?...", shown) or type(error).__name__
