"""The stores of API keys that the suite runs on."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from lucius.adapters.ledgers.azure.side_tables import AzureKeys
from lucius.adapters.ledgers.azure.store import Store
from lucius.adapters.ledgers.memory import MemoryKeys
from lucius.http.keys import FileKeys, KeyFile
from lucius.ports.keys import KeyStore
from tests.azurite_server import shared_azurite
from tests.conformance.azure_ledgers import LANES, on_azurite
from tests.conformance.on_every import SERVER
from tests.memory_tables import ForgetfulTables, MemoryTables

Opens = Callable[[], KeyStore]
"""A store as one more process would open it."""
Body = Callable[[Opens], Awaitable[None]]


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
            store = MemoryKeys()
            await body(lambda: store)

        asyncio.run(main())


class FileAdapter:
    """What an installation on SQLite has: `lucius keys` writes while the server owns the ledger."""

    name = "file"
    capabilities: frozenset[str] = frozenset()

    def run(self, body: Body) -> None:
        async def main(path: Path) -> None:
            await body(lambda: FileKeys(KeyFile(path)))

        with tempfile.TemporaryDirectory(prefix="lucius-keys-") as folder:
            asyncio.run(main(Path(folder) / "keys.json"))


class DoubleAdapter:
    capabilities: frozenset[str] = frozenset()

    def __init__(self, name: str, tables: type[MemoryTables]) -> None:
        self.name = name
        self._tables = tables

    def run(self, body: Body) -> None:
        async def main() -> None:
            store = self._tables()
            await body(lambda: AzureKeys(store, "shared"))

        asyncio.run(main())


class AzuriteAdapter:
    name = "azure"
    capabilities: frozenset[str] = frozenset({SERVER})

    def run(self, body: Body) -> None:
        async def main(store: Store, prefix: str) -> None:
            await body(lambda: AzureKeys(store, prefix + LANES))

        on_azurite(shared_azurite().table_connection, main)


ADAPTERS: tuple[Adapter, ...] = (
    MemoryAdapter(),
    FileAdapter(),
    DoubleAdapter("azure-double", MemoryTables),
    DoubleAdapter("azure-double without answers", ForgetfulTables),
    AzuriteAdapter(),
)
