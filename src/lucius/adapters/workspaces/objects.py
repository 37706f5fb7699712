"""Workspace objects in object stores: one adapter for all that `obstore` knows, each described by `Stores`.

What a store acknowledges is durable. Objects are created and replaced under a condition that the
store itself checks; one that does not is refused when it is first used. Vendor exceptions stop here.
"""

import copy
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import SplitResult, quote, unquote, urlsplit

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

if TYPE_CHECKING:
    from obstore import PutMode, UpdateVersion
    from obstore.store import ClientConfig, RetryConfig

CLIENT: Final["ClientConfig"] = {
    "connect_timeout": timedelta(seconds=5),
    "timeout": timedelta(minutes=5),
}
RETRIES: Final["RetryConfig"] = {"max_retries": 3, "retry_timeout": timedelta(seconds=30)}
RACES: Final = 10
"""How often a folder from which others delete too is emptied again."""
NEVER: Final["UpdateVersion"] = {"e_tag": '"18446744073709551615"', "version": "1"}
"""What no object is: S3 and Azure compare the tag, Google Cloud Storage the version."""
_STATUS: Final = re.compile(r"status code: (\d{3})[\w ]*")
_NO_CONTAINER: Final = re.compile("NoSuchBucket|ContainerNotFound")
_NO_CREDENTIALS: Final = re.compile("/latest/(api|meta-data)/|/computeMetadata/|token request")
"""The last place where the library looks for some is the metadata service of the machine."""
_QUERY: Final = re.compile(r"\?[^\s\"']*")
"""In a message of the library it may carry a signature."""


@dataclass(frozen=True, slots=True, eq=False)
class Stores:
    """One kind of object store: how references name its objects, and how it is reached."""

    schemes: tuple[str, ...]
    setting: str
    """What leads to it."""
    object: str
    """A name for one of its objects, for messages."""
    container: str
    containers: re.Pattern[str]
    split: Callable[[SplitResult], tuple[str, str]]
    """Container and path of a reference; no container where it leads elsewhere."""
    open: Callable[[str], ObjectStore]
    """A container."""
    refused: str
    """What helps a caller without rights."""

    def place(self, uri: str) -> "ObjectPlace":
        """Which object a reference names. Raises WorkspaceRefusedError."""
        try:
            parts = urlsplit(uri)
            container, path = self.split(parts)
        except ValueError:
            raise WorkspaceRefusedError(f"{uri!r} is not a URI") from None
        if parts.query or parts.fragment or not self.containers.fullmatch(container):
            raise WorkspaceRefusedError(f"{uri!r} does not name {self.object}")
        base = f"{parts.scheme}://{parts.netloc}{parts.path.removesuffix(path)}".rstrip("/")
        return ObjectPlace(self, f"{base}/", container, checked_path(uri, path))


@dataclass(frozen=True, slots=True)
class ObjectPlace:
    """An object, or a folder of objects: the path of a folder may end with a slash."""

    stores: Stores
    base: str
    """How its reference names the container, with a slash at the end."""
    container: str
    path: str

    @property
    def folder(self) -> str:
        return self.path.rstrip("/")

    def below(self, other: "ObjectPlace") -> bool:
        if self.bucket != other.bucket:
            return False
        folder = other.folder
        return not folder or self.folder == folder or self.path.startswith(f"{folder}/")

    @property
    def bucket(self) -> "Bucket":
        return self.stores, self.container

    def uri(self, path: str) -> str:
        return self.base + quote(path)


Bucket = tuple[Stores, str]
"""A container of one kind of stores."""


def checked_path(uri: str, escaped: str) -> str:
    """The path of a reference without its escapes, if a store can have an object of that name."""
    path = unquote(escaped, errors="replace")
    parts = path.removesuffix("/").split("/") if path else []
    if not path.isprintable() or "\\" in path or any(part in ("", ".", "..") for part in parts):
        raise WorkspaceRefusedError(f"{uri!r} does not name an object")
    return path


