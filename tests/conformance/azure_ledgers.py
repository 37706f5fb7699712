"""The Azure ledgers under test: on a table service in memory, and on a real Azurite."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import orjson

from lucius.adapters.ledgers.azure import names
from lucius.adapters.ledgers.azure.copies import LAG
from lucius.adapters.ledgers.azure.ledger import AzureLedger
from lucius.adapters.ledgers.azure.opening import open_tables
from lucius.adapters.ledgers.azure.projections import Tables
from lucius.adapters.ledgers.azure.single import SingleTable
from lucius.adapters.ledgers.azure.split import SplitTables
from lucius.adapters.ledgers.azure.store import (
    ROW,
    Act,
    Change,
    Row,
    Store,
    joined,
    row_of,
    service_time,
)
from lucius.adapters.ledgers.azure.tenants import ADMITTED
from lucius.adapters.ledgers.azure.wakeups import READY, WAKE
from lucius.ports.ledger import Claim
from tests.conformance.jobs import make

ChangeDoc = Callable[[dict[str, Any]], None]
JOBS, TENANTS, LANES = "jobs", "tenants", "lanes"
STEPS, OUTBOX, EVENTS = "steps", "outbox", "events"
ALL = (JOBS, TENANTS, LANES, STEPS, OUTBOX, EVENTS)
Key = tuple[str, str]
"""Of a row: partition and row."""


def single(store: Store, prefix: str, now: Callable[[], datetime] | None = None) -> AzureLedger:
    layout = SingleTable(store, prefix + JOBS)
    tenants, lanes = prefix + TENANTS, prefix + LANES
    return AzureLedger(store, layout, tenants=tenants, lanes=lanes, shared=lanes, now=now)


def split(
    store: Store,
    prefix: str,
    now: Callable[[], datetime] | None = None,
    lag: timedelta = LAG,
) -> AzureLedger:
    tables = Tables(*(prefix + table for table in (JOBS, STEPS, OUTBOX, EVENTS)))
    layout = SplitTables(store, tables, now=now or partial(service_time, store), lag=lag)
    tenants, lanes = prefix + TENANTS, prefix + LANES
    return AzureLedger(store, layout, tenants=tenants, lanes=lanes, shared=lanes, now=now)


class AzureTamper:
    """Rows changed behind the ledger's back, as Storage Explorer would."""

    def __init__(self, store: Store, prefix: str) -> None:
        self.store = store
        self.jobs, self.tenants, self.lanes = (prefix + table for table in (JOBS, TENANTS, LANES))

    async def _job_key(self, job_id: str) -> Key:
        return names.key(job_id), "JOB"

    async def _plan_key(self, job_id: str) -> Key:
        return names.key(job_id), "JOB|PLAN"

    async def _merge(self, table: str, partition: str, row: str, **columns: Any) -> None:
        change = Change(Act.MERGE, row_of(partition, row, columns))
        await self.store.commit(table, [change])

    async def _delete(self, table: str, rows: list[Row]) -> None:
        for row in rows:
            await self.store.commit(table, [Change(Act.DELETE, row)])

    async def _head(self, job_id: str) -> Row:
        row = await self.store.get(self.jobs, *await self._job_key(job_id))
        assert row is not None
        return row

    async def _lane_rows(self, kind: str, job_id: str) -> list[Row]:
        first = names.prefix(kind)
        scan = self.store.scan(self.lanes, None, first, names.past(first))
        return [row async for row in scan if row.get("job_id") == job_id]

    async def edit(self, job_id: str, change: ChangeDoc) -> None:
        row = await self._head(job_id)
        doc = orjson.loads(joined("doc", row))
        change(doc)
        key = await self._job_key(job_id)
        await self._merge(self.jobs, *key, doc=orjson.dumps(doc).decode())

    async def mark_newer(self, job_id: str) -> None:
        await self.edit(job_id, lambda doc: doc.update(schema=99))
        await self._merge(self.jobs, *await self._job_key(job_id), schema=99)
        for kind in (WAKE, READY):
            for row in await self._lane_rows(kind, job_id):
                await self._merge(self.lanes, row["PartitionKey"], row[ROW], schema=99)

    async def _rows_of(self, job_id: str) -> list[tuple[str, Row]]:
        """With the tables that they are in."""
        scan = self.store.scan(self.jobs, names.key(job_id))
        return [(self.jobs, row) async for row in scan]

    async def extend(self, job_id: str) -> None:
        for table, row in await self._rows_of(job_id):
            await self._merge(table, row["PartitionKey"], row[ROW], colour="blue")

    async def extended(self, job_id: str) -> set[str]:
        rows = await self._rows_of(job_id)
        return {f"{table} {row[ROW]}" for table, row in rows if row.get("colour") == "blue"}

    async def ruin(self, job_id: str, what: str) -> None:
        key = await self._job_key(job_id)
        match what:
            case "document":
                await self._merge(self.jobs, *key, doc="\x00")
            case "shape":
                await self._merge(self.jobs, *key, doc="[1, 2]")
            case "time":
                await self.edit(job_id, lambda doc: doc.update(updated=10**18))
            case "steps":
                await self.edit(job_id, lambda doc: doc["steps"].pop())
            case "version":
                await self.edit(job_id, lambda doc: doc.update(version=99))
            case "plan":
                await self._merge(self.jobs, *await self._plan_key(job_id), doc="{}")
            case "no plan":
                plan = row_of(*await self._plan_key(job_id), {})
                await self._delete(self.jobs, [plan])
            case "ready":
                await self._merge(self.jobs, *key, ready="x")

    async def lose_job(self, job_id: str) -> None:
        scan = self.store.scan(self.jobs, names.key(job_id))
        await self._delete(self.jobs, [row async for row in scan])

    async def lose_claim(self, claim: Claim) -> None:
        row = row_of(names.key(claim.tenant_id), names.key(claim.claim_hash), {})
        await self._delete(self.tenants, [row])

    async def lose_ready(self, job_id: str) -> None:
        await self._delete(self.lanes, await self._lane_rows(READY, job_id))

    async def lose_due(self, job_id: str) -> None:
        await self._delete(self.lanes, await self._lane_rows(WAKE, job_id))

    async def lose_events(self, job_id: str) -> None:
        scan = self.store.scan(self.jobs, names.key(job_id), "EVENT|", "EVENT}")
        await self._delete(self.jobs, [[row async for row in scan][-1]])

    async def stray_ready(self, job_id: str) -> None:
        lane = make("stray").job.plan.routing.lane
        row = names.key(READY, "ocr-service", "tenant_a", names.rising(10**15), job_id, "ocr")
        columns = {"version": 1, "schema": 1, "job_id": job_id}
        change = Change(Act.INSERT, row_of(f"{lane:02}", row, columns))
        await self.store.commit(self.lanes, [change])

    async def miscount(self, job_id: str) -> None:
        head = await self._head(job_id)
        key = names.key(head["tenant_id"])
        row = await self.store.get(self.tenants, key, ADMITTED)
        assert row is not None
        cells = {name: n + 1 for name, n in orjson.loads(row["cells"]).items()}
        await self._merge(self.tenants, key, ADMITTED, cells=orjson.dumps(cells).decode())


