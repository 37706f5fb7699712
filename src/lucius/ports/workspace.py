"""The workspace port: named objects under a root reference, with create-if-absent."""

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol, runtime_checkable

COMMITS: Final = "_commits"
REDRIVES: Final = "_redrives"
ATTEMPTS: Final = "_attempts"
RECORD_FOLDERS: Final = (COMMITS, REDRIVES, ATTEMPTS)
"""Folders of notes: small objects that services keep about their work. They need not be files."""


class Digest(NamedTuple):
    """What an object is, without its bytes: SHA-256 in hex, and how many bytes there are."""

    sha256: str
    size: int


class Unrestored(NamedTuple):
    """An output that a loss of power took and that cannot be written again: where, whose, and why not."""

    path: str
    job_id: str
    reason: str


@runtime_checkable
class Restores(Protocol):
    """A workspace that writes outputs again which a loss of power took."""

    def unrestored(self) -> Sequence[Unrestored]:
        """Those that it could not write at the start, and that are still wanted."""


class Workspace(Protocol):
    """Objects are addressed by URIs below the root that this workspace serves.

    WorkspaceRefusedError: a URI that it does not serve. WorkspaceError: the storage failed.
    """

    def within(self, *folders: str) -> "Workspace":
        """The same objects as one job may touch them: of the jobs' workspaces only these folders.

        Places that are open to every job stay open.
        """

    def writable(self, uri: str) -> bool:
        """Whether objects may be written there. Says nothing about whether the storage is up."""

    async def read(self, uri: str) -> bytes | None:
        """The object's bytes, or None if there is no such object."""

    async def size(self, uri: str) -> int | None:
        """How many bytes the object has, without reading it; None if there is none, or nobody can tell."""

    async def digest(self, uri: str) -> Digest | None:
        """What the object is, or None if there is none. However large it is, it is read in portions."""

    async def write(self, uri: str, data: bytes) -> None:
        """Create or replace, atomically and durably: readers see the old or the new whole."""

    async def create(self, uri: str, data: bytes) -> bool:
        """Create durably if absent, in one atomic step. False: it was there, unchanged and durable."""

    async def create_all(
        self, objects: Sequence[tuple[str, bytes]], *, unless: str | None = None
    ) -> int | None:
        """Create these, URI and bytes, in order, up to the first that is there: how many were created.

        None: the object `unless` is there, so nothing was created. It is looked for in the same step
        where the storage can do that. Cheaper than one by one where one sync serves all of them. A crash
        may leave the first few.
        """

    async def replace(self, uri: str, data: bytes, expected: Digest) -> bool:
        """Replace the object if it is still the expected one. False: it is not, and is unchanged.

        Of several that expect the same object, one replaces it.
        """

    async def folders(self, uri: str) -> list[str]:
        """The URIs of the folders directly below a folder, sorted, each with a slash at its end."""

    async def remove(self, uri: str) -> None:
        """Delete an object or, where the URI ends with a slash, everything below. None is fine too."""

    async def list(self, prefix: str) -> list[str]:
        """The URIs of the objects below a prefix, sorted."""

    async def close(self) -> None:
        """Give back what it holds of the system. Its views share that, and need not be closed."""
