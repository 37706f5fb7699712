"""The workspaces that the suite runs on. A new adapter is one class here and one line in `ADAPTERS`."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol
from unittest.mock import patch
from urllib.parse import urlsplit
from uuid import uuid4

from obstore.store import MemoryStore

from lucius.adapters.workspaces.azure_account import Account, account_of
from lucius.adapters.workspaces.azure_blob import blobs
from lucius.adapters.workspaces.buckets import gcs, s3
from lucius.adapters.workspaces.by_scheme import WorkspaceByScheme
from lucius.adapters.workspaces.local import LocalWorkspace
from lucius.adapters.workspaces.memory import MemoryWorkspace
from lucius.adapters.workspaces.objects import ObjectWorkspace
from lucius.app.azure_stack import create_container
from lucius.ports.workspace import Workspace
from tests.azurite_server import shared_azurite
from tests.conformance.on_every import SERVER
from tests.s3_server import S3Server, shared_s3


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
    try:
        await body(harness)
    finally:
        await harness.workspace.close()


class LocalAdapter:
    name = "local"
    capabilities: frozenset[str] = frozenset()

    def run(self, body: Body) -> None:
        async def main(folder: str) -> None:
            await _await(body, self.harness(Path(folder)))

        with TemporaryDirectory() as folder:
            asyncio.run(main(folder))

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


class AzureBlobAdapter:
    """On Azurite, in a container of its own each time; or in an account, where one is given.

    `spelt` is how references name the container.
    """

    capabilities: frozenset[str] = frozenset({SERVER})

    def __init__(self, name: str, spelt: str) -> None:
        self.name = name
        self._spelt = spelt

    def run(self, body: Body) -> None:
        given = os.environ.get("LUCIUS_BLOB_CONNECTION", "")
        connection = given or shared_azurite().blob_connection
        asyncio.run(self._run(body, connection))

    async def _run(self, body: Body, connection: str) -> None:
        container = f"suite-{uuid4().hex[:12]}"
        await create_container(connection, container)
        host = urlsplit(account_of(connection).endpoint).netloc
        base = self._spelt.format(container=container, host=host)
        root = f"{base}/root/"
        outside = (
            f"{base}/other/object",
            f"{base}/root/../other/object",
            f"{base}/root/%2e%2e/other/object",
            f"{base}/root-longer/object",
            f"{base}/root//object",
            f"{base}/root/./object",
            f"{base}/root/back%5Cslash",
            f"{base}/root/nul%00byte",
            f"{base}/root/object?version=1",
            f"{base}/root/object?sig=x&se=y",
            f"az://{container}2/root/object",
            f"abfs://{container}@elsewhere.dfs.core.windows.net/root/object",
            f"https://elsewhere.blob.core.windows.net/{container}/root/object",
            f"https://{host}.elsewhere.example/{container}/root/object",
            f"s3://{container}/root/object",
            "az://UPPER/root/object",
            "file:///root/object",
            "object",
        )
        stores = blobs(account_of(connection))
        await body(Harness(ObjectWorkspace([stores], home=root), root, outside))


class ObjectsInMemoryAdapter:
    """The same adapter over the library's own store in memory."""

    name = "objects in memory"
    capabilities: frozenset[str] = frozenset()

    def run(self, body: Body) -> None:
        account, store = Account("name", "https://name.blob.core.windows.net"), MemoryStore()
        stores = replace(blobs(account), open=lambda container: store)
        root = "https://name.blob.core.windows.net/container/root/"
        workspace = ObjectWorkspace([stores], home=root)
        outside = ("https://name.blob.core.windows.net/other/root/object", "az://container/other")
        asyncio.run(_await(body, Harness(workspace, root, outside)))


class BucketAdapter:
    """S3, or the same server as Google Cloud Storage speaks, in a bucket of its own each time."""

    capabilities: frozenset[str] = frozenset({SERVER})

    def __init__(self, name: str, scheme: str) -> None:
        self.name = name
        self._scheme = scheme

    def run(self, body: Body) -> None:
        server = shared_s3()
        with patch.dict(os.environ, server.known):
            asyncio.run(self._run(body, server))

    async def _run(self, body: Body, server: S3Server) -> None:
        stores = {"s3": s3(server.keyed), "gs": gcs(server.gcs)}[self._scheme]
        bucket = server.bucket()
        base = f"{self._scheme}://{bucket}"
        root = f"{base}/root/"
        outside = (
            f"{base}/other/object",
            f"{base}/root/../other/object",
            f"{base}/root/%2e%2e/other/object",
            f"{base}/root-longer/object",
            f"{base}/root//object",
            f"{base}/root/./object",
            f"{base}/root/back%5Cslash",
            f"{base}/root/nul%00byte",
            f"{base}/root/object?versionId=1",
            f"{base}/root/object?X-Amz-Signature=x",
            f"{self._scheme}://{bucket}2/root/object",
            f"{self._scheme}://user:password@{bucket}/root/object",
            f"{self._scheme}://{bucket.upper()}/root/object",
            f"{self._scheme}://{bucket}:443/root/object",
            f"az://{bucket}/root/object",
            f"https://{bucket}.s3.amazonaws.com/root/object",
            "file:///root/object",
            "object",
        )
        await body(Harness(ObjectWorkspace([stores], home=root), root, outside))


ADAPTERS: tuple[Adapter, ...] = (
    LocalAdapter(),
    BySchemeAdapter(),
    MemoryAdapter(),
    ObjectsInMemoryAdapter(),
    AzureBlobAdapter("azure blob", "az://{container}"),
    AzureBlobAdapter("azure blob as data lake", "abfss://{container}@{host}"),
    BucketAdapter("s3", "s3"),
    BucketAdapter("google cloud storage, translated", "gs"),
)
