"""The ledgers that the suite runs on. A new adapter is one class here and one line in `ADAPTERS`.

The suite asks for capabilities, never for names. What it plants to be found by `verify`, an adapter
plants in its own way.
"""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from lucius.adapters.ledgers.azure.ledger import AzureLedger
from lucius.adapters.ledgers.azure.store import Store
from lucius.adapters.ledgers.memory import MemoryLedger
from lucius.adapters.ledgers.sqlite.ledger import SqliteLedger
from lucius.core.decide import decide
from lucius.core.effects import Decision
from lucius.core.inputs import Input
from lucius.core.job import Job
from lucius.ports.ledger import Claim, Created, Ledger
from tests.azurite_server import shared_azurite
from tests.conformance.azure_ledgers import (
    AzureTamper,
    SplitTamper,
    fresh_prefix,
    on_azurite,
    single,
    split,
)
from tests.conformance.jobs import Made, at
from tests.conformance.ledger_tamper import MemoryTamper, SqliteTamper
from tests.conformance.on_every import SERVER
from tests.memory_tables import ForgetfulTables, MemoryTables

DURABLE = "durable"
"""What was acknowledged is there when the ledger is opened again."""

BULK = "bulk"
"""Hundreds of jobs are a matter of seconds."""

EXACT_LIMITS = "exact limits"
"""Limits in all and by lane are exact."""

SHARED = "shared"
"""Several processes may have it open. Their limits in all and by lane are approximate."""

LANES = range(16)
RUINS = ("document", "shape", "time", "steps", "version", "plan", "no plan", "ready")


class Tamper(Protocol):
    """Damage, as a defect or a stray hand would do it behind the ledger's back."""

    async def edit(self, job_id: str, change: Callable[[dict[str, Any]], None]) -> None:
        """Change the stored document of a job, and nothing beside it."""

    async def mark_newer(self, job_id: str) -> None:
        """Make it a job that a newer version has written."""

    async def extend(self, job_id: str) -> None:
        """Add a column to every stored row of the job, as a newer version would."""

    async def extended(self, job_id: str) -> set[str]:
        """The rows of the job that have that column."""

    async def ruin(self, job_id: str, what: str) -> None:
        """Make what is stored of a job unreadable; `what` is one of `RUINS`."""

    async def lose_job(self, job_id: str) -> None: ...

    async def lose_claim(self, claim: Claim) -> None: ...

    async def lose_ready(self, job_id: str) -> None: ...

    async def lose_due(self, job_id: str) -> None:
        """The index no longer knows when the job is due."""

    async def lose_events(self, job_id: str) -> None:
        """The last events of a job are gone."""

    async def stray_ready(self, job_id: str) -> None:
        """A ready entry for a job that has none, or that is not there."""

    async def miscount(self, job_id: str) -> None:
        """One live job too many is recorded where that job counts."""


@dataclass
class Harness:
    ledger: Ledger
    capabilities: frozenset[str]
    tamper: Tamper
    reopened: Callable[[], Awaitable[Ledger]]
    """Close the ledger and open it again; only where it is durable."""
    another: Callable[[], Ledger] | None = None
    """The same ledger as another process has it; only where it is shared."""
    clock: float = field(default=0)

    async def create(self, made: Made) -> Job:
        assert await self.ledger.create(made.claim, made.job, made.events) == Created()
        return made.job

    async def apply(self, job: Job, received: Input, now: datetime | None = None) -> Job:
        """One input through the real core, saved; each a second after the last unless told."""
        self.clock += 1
        return await self.save(decide(job, received, now or at(self.clock)))

    async def save(self, decision: Decision) -> Job:
        job = decision.job
        assert await self.ledger.save(job, job.version - 1, decision.events)
        return job

    async def reopen(self) -> Ledger:
        self.ledger = await self.reopened()
        return self.ledger

    async def kinds(self) -> set[str]:
        """What `verify` finds."""
        return {drift.kind for drift in await self.ledger.verify()}


