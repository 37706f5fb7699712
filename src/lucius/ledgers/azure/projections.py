"""A job's rows in Steps, Outbox and Events: copies of what its row in Jobs says, for operators and readers.

They carry the version that they were copied from, and an older one never replaces a newer one. The row that
heads a job's steps is written last: it says which save has been copied whole.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from lucius.core.effects import Event
from lucius.core.errors import LedgerUnavailableError
from lucius.core.job import Entry, Job
from lucius.core.record import record
from lucius.core.wire import message_id
from lucius.ledgers.azure import names
from lucius.ledgers.azure.columns import (
    entry_columns,
    event_columns,
    step_columns,
    step_plan_columns,
)
from lucius.ledgers.azure.store import (
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
from lucius.ledgers.stored.event_codec import decode_events

HEAD: Final = "JOB"
"""The row that heads a job's steps: whose it is, in which partition of Jobs, and what has been copied."""
RACES: Final = 20


@record
class Tables:
    """Their names."""

    jobs: str
    steps: str
    outbox: str
    events: str


@dataclass
class Trace:
    """What this process knows about a job's copies."""

    bucket: str
    """The job's partition in Jobs and Outbox."""
    head: str | None = None
    """ETag of the row that heads its steps."""
    whole: str = ""
    """ETag of the job's row that has been copied whole."""
    copied: str = ""
    """The save whose id the head had, when it was last seen."""
    entries: dict[str, str | None] = field(default_factory=dict)
    """ETags of its rows in Outbox."""
    busy: bool = False
    """A save of this process is being copied."""

    def see(self, head: Row) -> None:
        self.head, self.copied = head[ETAG], head.get("save_id", "")


@record
class Copy:
    """What one save changes in the copies."""

    job: Job
    save_id: str
    events: Sequence[Event]
    entries: Sequence[tuple[int, Entry]]
    steps: Sequence[int] | None = None
    """The steps that it moved. None: write all rows, with all columns."""


class Projections:
    def __init__(self, store: Store, tables: Tables) -> None:
        self._store = store
        self._tables = tables

    async def head(self, job_id: str) -> Row | None:
        return await self._store.get(self._tables.steps, names.key(job_id), HEAD)

    async def begin(self, job_id: str, tenant_id: str, bucket: str) -> Row:
        """Say whose job this is, before there is one. What was said first holds."""
        row = row_of(names.key(job_id), HEAD, _head(job_id, tenant_id, bucket))
        for _ in range(RACES):
            made = await self._store.commit(self._tables.steps, [Change(Act.INSERT, row)])
            if not isinstance(made, Refused):
                return {**row, ETAG: made[0]}
            found = await self.head(job_id)
            if found is not None:
                return found
        raise LedgerUnavailableError(f"job {job_id} is deleted by others as fast as it is made")

    # -- copying -----------------------------------------------------------------------------

    async def write(self, copy: Copy, trace: Trace) -> None:
        await self._write_events(copy)
        await self._write_entries(copy, trace)
        await self._write_steps(copy, trace)

    async def _write_events(self, copy: Copy) -> None:
        """An event never changes, so it may be written again."""
        partition = names.key(copy.job.job_id)
        rows = [
            row_of(partition, names.rising(event.seq), event_columns(event))
            for event in copy.events
        ]
        for at in range(0, len(rows), MOST_CHANGES):
            changes = [Change(Act.UPSERT, row) for row in rows[at : at + MOST_CHANGES]]
            await self._store.commit(self._tables.events, changes)

    async def _write_entries(self, copy: Copy, trace: Trace) -> None:
        left = {row[ROW]: row for row in _entry_rows(copy, trace.bucket)}
        for _ in range(RACES * len(left)):
            if not left:
                return
            made = await self._store.commit(
                self._tables.outbox,
                [_guarded(row, trace.entries.get(key)) for key, row in left.items()],
            )
            if not isinstance(made, Refused):
                trace.entries.update(zip(left, made, strict=True))
                return
            await self._met_entry(list(left)[made.index], left, copy, trace)
        if left:
            raise _outrun(copy.job)

    async def _met_entry(self, key: str, left: dict[str, Row], copy: Copy, trace: Trace) -> None:
        """Someone else has written it. What is as new as ours, or deleted, stays as it is."""
        known = trace.entries.pop(key, None)
        found = await self._store.get(self._tables.outbox, trace.bucket, key, ["version"])
        if found is not None:
            trace.entries[key] = found[ETAG]
        if (found is None and known) or (found and found["version"] >= copy.job.version):
            del left[key]

    async def _write_steps(self, copy: Copy, trace: Trace) -> None:
        """One transaction, guarded by the head."""
        job = copy.job
        for _ in range(RACES):
            changes = [Change(Act.MERGE, _head_row(copy, trace.bucket), trace.head)]
            changes += _step_changes(copy)
            made = await self._store.commit(self._tables.steps, changes)
            if not isinstance(made, Refused):
                trace.head = made[0]
                return
            found = await self.head(job.job_id)
            if found is not None:
                trace.see(found)
            if found is None or not behind(found, job.version, copy.save_id):
                return  # it was deleted, or someone else has copied this or a later save
            copy = replace(copy, steps=None)
        raise _outrun(job)

    # -- reading -----------------------------------------------------------------------------

    async def rows(self, job_id: str, bucket: str) -> list[Row]:
        """All copies of a job, under keys that name their table."""
        partition = names.key(job_id)
        steps = self._store.scan(self._tables.steps, partition)
        events = self._store.scan(self._tables.events, partition)
        entries = self._store.scan(self._tables.outbox, bucket, *entry_range(job_id))
        found = [{**row, ROW: _step_name(row[ROW])} async for row in steps]
        found += [{**row, ROW: f"EVENT|{row[ROW]}"} async for row in events]
        found += [{**row, ROW: f"OUTBOX|{row[ROW]}"} async for row in entries]
        return found

    async def events(self, job_id: str, after: int, limit: int) -> list[Event]:
        partition, first = names.key(job_id), names.rising(after + 1)
        scan = self._store.scan(self._tables.events, partition, first, page=min(limit, 1000))
        found: list[Event] = []
        async for row in scan:
            found += decode_events(row["payload"].encode())
            if len(found) >= limit:
                break
        return found

    def heads(self) -> AsyncIterator[Row]:
        """Of all jobs."""
        return self._store.scan(self._tables.steps, None, HEAD, HEAD + "!")

    async def delete(self, job_id: str, bucket: str) -> None:
        """The head last: as long as it is there, the rest can be found."""
        partition = names.key(job_id)
        await clear(self._store, self._tables.outbox, bucket, *entry_range(job_id))
        await clear(self._store, self._tables.events, partition)
        await clear(self._store, self._tables.steps, partition)


