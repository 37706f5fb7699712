"""The stores of lease rows that the suite runs on."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from lucius.ledgers.memory_leases import MemoryLeases
from lucius.ports.leases import LeaseStore

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


ADAPTERS: tuple[Adapter, ...] = (MemoryAdapter(),)
