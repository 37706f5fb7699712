"""One workspace made of several: the scheme of a reference chooses who serves it."""

from collections.abc import Mapping

from lucius.core.errors import WorkspaceRefusedError
from lucius.ports.workspace import Workspace


class WorkspaceByScheme:
    """Implements `lucius.ports.workspace.Workspace` over `{"file": ..., "mem": ...}`."""

    def __init__(self, workspaces: Mapping[str, Workspace]) -> None:
        self._workspaces = dict(workspaces)

    def _of(self, uri: str) -> Workspace:
        scheme = uri.partition(":")[0].lower()
        if scheme not in self._workspaces:
            raise WorkspaceRefusedError(f"no workspace serves {uri}")
        return self._workspaces[scheme]

    def within(self, *folders: str) -> "WorkspaceByScheme":
        return WorkspaceByScheme(
            {scheme: served.within(*folders) for scheme, served in self._workspaces.items()}
        )

    def writable(self, uri: str) -> bool:
        served = self._workspaces.get(uri.partition(":")[0].lower())
        return served is not None and served.writable(uri)

    async def read(self, uri: str) -> bytes | None:
        return await self._of(uri).read(uri)

    async def write(self, uri: str, data: bytes) -> None:
        await self._of(uri).write(uri, data)

    async def create(self, uri: str, data: bytes) -> bool:
        return await self._of(uri).create(uri, data)

    async def list(self, prefix: str) -> list[str]:
        return await self._of(prefix).list(prefix)
