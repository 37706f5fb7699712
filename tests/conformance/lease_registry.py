"""The stores of lease rows that the suite runs on."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from lucius.adapters.ledgers.azure.side_tables import LEASES, SHARED_RECORDS, AzureLeases
from lucius.adapters.ledgers.azure.store import Store
from lucius.adapters.ledgers.memory import MemoryLeases
from lucius.adapters.ledgers.sqlite.ledger import SqliteLedger
from lucius.ports.leases import LeaseStore
from tests.azurite_server import shared_azurite
from tests.conformance.azure_ledgers import LANES, on_azurite
from tests.conformance.on_every import SERVER

Body = Callable[[LeaseStore], Awaitable[None]]


class Adapter(Protocol):
    name: str
    capabilities: frozenset[str]

    def run(self, body: Body) -> None:
        """Run one test against an empty store."""


class MemoryAdapter:
    name = "memory"
    capabilities: frozenset[str] = frozenset()

    def run(self, body: Body) -> None:
        async def main() -> None:
            await body(MemoryLeases())

        asyncio.run(main())


class SqliteSharedRecordsAdapter:
    name = "sqlite notes"
    capabilities: frozenset[str] = frozenset()

    def run(self, body: Body) -> None:
        async def main(folder: str) -> None:
            ledger = await SqliteLedger.open(Path(folder) / "ledger.db")
            try:
                await body(ledger.shared_records())
            finally:
                await ledger.close()

        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(main(folder))


class AzuriteAdapter:
    capabilities: frozenset[str] = frozenset({SERVER})

    def __init__(self, name: str, partition: str) -> None:
        self.name = name
        self._partition = partition

    def run(self, body: Body) -> None:
        async def main(store: Store, prefix: str) -> None:
            await body(AzureLeases(store, prefix + LANES, self._partition))

        on_azurite(shared_azurite().table_connection, main)


ADAPTERS: tuple[Adapter, ...] = (
    MemoryAdapter(),
    SqliteSharedRecordsAdapter(),
    AzuriteAdapter("azure", LEASES),
    AzuriteAdapter("azure notes", SHARED_RECORDS),
)
