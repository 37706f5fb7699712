"""A tenant's partition: its claims, its lists of live and ended jobs and its counters, changed together.

What several callers want at the same time goes in one transaction. So submitting a job and ending it are one
request each, or less.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

import orjson

from lucius.adapters.ledgers.azure import names
from lucius.adapters.ledgers.azure.heads import StepsHead, place_of
from lucius.adapters.ledgers.azure.store import (
    ETAG,
    MOST_CHANGES,
    ROW,
    Act,
    Change,
    Refused,
    Row,
    Store,
    row_of,
)
from lucius.adapters.ledgers.rules import InflightCounts, InflightGroup, PageEnd, group_of
from lucius.adapters.ledgers.stored.json_form import maybe_micros, micros
from lucius.core.errors import LedgerUnavailableError
from lucius.core.job import Job
from lucius.core.record import record
from lucius.ports.ledger import Claim, Inflight, LimitReached, Limits

# How many jobs of a tenant are live: what was admitted, less what has ended.
#
# Both only grow, so that a reader with an old number errs on the safe side. What was admitted is one row,
# the guard of the tenant's limit; what has ended is a row for each lane, so that owners do not meet on it.

COUNT: Final = "COUNT"
ADMITTED: Final = names.key(COUNT, "IN")

Cells = Counter[tuple[int, str]]
"""By lane and mode."""


def ended_row(lane: int) -> str:
    return names.key(COUNT, "OUT", f"{lane:02}")


class TenantTally:
    """One counter as it was last seen, with the ETag that guards it."""

    def __init__(self, key: str, row: Row | None = None) -> None:
        self.key = key
        self.etag: str | None = row[ETAG] if row is not None else None
        self.cells: Cells = cells_of(row)

    def change(self, partition: str, more: Cells) -> Change:
        cells = self.cells + more
        columns = {"total": cells.total(), "cells": _written(cells)}
        row = row_of(partition, self.key, columns)
        return Change(Act.INSERT if self.etag is None else Act.MERGE, row, self.etag)

    def changed(self, more: Cells, etag: str | None) -> None:
        self.cells, self.etag = self.cells + more, etag


def _written(cells: Cells) -> str:
    return orjson.dumps({f"{lane}/{mode}": n for (lane, mode), n in cells.items()}).decode()


def cells_of(row: Row | None) -> Cells:
    cells: Cells = Counter()
    for name, n in orjson.loads(row["cells"]).items() if row is not None else ():
        lane, _, mode = name.partition("/")
        cells[int(lane), mode] = n
    return cells


def live_cells(rows: list[Row]) -> Cells:
    """Of all counters of a tenant."""
    live: Cells = Counter()
    for row in rows:
        live.update(cells_of(row)) if row[ROW] == ADMITTED else live.subtract(cells_of(row))
    return live


def one(cell: InflightGroup) -> Cells:
    return Counter({(cell.lane, cell.mode): 1})


LIVE: Final = "LIVE"
ENDED: Final = "ENDED"
HEIR: Final = "HEIR"
TENANTS: Final = "|tenants"
"""The partition that names every tenant. No tenant's own begins like this: its name is escaped."""
RACES: Final = 50


@record
class Wish:
    """Changes that hold together, and what they count for."""

    changes: Sequence[Change]
    counter: str | None = None
    cell: InflightGroup | None = None
    limit: int | None = None

    @property
    def keys(self) -> set[str]:
        return {change.row[ROW] for change in self.changes}


