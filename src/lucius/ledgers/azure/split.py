"""Backend `table`: a job in separate tables. Its row in Jobs is the commit point and holds it whole.

Steps, Outbox and Events are copied from that row, after it. No save lands before the one before it has been
copied. So at most the last save is behind, and its row has all that whoever finds it needs to finish it.
"""

import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final
from zlib import crc32

from lucius.core.effects import Event
from lucius.core.errors import (
    LedgerError,
    LedgerRowUnreadableError,
    LedgerTooNewError,
    LedgerUnavailableError,
)
from lucius.core.job import Job, Step
from lucius.ledgers.azure import names
from lucius.ledgers.azure.agreement import copies_agree
from lucius.ledgers.azure.heads import (
    GLANCED,
    Glance,
    StepsHead,
    Stored,
    glance_of,
    job_row,
    stored_of,
)
from lucius.ledgers.azure.pending import Entries, changed, copy_of, pending_columns, pending_events
from lucius.ledgers.azure.projections import Copy, Projections, Tables, Trace, behind
from lucius.ledgers.azure.store import (
    EXISTS,
    MISSING,
    MOVED,
    ROW,
    Act,
    Change,
    Refused,
    Row,
    Store,
    chunked,
    row_of,
)
from lucius.ledgers.azure.walking import walked
from lucius.ledgers.stored.plan_codec import encode_plan
from lucius.ports.ledger import Drift

log = logging.getLogger("lucius.ledger")

PLAN: Final = "PLAN"
MOST_TRACES: Final = 20_000


