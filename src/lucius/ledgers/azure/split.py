"""Backend `table`: a table for each kind of row. The job's row is the commit point and has all that changes.

Steps, outbox entries and events repeat it. They are written a little later, never backwards; events travel in
the job's row until then. Whoever meets a lag closes it.
"""

from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from itertools import islice
from typing import Final

from lucius.core.effects import Event
from lucius.core.job import Job, Step
from lucius.core.record import record
from lucius.ledgers.azure import names
from lucius.ledgers.azure.columns import event_columns
from lucius.ledgers.azure.heads import GLANCED, Glance, Head, Stored, glance_of, job_row, stored_of
from lucius.ledgers.azure.projections import Projections
from lucius.ledgers.azure.store import (
    MOST_CHANGES,
    PARTITION,
    ROW,
    Act,
    Change,
    Refused,
    Row,
    Store,
    chunked,
    joined,
    row_of,
)
from lucius.ledgers.stored.event_codec import decode_events, encode_events
from lucius.ledgers.stored.plan_codec import encode_plan

PLAN: Final = "PLAN"
MOST_PENDING: Final = 60
"""Events that wait in the row of their job."""
MOST_LAGGING: Final = 500
"""Jobs whose other rows are behind, and that this process remembers."""


@record
class TableNames:
    jobs: str
    steps: str
    outbox: str
    events: str