@dataclass(eq=False)
class _Waiting:
    wish: Wish
    answer: "asyncio.Future[Refused | LimitReached | None]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class Partition:
    """One tenant's. Whoever comes while a transaction is under way shares the next one."""

    def __init__(self, store: Store, table: str, tenant_id: str) -> None:
        self._store = store
        self._table = table
        self.key: Final = names.key(tenant_id)
        self._tallies: dict[str, TenantTally] = {}
        self._ended: Cells = Counter()
        """What has ended in all, as it was last read: never more than the truth."""
        self._queue: list[_Waiting] = []
        self._turn = asyncio.Lock()

    async def apply(self, wish: Wish) -> Refused | LimitReached | None:
        """None: done. A refusal names the wish's own change."""
        waiting = _Waiting(wish)
        self._queue.append(waiting)
        async with self._turn:
            if not waiting.answer.done():
                await self._flush()
        return await waiting.answer

    async def _flush(self) -> None:
        batch = self._next_batch()
        try:
            for _ in range(RACES):
                batch = await self._admitted(batch)
                if not batch or await self._committed(batch):
                    return
                batch = [each for each in batch if not each.answer.done()]
            raise LedgerUnavailableError("a tenant's rows are changed by others faster than by us")
        except BaseException as error:
            self._tallies.clear()
            for each in batch:
                if not each.answer.done():
                    each.answer.set_exception(LedgerUnavailableError(f"nobody knows: {error!r}"))
                    each.answer.exception()
            raise

    def _next_batch(self) -> list[_Waiting]:
        """In the order in which they came, as many as fit; no row twice, though two may end one job."""
        size, keys, batch = 0, set[str](), list[_Waiting]()
        while self._queue:
            wish = self._queue[0].wish
            size += len(wish.changes) + 1
            if batch and (size > MOST_CHANGES or keys & wish.keys):
                break
            keys |= wish.keys
            batch.append(self._queue.pop(0))
        return batch

    async def _admitted(self, batch: list[_Waiting]) -> list[_Waiting]:
        """Those that no limit stops; the others are answered."""
        passed, more = list[_Waiting](), 0
        for each in batch:
            wish = each.wish
            if wish.counter == ADMITTED and wish.limit is not None:
                if await self._is_full(wish.limit - more):
                    each.answer.set_result(LimitReached("tenant"))
                    continue
            more += wish.counter == ADMITTED
            passed.append(each)
        return passed

    async def _is_full(self, limit: int) -> bool:
        admitted = (await self._tally(ADMITTED)).cells.total()
        if admitted - self._ended.total() < limit:
            return False
        self._ended = Counter()
        async for row in self._store.scan(self._table, self.key, *_range(COUNT, "OUT")):
            self._ended.update(cells_of(row))
        return admitted - self._ended.total() >= limit

    async def _tally(self, key: str) -> TenantTally:
        if key not in self._tallies:
            self._tallies[key] = TenantTally(key, await self._store.get(self._table, self.key, key))
        return self._tallies[key]

    async def _committed(self, batch: Sequence[_Waiting]) -> bool:
        """False: something in it was refused and is answered, or a counter was old. Try again."""
        counted: dict[str, Cells] = {}
        for each in batch:
            if each.wish.counter is not None and each.wish.cell is not None:
                counted.setdefault(each.wish.counter, Counter()).update(one(each.wish.cell))
        tallies = [await self._tally(key) for key in counted]
        changes = [tally.change(self.key, counted[tally.key]) for tally in tallies]
        owners: list[tuple[_Waiting | None, int]] = [(None, 0)] * len(tallies)
        for each in batch:
            changes += each.wish.changes
            owners += [(each, index) for index in range(len(each.wish.changes))]
        made = await self._store.commit(self._table, changes)
        if isinstance(made, Refused):
            owner, index = owners[made.index]
            if owner is None:
                self._tallies.clear()
            else:
                owner.answer.set_result(Refused(index, made.status))
            return False
        for tally, etag in zip(tallies, made, strict=False):
            tally.changed(counted[tally.key], etag)
        for each in batch:
            each.answer.set_result(None)
        return True


