"""Workspace objects in memory, addressed by `mem://` URIs: for tests, and gone with the process."""

import copy
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from lucius.core.errors import WorkspaceError, WorkspaceRefusedError
from lucius.ports.workspace import Digest

SCHEME: Final = "mem://"


class MemoryWorkspace:
    """Implements `lucius.ports.workspace.Workspace`.

    The workspaces of the jobs lie below `jobs`; a job reaches only its own.
    """

    def __init__(self, root: str = SCHEME, *, jobs: str | None = None) -> None:
        self._root = root
        self._jobs = None if jobs is None else jobs.rstrip("/") + "/"
        self._own: tuple[str, ...] | None = None
        self._failure: WorkspaceError | None = None
        self.objects: dict[str, bytes] = {}

    def within(self, *folders: str) -> "MemoryWorkspace":
        if self._jobs is None:
            return self
        scoped, named = copy.copy(self), (folder.rstrip("/") + "/" for folder in folders)
        scoped._own = tuple(
            each for each in named if each.startswith(self._jobs) and each != self._jobs
        )
        return scoped

    def fail_with(self, error: WorkspaceError | None) -> None:
        """Simulate an outage: every operation raises this error, until it is called with None."""
        self._failure = error

    def writable(self, uri: str) -> bool:
        return uri.startswith(self._root) and ".." not in uri.split("/") and self._open(uri)

    def _open(self, uri: str) -> bool:
        if self._own is None or self._jobs is None or not uri.startswith(self._jobs):
            return True
        return uri.startswith(self._own)

    def _check(self, uri: str) -> None:
        if self._failure is not None:
            raise self._failure
        if not self.writable(uri):
            raise WorkspaceRefusedError(f"{uri} is outside the workspace")

    async def read(self, uri: str) -> bytes | None:
        self._check(uri)
        return self.objects.get(uri)

    async def size(self, uri: str) -> int | None:
        data = await self.read(uri)
        return None if data is None else len(data)

    async def digest(self, uri: str) -> Digest | None:
        data = await self.read(uri)
        return None if data is None else Digest(sha256(data).hexdigest(), len(data))

    def store(self, uri: str, data: bytes) -> None:
        """Set the bytes of an object. Every change passes here."""
        self.objects[uri] = bytes(data)

    async def write(self, uri: str, data: bytes) -> None:
        self._check(uri)
        self.store(uri, data)

    async def create(self, uri: str, data: bytes) -> bool:
        self._check(uri)
        if uri in self.objects:
            return False
        self.store(uri, data)
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
        if await self.digest(uri) != expected:
            return False
        self.store(uri, data)
        return True

    async def folders(self, uri: str) -> list[str]:
        self._check(uri)
        start = uri.rstrip("/") + "/"
        below = (each[len(start) :] for each in self.objects if each.startswith(start))
        return sorted({f"{start}{rest.partition('/')[0]}/" for rest in below if "/" in rest})

    async def remove(self, uri: str) -> None:
        self._check(uri)
        for each in tuple(self.objects):
            if each == uri or (uri.endswith("/") and each.startswith(uri)):
                del self.objects[each]

    async def list(self, prefix: str) -> list[str]:
        self._check(prefix)
        return sorted(uri for uri in self.objects if uri.startswith(prefix))

    async def close(self) -> None: ...