async def clear(
    store: Store, table: str, partition: str, first: str = "", end: str | None = None
) -> None:
    """Delete a range of rows in the order of their keys."""
    while True:
        scan = store.scan(table, partition, first, end, columns=["version"])
        keys = [row[ROW] async for row in scan]
        left = [keys[at : at + MOST_CHANGES] for at in range(0, len(keys), MOST_CHANGES)]
        for batch in left:
            gone = [Change(Act.DELETE, row_of(partition, key, {})) for key in batch]
            if isinstance(await store.commit(table, gone), Refused):
                break  # someone else deletes them as well
        else:
            return


def behind(head: Row, version: int, save_id: str) -> bool:
    """Whether that save is not copied yet."""
    return head["version"] <= version and head.get("save_id") != save_id


def entry_key(job: Job, index: int, entry: Entry) -> str:
    """The id of its directive on the bus."""
    step_id, lease_id = job.plan.steps[index].step_id, entry.lease_id or ""
    return names.key(message_id(job.job_id, step_id, entry.attempt_no, lease_id, "DIRECTIVE"))


def entry_range(job_id: str) -> tuple[str, str]:
    """The keys of all entries of a job. A semicolon sorts right after a colon."""
    return names.key(job_id) + ":", names.key(job_id) + ";"


def _step_key(job: Job, index: int) -> str:
    return names.key(f"{index:03}", job.plan.steps[index].step_id)


def _step_name(key: str) -> str:
    return "HEAD" if key == HEAD else f"STEP|{key}"


def _head(job_id: str, tenant_id: str, bucket: str) -> dict[str, Any]:
    return {"job_id": job_id, "tenant_id": tenant_id, "tenant_bucket": bucket, "version": 0}


def _head_row(copy: Copy, bucket: str) -> Row:
    job = copy.job
    said = {"version": job.version, "save_id": copy.save_id}
    columns = {**_head(job.job_id, job.tenant_id, bucket), **said}
    return row_of(names.key(job.job_id), HEAD, columns)


def _step_changes(copy: Copy) -> Iterator[Change]:
    job, partition = copy.job, names.key(copy.job.job_id)
    if copy.steps is not None:
        for index in copy.steps:
            row = row_of(partition, _step_key(job, index), step_columns(job, index))
            yield Change(Act.MERGE, row)
        return
    payloads = job.plan.payloads()
    for index in range(len(job.steps)):
        columns = {**step_plan_columns(job.plan, index, payloads), **step_columns(job, index)}
        yield Change(Act.UPSERT, row_of(partition, _step_key(job, index), columns))


def _entry_rows(copy: Copy, bucket: str) -> Iterator[Row]:
    job = copy.job
    for index, entry in copy.entries:
        yield row_of(bucket, entry_key(job, index, entry), entry_columns(job, index, entry))


def _guarded(row: Row, etag: str | None) -> Change:
    return Change(Act.INSERT if etag is None else Act.MERGE, row, etag)


def _outrun(job: Job) -> LedgerUnavailableError:
    return LedgerUnavailableError(
        f"the rows of job {job.job_id} are written by others all the time"
    )