class Tenants:
    def __init__(self, store: Store, table: str) -> None:
        self._store = store
        self._table = table
        self._partitions: dict[str, Partition] = {}
        self._known: set[str] = set()

    def _of(self, tenant_id: str) -> Partition:
        if tenant_id not in self._partitions:
            self._partitions[tenant_id] = Partition(self._store, self._table, tenant_id)
        return self._partitions[tenant_id]

    # -- a job's way through -----------------------------------------------------------------

    async def introduce(self, tenant_id: str) -> None:
        """Before a tenant's first row, so that whoever looks at all tenants finds it."""
        if tenant_id not in self._known:
            row = row_of(TENANTS, names.key(tenant_id), {"tenant_id": tenant_id})
            await self._store.commit(self._table, [Change(Act.UPSERT, row)])
            self._known.add(tenant_id)

    async def admit(
        self, job: Job, head: StepsHead, limit: int | None, replaces: str | None = None
    ) -> Refused | LimitReached | None:
        """Claim, list and count. `replaces`: the ETag of the claim that is taken over."""
        await self.introduce(job.tenant_id)
        of = self._of(job.tenant_id)
        act = Act.INSERT if replaces is None else Act.REPLACE
        changes = [
            Change(act, row_of(of.key, names.key(head.claim_hash), _claim(job, head)), replaces),
            Change(Act.INSERT, row_of(of.key, _listed(LIVE, job, head), _live(job, head))),
        ]
        if job.plan.redrive_of is not None:
            heir = names.key(HEIR, job.plan.redrive_of, job.job_id)
            changes.append(Change(Act.UPSERT, row_of(of.key, heir, {"job_id": job.job_id})))
        return await of.apply(Wish(changes, ADMITTED, group_of(job), limit))

    async def end(self, job: Job, head: StepsHead) -> None:
        """From the live list to that of the ended, and out of the count: once, however often it is asked."""
        of = self._of(job.tenant_id)
        ended = row_of(of.key, _listed(ENDED, job, head), _ended(job, head))
        changes = [
            Change(Act.DELETE, row_of(of.key, _listed(LIVE, job, head), {})),
            Change(Act.UPSERT, ended),
        ]
        cell = group_of(job)
        await of.apply(Wish(changes, ended_row(cell.lane), cell))

    async def relist(self, job: Job, head: StepsHead) -> None:
        """An ended job that has left the dead-letter view."""
        of = self._of(job.tenant_id)
        row = row_of(of.key, _listed(ENDED, job, head), _ended(job, head))
        await of.apply(Wish([Change(Act.UPSERT, row)]))

    async def withdraw(self, tenant_id: str, claim_hash: str, job_id: str) -> None:
        """Take back an admission whose job never came to be, with its claim and its count."""
        for _ in range(RACES):
            if await self._withdrawn(tenant_id, claim_hash, job_id):
                return
        raise LedgerUnavailableError(f"the claim of job {job_id} is changed by others all the time")

    async def _withdrawn(self, tenant_id: str, claim_hash: str, job_id: str) -> bool:
        of = self._of(tenant_id)
        live = await self._live_row(tenant_id, claim_hash, job_id)
        changes = [] if live is None else [Change(Act.DELETE, row_of(of.key, live[ROW], {}))]
        claim = await self._store.get(self._table, of.key, names.key(claim_hash))
        if claim is not None and claim.get("job_id") == job_id:
            changes.append(Change(Act.DELETE, row_of(of.key, claim[ROW], {}), claim[ETAG]))
        if live is not None and live.get("redrive_of"):
            heir = names.key(HEIR, live["redrive_of"], job_id)
            changes.append(Change(Act.DELETE, row_of(of.key, heir, {})))
        if not changes:
            return True
        cell = InflightGroup(tenant_id, live["lane"], live["mode"]) if live is not None else None
        counter = ended_row(cell.lane) if cell is not None else None
        return await of.apply(Wish(changes, counter, cell)) is None

    async def _live_row(self, tenant_id: str, claim_hash: str, job_id: str) -> Row | None:
        """Of this claim: another job may have the same id."""
        equal = {"job_id": job_id, "claim_hash": claim_hash}
        scan = self._store.scan(self._table, names.key(tenant_id), *_range(LIVE), equal=equal)
        async for row in scan:
            return row
        return None

    # -- reading -----------------------------------------------------------------------------

    async def claim(self, claim: Claim) -> Row | None:
        partition = names.key(claim.tenant_id)
        return await self._store.get(self._table, partition, names.key(claim.claim_hash))

    async def all(self) -> list[str]:
        scan = self._store.scan(self._table, TENANTS)
        return [names.unescaped(row[ROW]) async for row in scan]

    async def live(self, tenant_id: str) -> Cells:
        scan = self._store.scan(self._table, names.key(tenant_id), *_range(COUNT))
        return live_cells([row async for row in scan])

    async def live_jobs(self, tenant_id: str) -> AsyncIterator[str]:
        scan = self._store.scan(
            self._table, names.key(tenant_id), *_range(LIVE), columns=["job_id"]
        )
        async for row in scan:
            if isinstance(job_id := row.get("job_id"), str):  # `verify` names a row without one
                yield job_id

    async def rows(self, tenant_id: str) -> AsyncIterator[Row]:
        async for row in self._store.scan(self._table, names.key(tenant_id)):
            yield row

    async def check(self) -> None:
        row = row_of("|check", "|check", {})
        await self._store.commit(self._table, [Change(Act.UPSERT, row)])