class SplitTables:
    """`hot`: tenants whose jobs of a month are spread over sixteen partitions."""

    def __init__(
        self,
        store: Store,
        tables: Tables,
        *,
        now: Callable[[], datetime],
        hot: Collection[str] = (),
    ) -> None:
        self._store = store
        self._jobs = tables.jobs
        self._copies = Projections(store, tables)
        self._now = now
        self._hot = frozenset(hot)
        self._traces: OrderedDict[str, Trace] = OrderedDict()

    # -- where a job is ----------------------------------------------------------------------

    def _bucket(self, job_id: str, tenant_id: str) -> str:
        """Where a new job goes. The head of its steps says where an old one is."""
        month = names.bucket(tenant_id, job_id)
        if tenant_id not in self._hot:
            return month
        return f"{month}{names.JOINT}{crc32(job_id.encode()) % 16:x}"

    async def _trace(self, job_id: str) -> Trace | None:
        """What is known, or what the head of its steps says. None: there is no such job."""
        if job_id in self._traces:
            self._traces.move_to_end(job_id)
            return self._traces[job_id]
        head = await self._copies.head(job_id)
        return self._traced(job_id, head) if head is not None else None

    def _traced(self, job_id: str, head: Row) -> Trace:
        trace = self._traces.setdefault(job_id, Trace(head["tenant_bucket"]))
        trace.see(head)
        if len(self._traces) > MOST_TRACES:
            self._traces.popitem(last=False)
        return trace

    # -- reading -----------------------------------------------------------------------------

    async def read(self, job_id: str, tenant_id: str | None = None) -> Stored | None:
        """Two requests, or one where this process knows the job and what it finds has been copied."""
        found = await self._found(job_id)
        if found is None:
            return None
        stored, row, trace = found
        if not trace.busy:
            await self._caught_up(stored, row, trace)
        return stored

    async def _found(self, job_id: str) -> tuple[Stored, Row, Trace] | None:
        trace = await self._trace(job_id)
        if trace is None:
            return None
        key = names.key(job_id)
        scan = self._store.scan(self._jobs, trace.bucket, key, names.past(key))
        rows = {row[ROW]: row async for row in scan}
        if key not in rows or rows[key].get("tombstone"):
            self._traces.pop(job_id, None)
            return None
        return stored_of(job_id, rows[key], rows.get(_plan_key(job_id))), rows[key], trace

    async def glance(self, job_id: str, tenant_id: str) -> Glance | None:
        known = self._traces.get(job_id)
        bucket = known.bucket if known is not None else self._bucket(job_id, tenant_id)
        row = await self._store.get(self._jobs, bucket, names.key(job_id), GLANCED)
        if row is None and known is None:
            trace = await self._trace(job_id)
            if trace is not None and trace.bucket != bucket:
                return await self.glance(job_id, tenant_id)
        return glance_of(row) if row is not None else None

    async def events(self, job_id: str, after: int, limit: int) -> list[Event]:
        """Those of the last save are in the job's row as well, which is read first."""
        trace = await self._trace(job_id)
        if trace is None:
            return []
        row = await self._store.get(self._jobs, trace.bucket, names.key(job_id))
        last = [each for each in pending_events(row or {}) if each.seq > after]
        found = {event.seq: event for event in await self._copies.events(job_id, after, limit)}
        missing = {event.seq: event for event in last if event.seq not in found}
        if missing and len(found) < limit:
            await self._mended(job_id)
        found |= missing
        return [found[seq] for seq in sorted(found)][:limit]

    # -- writing -----------------------------------------------------------------------------

    async def insert(self, job: Job, head: StepsHead, events: Sequence[Event]) -> str | Refused:
        """Where the job will be, so that its id alone finds it; the job; its copies."""
        job_id, bucket = job.job_id, self._bucket(job.job_id, job.tenant_id)
        begun = await self._copies.begin(job_id, job.tenant_id, bucket)
        if begun["tenant_id"] != job.tenant_id:
            return Refused(0, EXISTS)
        trace = self._traced(job_id, begun)
        entries = changed(job, (None,) * len(job.steps))
        columns = {"tenant_id": job.tenant_id, **chunked("doc", encode_plan(job.plan))}
        plan = row_of(trace.bucket, _plan_key(job_id), columns)
        rows = [_row(trace.bucket, job, head, events, entries), plan]
        made = await self._store.commit(self._jobs, [Change(Act.INSERT, row) for row in rows])
        if isinstance(made, Refused):
            return made
        await self._copy(Copy(job, head.save_id, events, entries), trace, made[0] or "")
        return made[0] or ""

    async def replace(
        self,
        stored_steps: Sequence[Step],
        etag: str,
        job: Job,
        head: StepsHead,
        events: Sequence[Event],
    ) -> str | Refused:
        trace = await self._trace(job.job_id)
        if trace is None:
            return Refused(0, MISSING)
        if trace.whole != etag and not await self._is_whole(job.job_id, etag):
            return Refused(0, MOVED)
        entries = changed(job, stored_steps)
        row = _row(trace.bucket, job, head, events, entries)
        made = await self._store.commit(self._jobs, [Change(Act.REPLACE, row, etag)])
        if isinstance(made, Refused):
            return made
        moved = [at for at, step in enumerate(job.steps) if step != stored_steps[at]]
        copy = Copy(job, head.save_id, events, entries, moved)
        await self._copy(copy, trace, made[0] or "")
        return made[0] or ""

    async def touch(self, glance: Glance, wakeup: str) -> str | Refused:
        trace = self._traces.get(glance.job_id)
        known = trace.bucket if trace is not None else None
        bucket = known or self._bucket(glance.job_id, glance.tenant_id)
        row = row_of(bucket, names.key(glance.job_id), {"wakeup": wakeup})
        made = await self._store.commit(self._jobs, [Change(Act.MERGE, row, glance.etag)])
        if isinstance(made, Refused):
            return made
        if trace is not None and trace.whole == glance.etag:
            trace.whole = made[0] or ""
        return made[0] or ""

    async def bury(self, job_id: str, tenant_id: str) -> bool:
        """In the partition that a late writer would use: whoever begins first names it."""
        begun = await self._copies.begin(job_id, tenant_id, self._bucket(job_id, tenant_id))
        columns = {"tombstone": True, "tenant_id": tenant_id, "job_id": job_id}
        row = row_of(begun["tenant_bucket"], names.key(job_id), columns)
        made = await self._store.commit(self._jobs, [Change(Act.INSERT, row)])
        return not isinstance(made, Refused)

    async def delete(self, job_id: str, tenant_id: str) -> None:
        """The job itself first, so that nobody reads the rest."""
        trace = await self._trace(job_id)
        bucket = trace.bucket if trace is not None else self._bucket(job_id, tenant_id)
        for key in (names.key(job_id), _plan_key(job_id)):
            await self._store.commit(self._jobs, [Change(Act.DELETE, row_of(bucket, key, {}))])
        await self._copies.delete(job_id, bucket)
        self._traces.pop(job_id, None)

    # -- copying -----------------------------------------------------------------------------

    async def finish(self, glance: Glance) -> None:
        job_id, tenant_id = glance.job_id, glance.tenant_id
        trace = self._traces.get(job_id)
        if trace is not None and (trace.busy or trace.copied == glance.save_id):
            return
        head = await self._copies.head(job_id)
        bucket = self._bucket(job_id, tenant_id)
        head = head or await self._copies.begin(job_id, tenant_id, bucket)
        self._traced(job_id, head)
        if behind(head, glance.version, glance.save_id):
            await self._mended(job_id)

    async def _mended(self, job_id: str) -> None:
        try:
            await self.read(job_id)
        except (LedgerTooNewError, LedgerRowUnreadableError):
            return  # whoever loads the job is told what is wrong with it

    async def _is_whole(self, job_id: str, etag: str) -> bool:
        """Whether the job is still as it was. If so, its copies are finished now."""
        try:
            found = await self._found(job_id)
        except LedgerTooNewError:
            return False
        if found is None or found[0].etag != etag:
            return False
        await self._caught_up(*found)
        if found[2].whole != etag:
            raise LedgerUnavailableError(
                f"the last save of job {job_id} cannot be copied to Steps, Outbox and Events"
            )
        return True

    async def _caught_up(self, stored: Stored, row: Row, trace: Trace) -> None:
        job, save_id = stored.job, stored.head.save_id
        if trace.copied != save_id:
            head = await self._copies.head(job.job_id)
            head = head or await self._copies.begin(job.job_id, job.tenant_id, trace.bucket)
            trace.see(head)
            if behind(head, job.version, save_id):
                await self._copy(copy_of(stored, row), trace, stored.etag)
                return
        trace.whole = stored.etag

    async def _copy(self, copy: Copy, trace: Trace, etag: str) -> None:
        """The save is durable, whatever happens here. Whoever comes next finishes it."""
        trace.busy = True
        try:
            await self._copies.write(copy, trace)
            trace.whole, trace.copied = etag, copy.save_id
        except LedgerError as error:
            log.warning("job %s is saved, its other rows are behind: %s", copy.job.job_id, error)
        finally:
            trace.busy = False

    # -- verify ------------------------------------------------------------------------------

    def walk(self) -> AsyncIterator[tuple[str, Sequence[Row]]]:
        return walked(self._store, self._jobs, self._copies)

    def drifts(self, stored: Stored, rows: Mapping[str, Row]) -> Iterator[Drift]:
        return copies_agree(stored, rows, self._now())


def _plan_key(job_id: str) -> str:
    return names.key(job_id, PLAN)


def _row(bucket: str, job: Job, head: StepsHead, events: Sequence[Event], entries: Entries) -> Row:
    more = {"tenant_bucket": bucket, **pending_columns(job, events, entries)}
    return row_of(bucket, names.key(job.job_id), {**job_row(job, head), **more})
