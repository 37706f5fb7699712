"""Backend `ledger`: all rows of a job in one partition of one table, each save one transaction."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from lucius.adapters.ledgers.azure import names
from lucius.adapters.ledgers.azure.heads import (
    GLANCED,
    Glance,
    StepsHead,
    Stored,
    entry_columns,
    event_columns,
    execution_columns,
    glance_of,
    job_row,
    step_columns,
    step_plan_columns,
    stored_of,
)
from lucius.adapters.ledgers.azure.store import (
    MOST_CHANGES,
    PARTITION,
    ROW,
    Act,
    Change,
    Refused,
    Row,
    Store,
    chunked,
    row_of,
)
from lucius.adapters.ledgers.azure.verify import events_agree, steps_agree
from lucius.adapters.ledgers.stored.job_codec import decode_events
from lucius.adapters.ledgers.stored.plan_codec import encode_plan
from lucius.core.effects import Event
from lucius.core.job import Entry, EntryState, Job, Step
from lucius.ports.ledger import Drift

JOB: Final = "JOB"
PLAN: Final = names.key(JOB, "PLAN")
EVENT: Final = "EVENT"


class SingleTable:
    """The layout of a job's rows: `JOB`, `JOB|PLAN`, `STEP|..`, `EXEC|..`, `OUTBOX|..`, `EVENT|seq`."""

    apart: Final = False

    def __init__(self, store: Store, table: str) -> None:
        self._store = store
        self._table = table
        self.tables: Final = (table,)

    # -- reading -----------------------------------------------------------------------------

    async def read(self, job_id: str, tenant_id: str | None = None) -> Stored | None:
        """One request: the row of the job and that of its plan lie side by side."""
        found = self._store.scan(self._table, names.key(job_id), JOB, names.past(JOB))
        rows = {row[ROW]: row async for row in found}
        if JOB not in rows or rows[JOB].get("tombstone"):
            return None
        return stored_of(job_id, rows[JOB], rows.get(PLAN))

    async def glance(self, job_id: str, tenant_id: str) -> Glance | None:
        row = await self._store.get(self._table, names.key(job_id), JOB, GLANCED)
        return glance_of(row) if row is not None else None

    async def events(self, job_id: str, after: int, limit: int) -> list[Event]:
        first = names.key(EVENT, names.rising(after + 1))
        scan = self._store.scan(
            self._table, names.key(job_id), first, names.past(EVENT), page=min(limit, 1000)
        )
        events: list[Event] = []
        async for row in scan:
            events += decode_events(row["payload"].encode())
            if len(events) >= limit:
                break
        return events[:limit]

    async def walk(self) -> AsyncIterator[tuple[str, Sequence[Row]]]:
        """Every job's rows. Tombstones are left out."""
        rows: list[Row] = []
        async for row in self._store.scan(self._table, None):
            if rows and rows[0][PARTITION] != row[PARTITION]:
                yield names.unescaped(rows[0][PARTITION]), rows
                rows = []
            rows.append(row)
        if rows:
            yield names.unescaped(rows[0][PARTITION]), rows

    def drifts(self, stored: Stored, rows: Mapping[str, Row], *, woken: bool) -> Iterator[Drift]:
        yield from steps_agree(stored.job, rows)
        yield from events_agree(stored.job, rows)

    # -- writing -----------------------------------------------------------------------------

    async def insert(self, job: Job, head: StepsHead, events: Sequence[Event]) -> str | Refused:
        partition = names.key(job.job_id)
        plan = row_of(partition, PLAN, {"tenant_id": job.tenant_id, **_plan_doc(job)})
        payloads = job.plan.payloads()
        rows = [row_of(partition, JOB, job_row(job, head)), plan]
        for index, planned in enumerate(job.plan.steps):
            columns = {**step_plan_columns(job.plan, index, payloads), **step_columns(job, index)}
            rows.append(row_of(partition, names.key("STEP", _no(index), planned.step_id), columns))
        changes = [Change(Act.INSERT, row) for row in rows]
        changes += _below_steps(partition, job, (None,) * len(job.steps))
        return await self._committed([*changes, *_events(partition, events)])

    async def replace(
        self,
        stored_steps: Sequence[Step],
        etag: str,
        job: Job,
        head: StepsHead,
        events: Sequence[Event],
    ) -> str | Refused:
        partition = names.key(job.job_id)
        changes = [Change(Act.REPLACE, row_of(partition, JOB, job_row(job, head)), etag)]
        for index, step in enumerate(job.steps):
            if step is not stored_steps[index] and step != stored_steps[index]:
                row = names.key("STEP", _no(index), job.plan.steps[index].step_id)
                columns = step_columns(job, index)
                changes.append(Change(Act.MERGE, row_of(partition, row, columns)))
        changes += _below_steps(partition, job, stored_steps)
        return await self._committed([*changes, *_events(partition, events)])

    async def touch(self, glance: Glance, wakeup: str) -> str | Refused:
        """Name another wake-up row, and nothing else. It fences: an older ETag lands no more."""
        row = row_of(names.key(glance.job_id), JOB, {"wakeup": wakeup})
        return await self._committed([Change(Act.MERGE, row, glance.etag)])

    async def finish(self, glance: Glance) -> bool:
        """A save is one transaction: it leaves nothing."""
        return True

    def is_copied(self, job_id: str) -> bool:
        return True

    async def copy_late(self, *, all_own: bool = False) -> list[Job]:
        return []

    async def bury(self, job_id: str, tenant_id: str) -> bool:
        """A tombstone where the job would be. False: the job is there."""
        columns = {"tombstone": True, "tenant_id": tenant_id, "job_id": job_id}
        row = row_of(names.key(job_id), JOB, columns)
        return not isinstance(await self._committed([Change(Act.INSERT, row)]), Refused)

    async def _committed(self, changes: Sequence[Change]) -> str | Refused:
        made = await self._store.commit(self._table, changes)
        return made if isinstance(made, Refused) else made[0] or ""

    async def delete(self, job_id: str, tenant_id: str) -> None:
        """All rows; the job's own in the first transaction, so that nobody reads the rest."""
        partition = names.key(job_id)
        scan = self._store.scan(self._table, partition, columns=["tenant_id"])
        keys = sorted([row[ROW] async for row in scan], key=lambda row: not row.startswith(JOB))
        left = iter(keys)
        while batch := list(islice(left, MOST_CHANGES)):
            gone = [Change(Act.DELETE, row_of(partition, each, {})) for each in batch]
            if isinstance(await self._store.commit(self._table, gone), Refused):
                await self.delete(job_id, tenant_id)  # someone else deletes it as well
                return


