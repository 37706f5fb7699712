"""Backend `table`: a job in separate tables. Its row in Jobs is the commit point and holds it whole.

Steps, Outbox and Events are copied from that row, after it: several saves of a job together, and jobs of one
partition together. A row carries all that the copies still lack: whoever finds them behind can finish.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from lucius.adapters.ledgers.azure import names
from lucius.adapters.ledgers.azure.copies import (
    AT_ONCE,
    LAG,
    NOTHING,
    Copy,
    Late,
    Pending,
    Trace,
    behind,
    pending_events,
    pending_of,
)
from lucius.adapters.ledgers.azure.heads import (
    GLANCED,
    Glance,
    StepsHead,
    Stored,
    glance_of,
    job_row,
    stored_of,
)
from lucius.adapters.ledgers.azure.projections import Projections, Tables, walked
from lucius.adapters.ledgers.azure.store import (
    EXISTS,
    MISSING,
    MOVED,
    ROW,
    Act,
    Change,
    Refused,
    Row,
    Store,
    Together,
    chunked,
    row_of,
)
from lucius.adapters.ledgers.azure.verify import copies_agree
from lucius.adapters.ledgers.stored.plan_codec import encode_plan
from lucius.core.effects import Event
from lucius.core.errors import (
    LedgerError,
    LedgerRowUnreadableError,
    LedgerTooNewError,
    LedgerUnavailableError,
)
from lucius.core.job import Job, Step
from lucius.ports.ledger import Drift

PLAN: Final = "PLAN"
MOST_TRACES: Final = 20_000
FORGOTTEN: Final = timedelta(minutes=5)
"""How long copies may be behind, before a reader finishes them: whoever wrote last is gone."""


class SplitTables:
    """`lag`: how long copies wait, so that saves of a job in that time are copied together."""

    apart: Final = True

    def __init__(
        self,
        store: Store,
        tables: Tables,
        *,
        now: Callable[[], datetime],
        lag: timedelta = LAG,
    ) -> None:
        self._store = store
        self._together = Together(store, tables.jobs)
        self._late = Late(now, lag)
        self._jobs = tables.jobs
        self.tables: Final = (tables.jobs, tables.steps, tables.outbox, tables.events)
        self._copies = Projections(store, tables)
        self._now = now
        self._traces: OrderedDict[str, Trace] = OrderedDict()

    # -- where a job is ----------------------------------------------------------------------

    def _bucket(self, job_id: str, tenant_id: str) -> str:
        """Where a new job goes. The head of its steps says where an old one is."""
        return names.bucket(tenant_id, job_id)

    async def _trace(self, job_id: str) -> Trace | None:
        """What is known, or what the head of its steps says. None: there is no such job."""
        if job_id in self._traces:
            self._traces.move_to_end(job_id)
            return self._traces[job_id]
        head = await self._copies.head(job_id)
        return self._traced(job_id, head) if head is not None else None

    def _traced(self, job_id: str, head: Row) -> Trace:
        try:
            if not isinstance(bucket := head["tenant_bucket"], str):
                raise TypeError(f"tenant_bucket is {bucket!r}")
            trace = self._traces.setdefault(job_id, Trace(bucket))
            trace.see(head)
        except (LookupError, ValueError, TypeError) as error:
            self._traces.pop(job_id, None)
            why = f"the head of its steps is damaged: {error!r}"
            raise LedgerRowUnreadableError(job_id, why) from error
        if len(self._traces) > MOST_TRACES:
            self._traces.popitem(last=False)
        return trace

    # -- reading -----------------------------------------------------------------------------

    async def read(self, job_id: str, tenant_id: str | None = None) -> Stored | None:
        """Two requests, or one where this process knows the job."""
        copy, stored = await self._found(job_id) or (None, None)
        if copy is not None and not copy.trace.whole:
            if self._now() - copy.job.updated_at < FORGOTTEN:
                self._late.note(job_id, None)
            else:
                await self._finished(copy)
        return stored

    async def _found(self, job_id: str) -> tuple[Copy, Stored] | None:
        """The job, and what is to be copied of it."""
        trace = await self._trace(job_id)
        if trace is None:
            return None
        key = names.key(job_id)
        scan = self._store.scan(self._jobs, trace.bucket, key, names.past(key))
        rows = {row[ROW]: row async for row in scan}
        if key not in rows or rows[key].get("tombstone"):
            self._traces.pop(job_id, None)
            return None
        stored = stored_of(job_id, rows[key], rows.get(_plan_key(job_id)))
        save_id = stored.head.save_id
        pending = pending_of(job_id, rows[key]) if trace.copied != save_id else NOTHING
        copy = Copy(stored.job, save_id, pending, trace)
        trace.saw(copy, stored.etag)
        return copy, stored

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
        """Those that are not copied yet are in the job's row, which is read first."""
        trace = await self._trace(job_id)
        if trace is None:
            return []
        row = await self._store.get(self._jobs, trace.bucket, names.key(job_id))
        last = [each for each in pending_events(row or {}) if each.seq > after]
        found = {event.seq: event for event in last}
        found |= {event.seq: event for event in await self._copies.events(job_id, after, limit)}
        return [found[seq] for seq in sorted(found)][:limit]

    # -- writing -----------------------------------------------------------------------------

    async def insert(self, job: Job, head: StepsHead, events: Sequence[Event]) -> str | Refused:
        """Where the job will be, so that its id alone finds it, with its steps; then the job."""
        job_id, bucket = job.job_id, self._bucket(job.job_id, job.tenant_id)
        begun = await self._copies.begin(job_id, job.tenant_id, bucket, job)
        if begun["tenant_id"] != job.tenant_id:
            return Refused(0, EXISTS)
        trace = self._traced(job_id, begun)
        pending = NOTHING.after(job, (None,) * len(job.steps), events)
        columns = {"tenant_id": job.tenant_id, **chunked("doc", encode_plan(job.plan))}
        plan = row_of(trace.bucket, _plan_key(job_id), columns)
        changes = [Change(Act.INSERT, _row(trace.bucket, job, head, pending))]
        made = await self._together.commit([*changes, Change(Act.INSERT, plan)])
        if isinstance(made, Refused):
            return made
        return await self._saved(Copy(job, head.save_id, pending, trace), made[0] or "")

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
        if trace.etag != etag or trace.pending.heavy:
            if not await self._is_still(job.job_id, etag):
                return Refused(0, MOVED)
        pending = trace.pending.after(job, stored_steps, events)
        row = _row(trace.bucket, job, head, pending)
        made = await self._together.commit([Change(Act.REPLACE, row, etag)])
        if isinstance(made, Refused):
            return made
        return await self._saved(Copy(job, head.save_id, pending, trace), made[0] or "")

    async def _saved(self, copy: Copy, etag: str) -> str:
        """The save is durable. Nobody looks again at a job that had ended before: it is copied now."""
        at_once = copy.trace.ended or not self._late.lag
        copy.trace.saw(copy, etag)
        if at_once:
            await self._written([copy])
        elif copy.job.version > 1 or copy.job.terminal:
            self._late.note(copy.job.job_id, copy)
        return etag

    async def _is_still(self, job_id: str, etag: str) -> bool:
        """Whether the job is as it was. If its row carries too much, it is copied first."""
        try:
            found = await self._found(job_id)
        except LedgerTooNewError:
            return False
        if found is None or found[1].etag != etag:
            return False
        if found[0].pending.heavy and not await self._written([found[0]]):
            raise LedgerUnavailableError(
                f"saves of job {job_id} cannot be copied to Steps, Outbox and Events"
            )
        return True

    async def touch(self, glance: Glance, wakeup: str) -> str | Refused:
        trace = self._traces.get(glance.job_id)
        known = trace.bucket if trace is not None else None
        bucket = known or self._bucket(glance.job_id, glance.tenant_id)
        row = row_of(bucket, names.key(glance.job_id), {"wakeup": wakeup})
        made = await self._together.commit([Change(Act.MERGE, row, glance.etag)])
        if isinstance(made, Refused):
            return made
        if trace is not None and trace.etag == glance.etag:
            trace.etag = made[0] or ""
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

    def is_copied(self, job_id: str) -> bool:
        trace = self._traces.get(job_id)
        return trace is None or trace.whole

    async def copy_late(self, *, all_own: bool = False) -> list[Job]:
        """Copy what has waited long enough, or all that this process has saved. The jobs that are whole."""
        whole: list[Job] = []
        while waiting := self._late.taken(all_own=all_own):
            found = await asyncio.gather(*(self._copy_of(*each) for each in waiting))
            copies = [copy for copy in found if copy is not None]
            written = await self._written(copies)
            whole += [copy.job for copy in written]
            if not written or len(waiting) < AT_ONCE:
                break
        return whole

    async def _copy_of(self, job_id: str, copy: Copy | None) -> Copy | None:
        if copy is not None:
            return copy
        try:
            found = await self._found(job_id)
        except LedgerError:
            return None  # whoever loads the job is told what is wrong with it
        return found[0] if found is not None and not found[0].trace.whole else None

    async def finish(self, glance: Glance) -> bool:
        job_id, tenant_id = glance.job_id, glance.tenant_id
        trace = self._traces.get(job_id)
        if trace is not None and trace.copied == glance.save_id:
            return True
        head = await self._copies.head(job_id)
        bucket = self._bucket(job_id, tenant_id)
        head = head or await self._copies.begin(job_id, tenant_id, bucket)
        self._traced(job_id, head)
        if not behind(head, glance.version, glance.save_id):
            return True
        copy = await self._copy_of(job_id, None)
        return copy is not None and bool(await self._written([copy]))

    async def _finished(self, copy: Copy) -> None:
        """Of a job that nobody has copied for long, as far as is known here."""
        head = await self._copies.head(copy.job.job_id)
        if head is not None:
            copy.trace.see(head)
        if head is None or behind(head, copy.job.version, copy.save_id):
            await self._written([copy])

    async def _written(self, copies: Sequence[Copy]) -> list[Copy]:
        """The saves are durable, whatever happens here. What is not copied now stays for later."""
        written = await self._copies.write(copies)
        done = {id(copy) for copy in written}
        for copy in copies:
            if id(copy) in done:
                copy.trace.pending = copy.trace.pending.without(copy.pending)
                self._late.copied(copy)
            else:
                self._late.note(copy.job.job_id, None)
        return written

    # -- verify ------------------------------------------------------------------------------

    def walk(self) -> AsyncIterator[tuple[str, Sequence[Row]]]:
        return walked(self._store, self._jobs, self._copies)

    def drifts(self, stored: Stored, rows: Mapping[str, Row], *, woken: bool) -> Iterator[Drift]:
        return copies_agree(stored, rows, self._now(), woken=woken)


def _plan_key(job_id: str) -> str:
    return names.key(job_id, PLAN)


def _row(bucket: str, job: Job, head: StepsHead, pending: Pending) -> Row:
    more = {"tenant_bucket": bucket, **pending.columns()}
    return row_of(bucket, names.key(job.job_id), {**job_row(job, head), **more})
