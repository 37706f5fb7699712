"""One workspace made of several: the scheme of a reference chooses who serves it."""

from collections.abc import Mapping, Sequence
from itertools import takewhile

from lucius.core.errors import WorkspaceRefusedError
from lucius.ports.workspace import Digest, Restores, Unrestored, Workspace


class WorkspaceByScheme:
    """Implements `lucius.ports.workspace.Workspace` over `{"file": ..., "https://HOST": ...}`.

    One host of a scheme may be served by another workspace than the rest.
    """

    def __init__(
        self, workspaces: Mapping[str, Workspace], folders: tuple[str, ...] | None = None
    ) -> None:
        self._workspaces = workspaces
        self._folders = folders
        self._views: dict[str, Workspace] = {}

    def _of(self, uri: str) -> Workspace:
        key = uri.partition(":")[0].lower()
        if key == "https" and (host := "/".join(uri.lower().split("/", 3)[:3])) in self._workspaces:
            key = host
        view = self._views.get(key)
        if view is None:
            view = self._views[key] = self._view(key, uri)
        return view

    def _view(self, key: str, uri: str) -> Workspace:
        served = self._workspaces.get(key)
        if served is None:
            known = ", ".join(self._workspaces)
            raise WorkspaceRefusedError(
                f"no workspace serves {uri}: the services of this process reach {known}. Blobs of Azure need"
                " LUCIUS_BLOB_CONNECTION, others a place in LUCIUS_INPUT_ROOTS or LUCIUS_OUTPUT_ROOTS"
            )
        return served if self._folders is None else served.within(*self._folders)

    def within(self, *folders: str) -> "WorkspaceByScheme":
        """A view for one job. Its parts are made when they are first used, because many jobs use none."""
        return WorkspaceByScheme(self._workspaces, folders)

    def unrestored(self) -> list[Unrestored]:
        able = (each for each in self._workspaces.values() if isinstance(each, Restores))
        return [found for each in able for found in each.unrestored()]

    def writable(self, uri: str) -> bool:
        try:
            return self._of(uri).writable(uri)
        except WorkspaceRefusedError:
            return False

    async def read(self, uri: str) -> bytes | None:
        return await self._of(uri).read(uri)

    async def size(self, uri: str) -> int | None:
        return await self._of(uri).size(uri)

    async def digest(self, uri: str) -> Digest | None:
        return await self._of(uri).digest(uri)

    async def write(self, uri: str, data: bytes) -> None:
        await self._of(uri).write(uri, data)

    async def create(self, uri: str, data: bytes) -> bool:
        return await self._of(uri).create(uri, data)

    async def create_all(
        self, objects: Sequence[tuple[str, bytes]], *, unless: str | None = None
    ) -> int | None:
        """In one go as far as one workspace has them, and one by one from there."""
        first = self._of(objects[0][0])
        together = list(takewhile(lambda each: self._of(each[0]) is first, objects))
        if unless is not None and self._of(unless) is not first:
            if await self.read(unless) is not None:
                return None
            unless = None
        created = await first.create_all(together, unless=unless)
        if created is None or created < len(together):
            return created
        for uri, data in objects[created:]:
            if not await self.create(uri, data):
                break
            created += 1
        return created

    async def replace(self, uri: str, data: bytes, expected: Digest) -> bool:
        return await self._of(uri).replace(uri, data, expected)

    async def folders(self, uri: str) -> list[str]:
        return await self._of(uri).folders(uri)

    async def remove(self, uri: str) -> None:
        await self._of(uri).remove(uri)

    async def list(self, prefix: str) -> list[str]:
        return await self._of(prefix).list(prefix)

    async def close(self) -> None:
        for each in {id(each): each for each in self._workspaces.values()}.values():
            await each.close()
