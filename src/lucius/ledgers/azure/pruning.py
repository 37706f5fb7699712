"""Deletes jobs that ended long ago: the claim first, then the job's rows, its place in the lists last.

Stopped anywhere, the list still names the job, so that the next sweep finishes.
"""

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Final

import orjson

from lucius.ledgers.azure import names
from lucius.ledgers.azure.layout import Layout
from lucius.ledgers.azure.seen import Sights
from lucius.ledgers.azure.store import ETAG, ROW, Act, Change, Row, Store, row_of
from lucius.ledgers.azure.tenants import ENDED, HEIR, Tenants
from lucius.ledgers.stored.json_form import micros
from lucius.ports.ledger import Pruned

PRUNED_AT_ONCE: Final = 256


class Pruning:
    def __init__(
        self, store: Store, table: str, tenants: Tenants, rows: Layout, sights: Sights
    ) -> None:
        self._store = store
        self._table = table
        self._tenants = tenants
        self._rows = rows
        self._sights = sights

    async def page(self, before: datetime, limit: int, cursor: str | None) -> Pruned:
        limit, looked, deleted = min(limit, PRUNED_AT_ONCE), 0, set[str]()
        tenant, after = _place(cursor)
        for tenant_id in sorted(await self._tenants.all()):
            if tenant is not None and tenant_id < tenant:
                continue
            start = after if tenant_id == tenant else ""
            async for row in self._ended(tenant_id, micros(before), start):
                await self._pruned(tenant_id, row, micros(before), deleted)
                looked += 1
                if looked == limit:
                    return Pruned(len(deleted), _cursor(tenant_id, row[ROW]))
        return Pruned(len(deleted))

    async def prunable(self, before: datetime) -> int:
        total = 0
        for tenant_id in await self._tenants.all():
            going = {
                row["job_id"]
                async for row in self._ended(tenant_id, micros(before))
                if await self._may_go(tenant_id, row)
            }
            total += len(_without_kept(going, await self._heirs(tenant_id)))
        return total

    async def _ended(self, tenant_id: str, before: int, after: str = "") -> AsyncIterator[Row]:
        first = after + names.AFTER_JOINT if after else names.prefix(ENDED)
        scan = self._store.scan(
            self._table, names.key(tenant_id), first, names.past(ENDED), equal={"dlq": False}
        )
        async for row in scan:
            if row.get("completed") is not None and row["completed"] < before:
                yield row

    async def _may_go(self, tenant_id: str, row: Row) -> bool:
        """What owed nothing at its end never will. Of the others, the job itself is asked."""
        if not row.get("owing"):
            return True
        job = await self._rows.glance(row["job_id"], tenant_id)
        return job is None or job.due is None

    async def _heirs(self, tenant_id: str, job_id: str | None = None) -> list[tuple[str, str]]:
        """Who took over from whom: the old job, and the new one."""
        first = names.prefix(HEIR) if job_id is None else names.prefix(HEIR, job_id)
        scan = self._store.scan(self._table, names.key(tenant_id), first, names.past(first))
        return [(names.parts_of(row[ROW])[1], row["job_id"]) async for row in scan]

    async def _pruned(
        self, tenant_id: str, row: Row | None, before: int, deleted: set[str]
    ) -> None:
        """The job, if it may go, and then those that only waited for it."""
        while row is not None and row["completed"] < before and not row["dlq"]:
            job_id, old = row["job_id"], row.get("redrive_of")
            kept = job_id in deleted or await self._heirs(tenant_id, job_id)
            if kept or not await self._may_go(tenant_id, row):
                return
            await self._delete(tenant_id, row)
            deleted.add(job_id)
            row = await self._ended_row(tenant_id, old) if old is not None else None

    async def _ended_row(self, tenant_id: str, job_id: str) -> Row | None:
        scan = self._store.scan(
            self._table,
            names.key(tenant_id),
            names.prefix(ENDED),
            names.past(ENDED),
            equal={"job_id": job_id},
        )
        async for row in scan:
            return row
        return None

    async def _delete(self, tenant_id: str, row: Row) -> None:
        partition, job_id = names.key(tenant_id), row["job_id"]
        claim = await self._store.get(self._table, partition, names.key(row["claim_hash"]))
        if claim is not None and claim["job_id"] == job_id:
            gone = Change(Act.DELETE, row_of(partition, claim[ROW], {}), claim[ETAG])
            await self._store.commit(self._table, [gone])
        await self._rows.delete(job_id, tenant_id)
        self._sights.forget(job_id)
        keys = [row[ROW]]
        if row.get("redrive_of"):
            keys.append(names.key(HEIR, row["redrive_of"], job_id))
        gone_too = [Change(Act.DELETE, row_of(partition, key, {})) for key in keys]
        await self._store.commit(self._table, gone_too)


def _without_kept(going: set[str], heirs: list[tuple[str, str]]) -> set[str]:
    """A job stays as long as one that took over from it."""
    while kept := {old for old, new in heirs if old in going and new not in going}:
        going -= kept
    return going


def _cursor(tenant_id: str, row: str) -> str:
    return orjson.dumps([tenant_id, row]).decode()


def _place(cursor: str | None) -> tuple[str | None, str]:
    if cursor is None:
        return None, ""
    tenant_id, row = orjson.loads(cursor)
    return tenant_id, row
