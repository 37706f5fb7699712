"""The workspaces that the suite runs on. A new adapter is one class here and one line in `ADAPTERS`."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from lucius.ports.workspace import Workspace
from lucius.workspaces.by_scheme import WorkspaceByScheme
from lucius.workspaces.local import LocalWorkspace
from lucius.workspaces.memory import MemoryWorkspace


@dataclass
class Harness:
    workspace: Workspace
    root: str
    """The URI below which the workspace serves, with a slash at its end."""
    outside: tuple[str, ...]
    """URIs that it must refuse."""


Body = Callable[[Harness], Awaitable[None]]


class Adapter(Protocol):
    name: str
    capabilities: frozenset[str]

    def run(self, body: Body) -> None: ...


async def _await(body: Body, harness: Harness) -> None:
    await body(harness)


class LocalAdapter:
    name = "local"
    capabilities: frozenset[str] = frozenset()

    def run(self, body: Body) -> None:
        with TemporaryDirectory() as folder:
            asyncio.run(_await(body, self.harness(Path(folder))))

    def harness(self, folder: Path) -> Harness:
        root, beside = folder / "root", folder / "beside"
        root.mkdir()
        beside.mkdir()
        (root / "link").symlink_to(beside)
        outside = (
            (beside / "object").as_uri(),
            f"{root.as_uri()}/../beside/object",
            f"{root.as_uri()}/%2e%2e/beside/object",
            f"{root.as_uri()}/link/object",
            f"{root.as_uri()}-longer/object",
            f"file://elsewhere{root}/object",
            f"https://host{root}/object",
            f"{root.as_uri()}/object?version=1",
            f"{root.as_uri()}/nul%00byte",
            "object",
        )
        return Harness(self.workspace(root), root.as_uri() + "/", outside)

    def workspace(self, root: Path) -> Workspace:
        return LocalWorkspace(root)


class BySchemeAdapter(LocalAdapter):
    name = "by scheme"

    def workspace(self, root: Path) -> Workspace:
        return WorkspaceByScheme({"file": LocalWorkspace(root)})


class MemoryAdapter:
    name = "memory"
    capabilities: frozenset[str] = frozenset()

    def run(self, body: Body) -> None:
        outside = ("mem://other/object", "mem://root/../other/object", "file:///object", "object")
        workspace = MemoryWorkspace("mem://root/", jobs="mem://root/")
        harness = Harness(workspace, "mem://root/", outside)
        asyncio.run(_await(body, harness))


ADAPTERS: tuple[Adapter, ...] = (LocalAdapter(), BySchemeAdapter(), MemoryAdapter())