class ObjectWorkspace:
    """Implements `lucius.ports.workspace.Workspace` over several kinds of stores; the scheme chooses.

    Below `home` (LUCIUS_WORKSPACE_URL) lie the workspaces of the jobs, if it is in one of these stores.
    `readable` and `writable` are open to every job.
    """

    def __init__(
        self,
        stores: Sequence[Stores],
        *,
        home: str,
        readable: Sequence[str] = (),
        writable: Sequence[str] = (),
    ) -> None:
        self._stores = {scheme: each for each in stores for scheme in each.schemes}
        self._home = self._place(home) if scheme_of(home) in self._stores else None
        self._own: tuple[ObjectPlace, ...] = (self._home,) if self._home is not None else ()
        self._writable = tuple(map(self._place, writable))
        self._readable = (*self._writable, *map(self._place, readable))
        self._opened: dict[Bucket, ObjectStore] = {}
        self._checks_creates: set[Bucket] = set()
        self._checks_replaces: set[Bucket] = set()
        """Containers whose store was seen to check the condition."""

    def within(self, *folders: str) -> "ObjectWorkspace":
        """Folders that are not below the home are left out: who names them gets nothing there."""
        scoped = copy.copy(self)
        scoped._own = tuple(self._folders(folders))
        return scoped

    def _folders(self, folders: Sequence[str]) -> Iterator[ObjectPlace]:
        for folder in folders:
            with suppress(WorkspaceRefusedError):
                place = self._place(folder)
                home = self._home
                if home is not None and place.below(home) and place.folder != home.folder:
                    yield place

    def _place(self, uri: str) -> ObjectPlace:
        stores = self._stores.get(scheme_of(uri))
        if stores is None:
            raise WorkspaceRefusedError(
                f"{uri!r} is in none of the object stores that are open here"
            )
        return stores.place(uri)

    # -- who may touch what ------------------------------------------------------------------

    def _checked(self, uri: str, roots: tuple[ObjectPlace, ...]) -> ObjectPlace:
        place = self._place(uri)
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

    def _object(self, uri: str, roots: tuple[ObjectPlace, ...]) -> ObjectPlace:
        place = self._checked(uri, roots)
        if not place.path or place.path.endswith("/"):
            raise WorkspaceRefusedError(f"{uri!r} names a folder, not an object")
        return place

    def _store(self, place: ObjectPlace) -> ObjectStore:
        """One client for each container, opened when it is first needed."""
        store = self._opened.get(place.bucket)
        if store is None:
            store = self._opened[place.bucket] = place.stores.open(place.container)
        return store

    def writable(self, uri: str) -> bool:
        try:
            self._checked(uri, self._writable)
        except WorkspaceRefusedError:
            return False
        return True

    # -- objects -----------------------------------------------------------------------------

    async def read(self, uri: str) -> bytes | None:
        place = self._object(uri, self._readable)
        with _reported(uri, place):
            try:
                found = await obstore.get_async(self._store(place), place.path)
                return bytes(await found.bytes_async())
            except FileNotFoundError as error:
                _check_container(error)
                return None

    async def size(self, uri: str) -> int | None:
        place = self._object(uri, self._readable)
        with _reported(uri, place):
            try:
                found = await obstore.head_async(self._store(place), place.path)
                return found["size"]
            except FileNotFoundError:
                return None

    async def digest(self, uri: str) -> Digest | None:
        found = await self._version(uri, self._readable)
        return None if found is None else found[0]

    async def _version(
        self, uri: str, roots: tuple[ObjectPlace, ...]
    ) -> "tuple[Digest, UpdateVersion] | None":
        """What the object is, and the version that it had while it was read."""
        place = self._object(uri, roots)
        with _reported(uri, place):
            try:
                found = await obstore.get_async(self._store(place), place.path)
                content, size = sha256(), 0
                async for portion in found.stream():
                    content.update(portion)
                    size += len(portion)
            except FileNotFoundError as error:
                _check_container(error)
                return None
            version = cast(
                "UpdateVersion",
                {name: found.meta[name] for name in ("e_tag", "version") if found.meta[name]},
            )
            return Digest(content.hexdigest(), size), version

    async def write(self, uri: str, data: bytes) -> None:
        place = self._object(uri, self._writable)
        with _reported(uri, place):
            await obstore.put_async(self._store(place), place.path, data)

    async def create(self, uri: str, data: bytes) -> bool:
        """If the answer is lost and the request repeated, the object is found there: False."""
        place = self._object(uri, self._writable)
        with _reported(uri, place):
            created = await self._put(place, data, "create")
            if created and place.bucket not in self._checks_creates:
                await self._check(place, data, "create", "If-None-Match")
            self._checks_creates.add(place.bucket)
            return created

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
        if found is None or found[0] != expected or not found[1]:
            return False
        place = self._object(uri, self._writable)
        with _reported(uri, place):
            try:
                if place.bucket not in self._checks_replaces:
                    await self._check(place, data, NEVER, "If-Match")
                self._checks_replaces.add(place.bucket)
                return await self._put(place, data, found[1])
            except FileNotFoundError:
                return False

    async def _put(self, place: ObjectPlace, data: bytes, mode: "PutMode") -> bool:
        """False: the condition does not hold, and nothing was written."""
        try:
            await obstore.put_async(
                self._store(place), place.path, data, mode=mode, use_multipart=False
            )
        except (AlreadyExistsError, PreconditionError):
            return False
        return True

    async def _check(
        self, place: ObjectPlace, data: bytes, mode: "PutMode", condition: str
    ) -> None:
        """Try what a store must not do, when a container is first written to. Twice, as others may delete."""
        if await self._put(place, data, mode) and await self._put(place, data, mode):
            raise unconditional(place, f"ignores {condition}")

    # -- folders -----------------------------------------------------------------------------

    async def folders(self, uri: str) -> list[str]:
        place = self._checked(uri, self._readable)
        with _reported(uri, place):
            found = await obstore.list_with_delimiter_async(
                self._store(place), place.folder or None
            )
        return sorted(place.uri(path) + "/" for path in found["common_prefixes"])

    async def remove(self, uri: str) -> None:
        place = self._checked(uri, self._writable)
        store = self._store(place)
        with _reported(uri, place):
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
        with _reported(prefix, place):
            found = await self._paths(place)
        return sorted(place.uri(path) for path in found if self._listed(place, path))

    async def close(self) -> None: ...

    def _listed(self, place: ObjectPlace, path: str) -> bool:
        return self._open(replace(place, path=path), self._readable)

    async def _paths(self, place: ObjectPlace) -> Sequence[str]:
        """A prefix need not end at a slash, but the library lists whole folders."""
        whole = place.path.endswith("/") or place in (*self._own, *self._readable)
        start = f"{place.folder}/" if whole and place.folder else place.path
        stream = obstore.list(self._store(place), start.rpartition("/")[0] or None)
        return [
            each["path"]
            async for portion in stream
            for each in portion
            if each["path"].startswith(start)
        ]