Body = Callable[[Harness], Awaitable[None]]


class Adapter(Protocol):
    name: str
    capabilities: frozenset[str]

    def run(self, body: Body) -> None:
        """Run one test against a fresh ledger, from opening to closing."""


class MemoryAdapter:
    name = "memory"
    capabilities = frozenset({BULK, EXACT_LIMITS})

    def run(self, body: Body) -> None:
        async def main() -> None:
            ledger = MemoryLedger()
            await body(Harness(ledger, self.capabilities, MemoryTamper(ledger), _never))

        asyncio.run(main())


async def _never() -> Ledger:
    raise AssertionError("this ledger is not durable")


class SqliteAdapter:
    name = "sqlite"
    capabilities = frozenset({DURABLE, BULK, EXACT_LIMITS})

    def run(self, body: Body) -> None:
        with tempfile.TemporaryDirectory(prefix="lucius-ledger-") as folder:
            asyncio.run(self._main(body, Path(folder) / "ledger.db"))

    async def _main(self, body: Body, path: Path) -> None:
        async def reopened() -> Ledger:
            await harness.ledger.close()
            return await SqliteLedger.open(path)

        opened = await SqliteLedger.open(path)
        harness = Harness(opened, self.capabilities, SqliteTamper(path), reopened)
        try:
            await body(harness)
        finally:
            await harness.ledger.close()


@dataclass(frozen=True)
class OnTables:
    """An Azure backend: how it is opened on a table service, and how it is damaged there."""

    name: str
    opens: Callable[[Store, str], AzureLedger]
    tamper: Callable[[Store, str], Tamper]

    async def run(self, store: Store, prefix: str, body: Body) -> None:
        async def reopened() -> Ledger:
            await harness.ledger.close()
            return self.opens(shared, prefix)

        shared = Shared(store)
        tamper = self.tamper(shared, prefix)
        able = frozenset({DURABLE, SHARED})
        another = partial(self.opens, shared, prefix)
        harness = Harness(another(), able, tamper, reopened, another=another)
        await body(harness)
        await harness.ledger.close()


SINGLE = OnTables("ledger", single, AzureTamper)
SPLIT = OnTables("table", split, SplitTamper)


class Shared:
    """A store that outlives the ledgers that are opened on it one after another."""

    def __init__(self, store: Store) -> None:
        self.get, self.scan, self.commit = store.get, store.scan, store.commit
        self.dated = store.dated

    async def close(self) -> None:
        """The test closes the store itself."""


class DoubleAdapter:
    """An Azure ledger on a table service in memory."""

    capabilities = frozenset({DURABLE, BULK, SHARED})

    def __init__(self, backend: OnTables, tables: type[MemoryTables] = MemoryTables) -> None:
        lossy = " without answers" if tables is ForgetfulTables else ""
        self.name = f"{backend.name}-double{lossy}"
        self._backend = backend
        self._tables = tables

    def run(self, body: Body) -> None:
        asyncio.run(self._backend.run(self._tables(), fresh_prefix(), body))


class AzuriteAdapter:
    """An Azure ledger on Azurite, through the SDK."""

    capabilities = frozenset({DURABLE, SHARED, SERVER})

    def __init__(self, backend: OnTables) -> None:
        self.name = backend.name
        self._backend = backend

    def run(self, body: Body) -> None:
        async def main(store: Store, prefix: str) -> None:
            await self._backend.run(store, prefix, body)

        on_azurite(shared_azurite().table_connection, main)


ADAPTERS: tuple[Adapter, ...] = (
    MemoryAdapter(),
    SqliteAdapter(),
    DoubleAdapter(SINGLE),
    DoubleAdapter(SINGLE, ForgetfulTables),
    AzuriteAdapter(SINGLE),
    DoubleAdapter(SPLIT),
    DoubleAdapter(SPLIT, ForgetfulTables),
    AzuriteAdapter(SPLIT),
)
