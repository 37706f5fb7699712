"""Repairs jobs that no row of a lane brings up, or that lack a row in a ready queue.

No save leaves such a job, whether or not an answer is lost. Rows that somebody has deleted lead there.
"""

import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

import orjson

from lucius.adapters.ledgers.azure import names
from lucius.adapters.ledgers.azure.heads import Layout, Stored
from lucius.adapters.ledgers.azure.store import ETAG, ROW, Act, Change, Refused, Row, Store, row_of
from lucius.adapters.ledgers.azure.tenants import ENDED, HEIR, Tenants
from lucius.adapters.ledgers.azure.wakeups import SHARDS, LaneTable, new_wakeup, ready_rows
from lucius.adapters.ledgers.azure.writing import SeenJobs
from lucius.adapters.ledgers.stored.json_form import micros
from lucius.core.errors import LedgerRowUnreadableError, LedgerTooNewError
from lucius.ports.ledger import Pruned

# Deletes jobs that ended long ago: the claim first, then the job's rows, its place in the lists last.
#
# Stopped anywhere, the list still names the job, so that the next sweep finishes.

PRUNED_AT_ONCE: Final = 256


class Pruning:
    def __init__(
        self, store: Store, table: str, tenants: Tenants, rows: Layout, seen_jobs: SeenJobs
    ) -> None:
        self._store = store
        self._table = table
        self._tenants = tenants
        self._rows = rows
        self._seen_jobs = seen_jobs

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
        self._seen_jobs.forget(job_id)
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


log = logging.getLogger("lucius.ledger")

PAUSE: Final = timedelta(minutes=5)
"""Between two comparisons of all live jobs with the rows of the lanes."""
MOST_COMPARED: Final = 100_000
"""Rows of lanes. Where more jobs wait, the comparison is left out: its memory is bounded."""


class Repair:
    def __init__(
        self,
        rows: Layout,
        tenants: Tenants,
        lanes: LaneTable,
        seen_jobs: SeenJobs,
        now: Callable[[], datetime],
    ) -> None:
        self._rows = rows
        self._tenants = tenants
        self._lanes = lanes
        self._seen_jobs = seen_jobs
        self._now = now
        self._compared_at = now()
        self._suspects: frozenset[str] = frozenset()
        """Live jobs that had no row in a lane at the last comparison."""

    async def job(self, job_id: str) -> bool:
        """Write the rows of its lane again if one of them is missing. True: it has them again."""
        stored = await self._rows.read(job_id)
        if stored is None or not await self._lanes.lacks(stored.job.plan.shard, _needed(stored)):
            return False
        job, head = stored.job, stored.head
        found = await self._rows.glance(job_id, job.tenant_id)
        if found is None or found.version != job.version:
            return False  # someone has moved it since, and has written what it needs
        due = micros(job.due_at or self._now())
        announced = replace(job, version=job.version + 1)
        wakeup = new_wakeup(announced, due, head.claim_hash, micros(self._now()))
        await self._lanes.announce(wakeup, list(ready_rows(job, dict(head.ready or {}))))
        self._seen_jobs.forget(job_id)
        if isinstance(await self._rows.touch(found, wakeup.row), Refused):
            return False
        log.warning("job %s had lost rows of its lane: they are written again", job_id)
        return True

    async def all(self) -> int:
        """Repair the live jobs that two comparisons in turn have found without a row. How many."""
        if self._now() - self._compared_at < PAUSE:
            return 0
        self._compared_at = self._now()
        missing = await self._missing()
        lost, self._suspects = missing & self._suspects, missing
        return sum([await self._repaired(job_id) for job_id in lost])

    async def _repaired(self, job_id: str) -> bool:
        try:
            return await self.job(job_id)
        except (LedgerRowUnreadableError, LedgerTooNewError):
            return False

    async def _missing(self) -> frozenset[str]:
        """Live jobs that no row of a lane names. One that has just ended or begun may be among them."""
        woken: set[str] = set()
        for lane in SHARDS:
            async for wakeup in self._lanes.wakeups(lane):
                woken.add(wakeup.job_id)
                if len(woken) > MOST_COMPARED:
                    return frozenset()
        missing: set[str] = set()
        for tenant_id in await self._tenants.all():
            async for job_id in self._tenants.live_jobs(tenant_id):
                if job_id not in woken and len(missing) < MOST_COMPARED:
                    missing.add(job_id)
        return frozenset(missing)


def _needed(stored: Stored) -> list[str]:
    job, head = stored.job, stored.head
    wakeups = [head.wakeup] if job.due_at is not None else []
    return [*wakeups, *ready_rows(job, dict(head.ready or {}))]