class SplitTables:
    def __init__(self, store: Store, tables: TableNames) -> None:
        self._store = store
        self._tables = tables
        self._projections = Projections(store, tables.steps, tables.outbox)
        self._lagging: OrderedDict[str, tuple[Job, Head]] = OrderedDict()
        self._written: dict[str, int] = {}
        """The last event of a lagging job that is in its own table."""
        self._met: dict[str, int] = {}
        """Versions that were found in order, or brought there."""

    # -- reading -----------------------------------------------------------------------------

    async def read(self, job_id: str, tenant_id: str | None = None) -> Stored | None:
        """Two requests: the plan says whose job it is, and the month is in the id."""
        plans = {row[ROW]: row async for row in self._plans(job_id)}
        whose = tenant_id or next((row["tenant_id"] for row in plans.values()), None)
        whose = whose or await self._tenant_by_steps(job_id)
        if whose is None:
            return None
        row = await self._store.get(self._tables.jobs, names.bucket(whose, job_id), _key(job_id))
        if row is None or row.get("tombstone"):
            return None
        return stored_of(job_id, row, plans.get(names.key(PLAN, str(row.get("plan_id")))))

    async def _tenant_by_steps(self, job_id: str) -> str | None:
        """Whose job it is, where its plan was lost."""
        scan = self._store.scan(
            self._tables.steps, names.key(job_id), columns=["tenant_id"], page=1
        )
        async for row in scan:
            return str(row["tenant_id"])
        return None

    def _plans(self, job_id: str) -> AsyncIterator[Row]:
        """More than one where several tried to create the job: its row names the one that counts."""
        first = names.prefix(PLAN)
        return self._store.scan(self._tables.steps, names.key(job_id), first, names.past(first))

    async def glance(self, job_id: str, tenant_id: str) -> Glance | None:
        bucket = names.bucket(tenant_id, job_id)
        row = await self._store.get(self._tables.jobs, bucket, _key(job_id), GLANCED)
        return glance_of(row) if row is not None else None

    async def events(self, job_id: str, after: int, limit: int) -> list[Event]:
        """Those in their own table, and those that still wait in the row of the job."""
        first = names.rising(after + 1)
        scan = self._store.scan(
            self._tables.events, names.key(job_id), first, page=min(limit, 1000)
        )
        found: list[Event] = []
        async for row in scan:
            found += decode_events(row["payload"].encode())
            if len(found) >= limit:
                return found[:limit]
        last = found[-1].seq if found else after
        waiting = [event for event in await self._waiting(job_id) if event.seq > last]
        return [*found, *waiting][:limit]

    async def _waiting(self, job_id: str) -> Sequence[Event]:
        lagging = self._lagging.get(job_id)
        if lagging is not None:
            return lagging[1].pending
        async for plan in self._plans(job_id):
            bucket = names.bucket(plan["tenant_id"], job_id)
            row = await self._store.get(self._tables.jobs, bucket, _key(job_id))
            return pending_of(row) if row is not None else ()
        return ()

    async def walk(self) -> AsyncIterator[tuple[str, Sequence[Row]]]:
        """Each job's rows, named as those of the single table."""
        seen: set[str] = set()
        async for job in self._store.scan(self._tables.jobs, None):
            seen.add(job[ROW])
            rows = [{**job, ROW: "JOB"}]
            plan = names.key(PLAN, str(job.get("plan_id")))
            async for row in self._store.scan(self._tables.steps, job[ROW]):
                if row[ROW] == plan:
                    rows.append({**row, ROW: "JOB|PLAN"})
                elif not row[ROW].startswith(PLAN):
                    rows.append({**row, ROW: f"STEP|{row[ROW]}"})
            events = {
                row[ROW]: row async for row in self._store.scan(self._tables.events, job[ROW])
            }
            for event in pending_of(job):
                columns = event_columns(event)
                events.setdefault(names.rising(event.seq), columns)
            rows += [{**row, ROW: f"EVENT|{seq}"} for seq, row in events.items()]
            yield names.unescaped(job[ROW]), rows
        async for row in self._store.scan(self._tables.steps, None, columns=["tenant_id"]):
            if row[PARTITION] not in seen:
                seen.add(row[PARTITION])
                yield names.unescaped(row[PARTITION]), [row]

    # -- writing -----------------------------------------------------------------------------

    def pending(self, job_id: str, events: Sequence[Event]) -> tuple[Event, ...]:
        """The events that must travel in the row of the job."""
        written = self._written.get(job_id, 0)
        return tuple(event for event in events if event.seq > written)

    async def insert(self, job: Job, head: Head, events: Sequence[Event]) -> str | Refused:
        """The plan first, under a name that only this writer uses; then the job, which names it."""
        partition = names.key(job.job_id)
        plan = names.key(PLAN, head.plan_id)
        columns = {"tenant_id": job.tenant_id, **chunked("doc", encode_plan(job.plan))}
        await self._commit(self._tables.steps, Change(Act.UPSERT, row_of(partition, plan, columns)))
        etag = await self._commit(self._tables.jobs, Change(Act.INSERT, _row(job, head)))
        if isinstance(etag, Refused):
            await self._unplan(job, head, plan)
            return etag
        self._projections.begin(job.job_id)
        self._lags(job, head)
        return etag

    async def _unplan(self, job: Job, head: Head, plan: str) -> None:
        """Someone else's job has this id, unless the request that was refused is a repetition of ours."""
        found = await self.glance(job.job_id, job.tenant_id)
        if found is None or found.save_id != head.save_id:
            gone = Change(Act.DELETE, row_of(names.key(job.job_id), plan, {}))
            await self._commit(self._tables.steps, gone)

    async def replace(
        self, stored_steps: Sequence[Step], etag: str, job: Job, head: Head, events: Sequence[Event]
    ) -> str | Refused:
        made = await self._commit(self._tables.jobs, Change(Act.REPLACE, _row(job, head), etag))
        if not isinstance(made, Refused):
            self._lags(job, head)
            if len(head.pending) > MOST_PENDING:
                await self.conclude(job, head)
        return made

    async def touch(self, glance: Glance, wakeup: str) -> str | Refused:
        partition = names.bucket(glance.tenant_id, glance.job_id)
        row = row_of(partition, _key(glance.job_id), {"wakeup": wakeup})
        return await self._commit(self._tables.jobs, Change(Act.MERGE, row, glance.etag))

    async def bury(self, job_id: str, tenant_id: str) -> bool:
        columns = {"tombstone": True, "tenant_id": tenant_id, "job_id": job_id}
        row = row_of(names.bucket(tenant_id, job_id), _key(job_id), columns)
        change = Change(Act.INSERT, row)
        return not isinstance(await self._commit(self._tables.jobs, change), Refused)

    async def clear(self, job_id: str) -> None:
        """What is left of a job that never came to be."""
        async for row in self._plans(job_id):
            await self._commit(self._tables.steps, Change(Act.DELETE, row))

    async def _commit(self, table: str, change: Change) -> str | Refused:
        made = await self._store.commit(table, [change])
        return made if isinstance(made, Refused) else made[0] or ""

    async def delete(self, job_id: str, tenant_id: str) -> None:
        """The commit point first, so that nobody reads the rest."""
        self._lagging.pop(job_id, None)
        self._written.pop(job_id, None)
        key, bucket = names.key(job_id), names.bucket(tenant_id, job_id)
        await self._commit(self._tables.jobs, Change(Act.DELETE, row_of(bucket, key, {})))
        await self._projections.delete(job_id, tenant_id)
        await self._empty(self._tables.events, key)
        await self._empty(self._tables.steps, key)

    async def _empty(self, table: str, partition: str) -> None:
        scan = self._store.scan(table, partition, columns=["created_at"])
        left = iter([row[ROW] async for row in scan])
        while batch := list(islice(left, MOST_CHANGES)):
            gone = [Change(Act.DELETE, row_of(partition, row, {})) for row in batch]
            if isinstance(await self._store.commit(table, gone), Refused):
                await self._empty(table, partition)  # someone else deletes it as well
                return

    # -- what repeats the job ----------------------------------------------------------------

    def _lags(self, job: Job, head: Head) -> None:
        self._lagging[job.job_id] = (job, head)
        self._lagging.move_to_end(job.job_id)
        if len(self._lagging) > MOST_LAGGING:  # its owner brings it up: when it moves, or comes up
            self._lagging.popitem(last=False)

    async def meet(self, glance: Glance) -> None:
        """Two requests, once a version; and those that are needed."""
        job_id = glance.job_id
        if job_id in self._lagging or self._met.get(job_id) == glance.version:
            return
        stored = await self.read(job_id, glance.tenant_id)
        if stored is not None:
            await self.conclude(stored.job, stored.head)
            self._met[job_id] = stored.job.version

    async def catch_up(self) -> None:
        """Bring what repeats the jobs up to date, of those that this process has written."""
        for job, head in list(self._lagging.values()):
            await self.conclude(job, head)

    async def conclude(self, job: Job, head: Head) -> None:
        partition = names.key(job.job_id)
        rows = [
            row_of(partition, names.rising(event.seq), event_columns(event))
            for event in head.pending
        ]
        for at in range(0, len(rows), MOST_CHANGES):
            changes = [Change(Act.UPSERT, row) for row in rows[at : at + MOST_CHANGES]]
            await self._store.commit(self._tables.events, changes)
        await self._projections.write(job)
        latest = self._lagging.get(job.job_id)
        if latest is not None and latest[0].version <= job.version:
            del self._lagging[job.job_id]
        self._written[job.job_id] = max(self._written.get(job.job_id, 0), job.seq)
        if job.terminal:
            self._met.pop(job.job_id, None)
            self._written.pop(job.job_id)
            self._projections.forget(job.job_id)


def pending_of(row: Row) -> Sequence[Event]:
    return decode_events(joined("pending", row)) if row.get("pending") else ()


def _key(job_id: str) -> str:
    return names.key(job_id)


def _row(job: Job, head: Head) -> Row:
    columns = {**job_row(job, head), "plan_id": head.plan_id}
    if head.pending:
        columns |= chunked("pending", encode_events(head.pending))
    return row_of(names.bucket(job.tenant_id, job.job_id), _key(job.job_id), columns)
