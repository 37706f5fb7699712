"""A job's rows in Steps, Outbox and Events: copies of what its row in Jobs says, for operators and readers.

They carry the version that they were copied from, and an older one never replaces a newer one. The row that
heads a job's steps is written last: it says which save has been copied whole.
"""

import asyncio
import logging
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Sequence,
)
from typing import Final, TypeVar

from lucius.adapters.ledgers.azure import names
from lucius.adapters.ledgers.azure.copies import (
    HEAD,
    Copy,
    Trace,
    behind,
    entry_range,
    entry_rows,
    guarded,
    head_columns,
    head_row,
    moving_steps,
    step_name,
    whole_steps,
)
from lucius.adapters.ledgers.azure.heads import event_columns
from lucius.adapters.ledgers.azure.store import (
    ETAG,
    MOST_CHANGES,
    PARTITION,
    ROW,
    Act,
    Change,
    Refused,
    Row,
    Store,
    row_of,
)
from lucius.adapters.ledgers.stored.job_codec import decode_events
from lucius.core.effects import Event
from lucius.core.errors import LedgerError, LedgerUnavailableError
from lucius.core.job import Job
from lucius.core.record import record

RACES: Final = 20
AT_ONCE: Final = 16
"""Jobs that are copied together."""

T = TypeVar("T")
log = logging.getLogger("lucius.ledger")


@record
class Tables:
    """Their names."""

    jobs: str
    steps: str
    outbox: str
    events: str


class Projections:
    def __init__(self, store: Store, tables: Tables) -> None:
        self._store = store
        self._tables = tables

    async def head(self, job_id: str) -> Row | None:
        return await self._store.get(self._tables.steps, names.key(job_id), HEAD)

    async def begin(
        self, job_id: str, tenant_id: str, bucket: str, draft: Job | None = None
    ) -> Row:
        """Say whose job this is, before there is one, and what its steps are. What was said first holds."""
        columns = {**head_columns(job_id, tenant_id, bucket), "drafted": draft is not None}
        row = row_of(names.key(job_id), HEAD, columns)
        changes = [Change(Act.INSERT, row)]
        changes += whole_steps(draft) if draft is not None else ()
        for _ in range(RACES):
            made = await self._store.commit(self._tables.steps, changes)
            if not isinstance(made, Refused):
                return {**row, ETAG: made[0]}
            found = await self.head(job_id)
            if found is not None:
                return found
        raise LedgerUnavailableError(f"job {job_id} is deleted by others as fast as it is made")

    # -- copying -----------------------------------------------------------------------------

    async def write(self, copies: Sequence[Copy]) -> list[Copy]:
        """Those that have been copied. The head of each is written last."""
        left = await _write_each(self._write_events, copies)
        buckets: dict[str, list[Copy]] = {}
        for copy in left:
            buckets.setdefault(copy.trace.bucket, []).append(copy)
        shared = await _write_each(self._write_entries, list(_portions(buckets.values())))
        return await _write_each(
            self._write_steps, [copy for portion in shared for copy in portion]
        )

    async def _write_events(self, copy: Copy) -> None:
        """An event never changes, so it may be written again."""
        partition = names.key(copy.job.job_id)
        rows = [
            row_of(partition, names.rising(event.seq), event_columns(event))
            for event in copy.pending.events
        ]
        for at in range(0, len(rows), MOST_CHANGES):
            changes = [Change(Act.UPSERT, row) for row in rows[at : at + MOST_CHANGES]]
            await self._store.commit(self._tables.events, changes)

    async def _write_entries(self, portion: Sequence[Copy]) -> None:
        """Of jobs of one partition, in one transaction.

        A later save of the same job may be copied at the same time: what it has written stays.
        """
        left = {row[ROW]: (row, copy.trace) for copy in portion for row in entry_rows(copy)}
        for _ in range(RACES * len(left)):
            left = {key: each for key, each in left.items() if _is_newer(*each)}
            if not left:
                return
            changes = [guarded(row, trace) for row, trace in left.values()]
            made = await self._store.commit(self._tables.outbox, changes)
            if not isinstance(made, Refused):
                for etag, (row, trace) in zip(made, left.values(), strict=True):
                    trace.entries[row[ROW]] = (etag, row["version"])
                return
            await self._met_entry(list(left)[made.index], left)
        if left:
            raise _outrun(portion[0].job)

    async def _met_entry(self, key: str, left: dict[str, tuple[Row, Trace]]) -> None:
        """Someone else has written it. What is deleted stays so."""
        _, trace = left[key]
        known = trace.entries.pop(key, None)
        found = await self._store.get(self._tables.outbox, trace.bucket, key, ["version"])
        if found is not None:
            trace.entries[key] = (found[ETAG], found["version"])
        elif known:
            del left[key]

    async def _write_steps(self, copy: Copy) -> None:
        """One transaction, guarded by the head."""
        job, trace = copy.job, copy.trace
        for _ in range(RACES):
            if trace.copied_version > job.version:
                return
            changes = [Change(Act.MERGE, head_row(copy), trace.head)]
            changes += moving_steps(job) if trace.drafted else whole_steps(job)
            made = await self._store.commit(self._tables.steps, changes)
            if not isinstance(made, Refused):
                trace.head, trace.copied, trace.drafted = made[0], copy.save_id, True
                trace.copied_version = job.version
                return
            found = await self.head(job.job_id)
            if found is not None:
                trace.see(found)
            if found is None or not behind(found, job.version, copy.save_id):
                return  # it was deleted, or someone else has copied this or a later save
            trace.drafted = False
        raise _outrun(job)

    # -- reading -----------------------------------------------------------------------------

    async def rows(self, job_id: str, bucket: str) -> list[Row]:
        """All copies of a job, under keys that name their table."""
        partition = names.key(job_id)
        steps = self._store.scan(self._tables.steps, partition)
        events = self._store.scan(self._tables.events, partition)
        entries = self._store.scan(self._tables.outbox, bucket, *entry_range(job_id))
        found = [{**row, ROW: step_name(row[ROW])} async for row in steps]
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


