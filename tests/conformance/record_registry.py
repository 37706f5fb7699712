"""The stores of begun and done work that the suite runs on. Each is opened once for every process."""

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol
from unittest.mock import patch

from lucius.adapters.ledgers.azure.records import TableRecords
from lucius.adapters.ledgers.azure.store import Store
from lucius.adapters.workspaces.buckets import s3
from lucius.adapters.workspaces.local import LocalWorkspace
from lucius.adapters.workspaces.memory import MemoryWorkspace
from lucius.adapters.workspaces.objects import ObjectWorkspace
from lucius.platform import MemoryRecords, Records, WorkspaceRecords
from tests.azurite_server import shared_azurite
from tests.conformance.azure_ledgers import LANES, on_azurite
from tests.conformance.on_every import SERVER
from tests.memory_tables import MemoryTables
from tests.s3_server import S3Server, shared_s3
from tests.virtual import VirtualLoop, run_virtually

SHARED = "shared"
"""Processes that come later know what earlier ones have recorded."""


@dataclass
class Clock:
    """Time that goes on when it is told to."""

    at: datetime = field(default_factory=lambda: datetime(2026, 1, 1, tzinfo=UTC))

    def now(self) -> datetime:
        return self.at

    def seconds(self) -> float:
        return self.at.timestamp()

    async def advance(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


@dataclass
class Process:
    """`records` of one process, `another` opens those of the next one on the same store."""

    records: Records
    another: Callable[[], Records]
    advance: Callable[[float], Awaitable[None]]
    home: str = "mem://lucius/tenant_a/job_1/"


Body = Callable[[Process], Awaitable[None]]


class Adapter(Protocol):
    name: str
    capabilities: frozenset[str]

    def run(self, body: Body) -> None:
        """Run one test on an empty store."""


class MemoryAdapter:
    name = "memory"
    capabilities: frozenset[str] = frozenset()

    def run(self, body: Body) -> None:
        async def main(loop: VirtualLoop) -> None:
            await body(Process(MemoryRecords(), MemoryRecords, asyncio.sleep))

        run_virtually(main)


class WorkspaceAdapter:
    name = "workspace"
    capabilities = frozenset({SHARED})

    def run(self, body: Body) -> None:
        async def main() -> None:
            clock, workspace = Clock(), MemoryWorkspace()

            def opened() -> Records:
                return WorkspaceRecords(workspace, clock.seconds)

            await body(Process(opened(), opened, clock.advance))

        asyncio.run(main())


class SqliteAdapter:
    """A workspace on local files keeps them in `.notes.sqlite3`."""

    name = "sqlite"
    capabilities = frozenset({SHARED})

    def run(self, body: Body) -> None:
        async def main(folder: Path) -> None:
            clock = Clock()

            def opened() -> Records:
                return WorkspaceRecords(LocalWorkspace(folder), clock.seconds)

            home = f"{folder.as_uri()}/lucius/tenant_a/job_1/"
            await body(Process(opened(), opened, clock.advance, home))

        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(main(Path(folder).resolve()))


class BucketAdapter:
    """Objects of S3, through clients of each process's own."""

    name = "s3"
    capabilities = frozenset({SHARED, SERVER})

    def run(self, body: Body) -> None:
        async def main(server: S3Server) -> None:
            clock, home = Clock(), f"s3://{server.bucket()}/jobs/"

            def opened() -> Records:
                workspace = ObjectWorkspace([s3(server.keyed)], home=home)
                return WorkspaceRecords(workspace, clock.seconds)

            place = f"{home}lucius/tenant_a/job_1/"
            await body(Process(opened(), opened, clock.advance, place))

        server = shared_s3()
        with patch.dict(os.environ, server.known):
            asyncio.run(main(server))


class TableAdapter:
    def __init__(self, name: str) -> None:
        self.name = name
        self.capabilities = frozenset({SHARED} | ({SERVER} if name == "azurite" else set()))

    def run(self, body: Body) -> None:
        async def main(store: Store, prefix: str) -> None:
            clock = Clock()

            def opened() -> Records:
                return TableRecords(store, prefix + LANES, clock.now)

            await body(Process(opened(), opened, clock.advance))

        if self.name == "azurite":
            on_azurite(shared_azurite().table_connection, main)
        else:
            asyncio.run(main(MemoryTables(), "t"))


ADAPTERS: tuple[Adapter, ...] = (
    MemoryAdapter(),
    WorkspaceAdapter(),
    SqliteAdapter(),
    BucketAdapter(),
    TableAdapter("table"),
    TableAdapter("azurite"),
)