def scheme_of(uri: str) -> str:
    return uri.partition(":")[0].lower()


def _check_container(error: FileNotFoundError) -> None:
    """What is missing may be the container, and not the object."""
    if _NO_CONTAINER.search(str(error)):
        raise error


@contextmanager
def _reported(uri: str, place: ObjectPlace) -> Iterator[None]:
    stores = place.stores
    try:
        yield
    except (PermissionDeniedError, UnauthenticatedError) as error:
        raise WorkspaceError(f"{uri}: {stores.refused}", code="STORAGE_ACCESS_DENIED") from error
    except FileNotFoundError as error:
        raise _missing(uri, stores) from error
    except (BaseError, OSError, ValueError) as error:
        raise _meaning(uri, place, str(error)) from error


def _missing(uri: str, stores: Stores) -> WorkspaceError:
    return WorkspaceError(
        f"{uri}: its {stores.container} does not exist: create it", code="BUCKET_MISSING"
    )


def unconditional(place: ObjectPlace, fault: str) -> WorkspaceRefusedError:
    return WorkspaceRefusedError(
        f"{place.base}: the store of this {place.stores.container} {fault}, so two workers could both"
        " commit one step. Let LUCIUS_WORKSPACE_URL, LUCIUS_OUTPUT_ROOTS and"
        f" {place.stores.setting} name a store with conditional writes",
        code="STORE_UNCONDITIONAL",
    )


def _meaning(uri: str, place: ObjectPlace, said: str) -> WorkspaceError:
    """A listing tells its status in the message alone. What follows it is for developers."""
    first = said.strip().partition("\n")[0]
    status = _STATUS.search(first)
    stores = place.stores
    if _NO_CREDENTIALS.search(first):
        return WorkspaceError(
            f"{uri}: no usable credentials were found. {stores.refused}",
            code="STORAGE_ACCESS_DENIED",
        )
    match status and status[1]:
        case "401" | "403":
            return WorkspaceError(f"{uri}: {stores.refused}", code="STORAGE_ACCESS_DENIED")
        case "404":
            return _missing(uri, stores)
        case "501":
            return unconditional(place, "does not implement conditional writes")
    if "builder error" in first:
        return WorkspaceError(
            f"{uri}: its store has an address without https; {stores.setting} sets it"
        )
    shown = first[: status.end()] if status is not None else first
    return WorkspaceError(f"{uri}: {_QUERY.sub('?...', shown)}")
