"""The stores of lease rows that the suite runs on."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from lucius.ledgers.azure.leases import AzureLeases
from lucius.ledgers.azure.store import Store
from lucius.ledgers.memory_leases import MemoryLeases
from lucius.ports.leases import LeaseStore
from tests.azurite_server import shared_azurite
from tests.conformance.azure_ledgers import LANES, on_azurite

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


class AzuriteAdapter:
    name = "azure"
    capabilities: frozenset[str] = frozenset()

    def run(self, body: Body) -> None:
        async def main(store: Store, prefix: str) -> None:
            await body(AzureLeases(store, prefix + LANES))

        on_azurite(shared_azurite().table_connection, main)


ADAPTERS: tuple[Adapter, ...] = (MemoryAdapter(), AzuriteAdapter())