def _portions(buckets: Iterable[Sequence[Copy]]) -> Iterator[list[Copy]]:
    """As many jobs of a partition as fit into one transaction."""
    for copies in buckets:
        portion, size = list[Copy](), 0
        for copy in copies:
            size += len(list(entry_rows(copy)))
            if portion and size > MOST_CHANGES:
                yield portion
                portion, size = [], len(list(entry_rows(copy)))
            portion.append(copy)
        yield portion


async def _write_each(write: Callable[[T], Awaitable[None]], wanted: Sequence[T]) -> list[T]:
    """Those that could be written, some at a time. What fails is said, and stays for later."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(each: T) -> bool:
        try:
            async with turns:
                await write(each)
        except LedgerError as error:
            log.warning("saves of jobs are durable, their other rows are behind: %s", error)
            return False
        return True

    done = await asyncio.gather(*(one(each) for each in wanted))
    return [each for each, written in zip(wanted, done, strict=True) if written]


def _is_newer(row: Row, trace: Trace) -> bool:
    """Than the row that is known to be there."""
    _, version = trace.entries.get(row[ROW], (None, 0))
    return bool(row["version"] > version)


def _outrun(job: Job) -> LedgerUnavailableError:
    return LedgerUnavailableError(
        f"the rows of job {job.job_id} are written by others all the time"
    )


# Every job of the separate tables with all its rows, for `verify`.

JobRows = tuple[str, str, list[Row]]
"""A job, its partition in Jobs, and its rows there."""


async def walked(
    store: Store, jobs: str, copies: Projections
) -> AsyncIterator[tuple[str, Sequence[Row]]]:
    """Three requests a job. Then the copies of which there is no job."""
    known: set[str] = set()
    async for batch in _batches(store, jobs):
        known.update(job_id for job_id, _, _ in batch)
        asked = (copies.rows(job_id, bucket) for job_id, bucket, _ in batch)
        for (job_id, _, rows), others in zip(batch, await asyncio.gather(*asked), strict=True):
            yield job_id, [*rows, *others]
    async for head in copies.heads():
        job_id = names.unescaped(head[PARTITION])
        if job_id not in known and head["version"]:
            yield job_id, [{**head, ROW: "HEAD"}]


async def _batches(store: Store, jobs: str) -> AsyncIterator[list[JobRows]]:
    batch: list[JobRows] = []
    async for each in _each_job(store, jobs):
        batch.append(each)
        if len(batch) == AT_ONCE:
            yield batch
            batch = []
    yield batch


async def _each_job(store: Store, jobs: str) -> AsyncIterator[JobRows]:
    """A job is complete with its plan, or without it at the end of its partition."""
    bucket, heads = "", dict[str, Row]()
    async for row in store.scan(jobs, None):
        if row[PARTITION] != bucket:
            for job_id, head in heads.items():
                yield job_id, bucket, [head]
            bucket, heads = row[PARTITION], {}
        job_id, *plan = names.parts_of(row[ROW])
        if not plan:
            heads[job_id] = {**row, ROW: "JOB"}
            continue
        rows = [heads.pop(job_id)] if job_id in heads else []
        yield job_id, bucket, [*rows, {**row, ROW: "JOB|PLAN"}]
    for job_id, head in heads.items():
        yield job_id, bucket, [head]