def _range(*parts: str) -> tuple[str, str]:
    first = names.prefix(*parts)
    return first, names.past(first)


def listed_key(kind: str, place: PageEnd, job_id: str) -> str:
    return names.key(kind, names.falling(place.created_at), names.falling(place.no), job_id)


def _listed(kind: str, job: Job, head: StepsHead) -> str:
    return listed_key(kind, place_of(job, head), job.job_id)


def _claim(job: Job, head: StepsHead) -> dict[str, object]:
    return {
        "idempotency_hash": head.claim_hash,
        "job_id": job.job_id,
        "created_at": job.plan.accepted_at,
        "body_hash": head.body_hash,
        "keyed": head.keyed,
        "lane": job.plan.routing.lane,
        "no": head.no,
    }


def _live(job: Job, head: StepsHead) -> dict[str, object]:
    cell = group_of(job)
    return {
        "job_id": job.job_id,
        "request_type": job.plan.request_type,
        "created": micros(job.plan.accepted_at),
        "no": head.no,
        "lane": cell.lane,
        "mode": cell.mode,
        "claim_hash": head.claim_hash,
        "redrive_of": job.plan.redrive_of,
    }


def _ended(job: Job, head: StepsHead) -> dict[str, object]:
    return {
        **_live(job, head),
        "state": job.state.value,
        "dlq": job.in_dlq,
        "owing": bool(job.owed),
        "completed": maybe_micros(job.completed_at),
    }


# How many jobs are live in all and on each lane, roughly: read now and then, and counted on in between.
#
# Only a tenant's own limit is exact here. The others may be exceeded by what other processes admit between
# two readings.

log = logging.getLogger("lucius.ledger")
FRESH: Final = timedelta(seconds=1)


class Levels:
    def __init__(self, tenants: Tenants, now: Callable[[], datetime]) -> None:
        self._tenants = tenants
        self._now = now
        self._counts = InflightCounts()
        self._read_at: datetime | None = None

    async def read(self) -> Inflight:
        """One request for each tenant."""
        counts = InflightCounts()
        for tenant_id in await self._tenants.all():
            for (lane, mode), n in (await self._live(tenant_id)).items():
                counts.add(InflightGroup(tenant_id, lane, mode), n)
        self._counts, self._read_at = counts, self._now()
        return counts.view()

    async def _live(self, tenant_id: str) -> Cells:
        """Counters that are damaged count nothing here: they must not stop the other tenants."""
        try:
            return await self._tenants.live(tenant_id)
        except (LookupError, ValueError, TypeError, AttributeError) as error:
            log.error("the counters of the tenant %r cannot be read: %r", tenant_id, error)
            return Counter()

    def add(self, cell: InflightGroup, change: int) -> None:
        self._counts.add(cell, change)

    async def saturated(self, cell: InflightGroup, limits: Limits) -> LimitReached | None:
        if limits.total is None and limits.of_lane(cell.mode) is None:
            return None
        if self._read_at is None or self._now() - self._read_at >= FRESH:
            await self.read()
        return self._counts.saturated(cell, replace(limits, tenant=None))
