"""Workspace objects in memory, addressed by `mem://` URIs: for tests, and gone with the process."""

from typing import Final

from lucius.core.errors import WorkspaceError, WorkspaceRefusedError

SCHEME: Final = "mem://"


class MemoryWorkspace:
    """Implements `lucius.ports.workspace.Workspace`."""

    def __init__(self, root: str = SCHEME) -> None:
        self._root = root
        self._failure: WorkspaceError | None = None
        self.objects: dict[str, bytes] = {}

    def fail_with(self, error: WorkspaceError | None) -> None:
        """Play an outage: everything raises until this is called with None."""
        self._failure = error

    def writable(self, uri: str) -> bool:
        return uri.startswith(self._root) and ".." not in uri.split("/")

    def _check(self, uri: str) -> None:
        if self._failure is not None:
            raise self._failure
        if not self.writable(uri):
            raise WorkspaceRefusedError(f"{uri} is outside the workspace")

    async def read(self, uri: str) -> bytes | None:
        self._check(uri)
        return self.objects.get(uri)

    async def write(self, uri: str, data: bytes) -> None:
        self._check(uri)
        self.objects[uri] = bytes(data)

    async def create(self, uri: str, data: bytes) -> bool:
        self._check(uri)
        if uri in self.objects:
            return False
        self.objects[uri] = bytes(data)
        return True

    async def list(self, prefix: str) -> list[str]:
        self._check(prefix)
        return sorted(uri for uri in self.objects if uri.startswith(prefix))