def _no(index: int) -> str:
    return f"{index:03}"


def _plan_doc(job: Job) -> dict[str, str]:
    return chunked("doc", encode_plan(job.plan))


def _events(partition: str, events: Sequence[Event]) -> Iterator[Change]:
    for event in events:
        row = names.key(EVENT, names.rising(event.seq))
        yield Change(Act.INSERT, row_of(partition, row, event_columns(event)))


def _below_steps(partition: str, job: Job, before: Sequence[Step | None]) -> Iterator[Change]:
    """Executions and outbox entries that are new or have changed."""
    for index, (step, old) in enumerate(zip(job.steps, before, strict=True)):
        if step is old:
            continue
        step_id = job.plan.steps[index].step_id
        known = old.executions if old is not None else ()
        for run in step.executions:
            if run not in known:
                row = names.key("EXEC", _no(index), step_id, f"{run.attempt_no:03}", run.exec_id)
                columns = execution_columns(job, index, run)
                yield Change(Act.UPSERT, row_of(partition, row, columns))
        for entry in changed_entries(step, old):
            attempt, lease_id = f"{entry.attempt_no:03}", entry.lease_id or ""
            row = names.key("OUTBOX", _no(index), step_id, attempt, lease_id)
            yield Change(Act.UPSERT, row_of(partition, row, entry_columns(job, index, entry)))


def changed_entries(step: Step, old: Step | None) -> Iterator[Entry]:
    """An outbox entry has a row once it is released. If it is withdrawn before it is sent, it ends there."""
    entry, before = step.entry, old.entry if old is not None else None
    if entry is not None and entry.lease_id and entry != before:
        yield entry
    withdrawn = before is not None and (entry is None or entry.lease_id != before.lease_id)
    if before is not None and withdrawn and before.state is EntryState.RELEASED:
        yield replace(before, state=EntryState.FAILED_FINAL)