class SplitTamper(AzureTamper):
    def __init__(self, store: Store, prefix: str) -> None:
        super().__init__(store, prefix)
        self._steps, self._events = prefix + STEPS, prefix + EVENTS
        self._outbox = prefix + OUTBOX

    async def _rows_of(self, job_id: str) -> list[tuple[str, Row]]:
        """The tenant has no other job."""
        rows: list[tuple[str, Row]] = []
        for table in (self.jobs, self._steps, self._outbox, self._events):
            rows += [(table, row) async for row in self.store.scan(table, None)]
        return rows

    async def _job_key(self, job_id: str) -> Key:
        head = await self.store.get(self._steps, names.key(job_id), "JOB")
        assert head is not None
        return head["tenant_bucket"], names.key(job_id)

    async def _plan_key(self, job_id: str) -> Key:
        partition, row = await self._job_key(job_id)
        return partition, f"{row}|PLAN"

    async def lose_job(self, job_id: str) -> None:
        for key in (await self._job_key(job_id), await self._plan_key(job_id)):
            await self._delete(self.jobs, [row_of(*key, {})])

    async def lose_events(self, job_id: str) -> None:
        """Where they are: copied, or still with the job."""
        scan = self.store.scan(self._events, names.key(job_id))
        await self._delete(self._events, [row async for row in scan][-1:])
        await self._merge(self.jobs, *await self._job_key(job_id), pending="[]")


def fresh_prefix() -> str:
    return f"t{uuid4().hex[:12]}"


Run = Callable[[Store, str], Awaitable[None]]


def on_azurite(connection: str, run: Run) -> None:
    """Fresh tables. They go with their server."""

    async def main() -> None:
        store, prefix = open_tables(connection), fresh_prefix()
        try:
            for table in ALL:
                await store.ensure(prefix + table, "LUCIUS_LEDGER_TABLE")
            await run(store, prefix)
        finally:
            await store.close()

    asyncio.run(main())
