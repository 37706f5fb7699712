"""The rows of steps and of outbox entries beside the row of their job: each says which version it is of.

A row is replaced under its own ETag, and only by a later version: a late writer changes nothing.
"""

from collections.abc import Iterator
from typing import Final

from lucius.core.errors import LedgerUnavailableError
from lucius.core.job import Entry, Job, Step
from lucius.core.states import AbortReason, EntryState
from lucius.ledgers.azure import names
from lucius.ledgers.azure.columns import (
    entry_columns,
    outbox_id,
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

RACES: Final = 10
STAMP: Final = "version"

Stamps = dict[str, tuple[int, str | None]]
"""Version and ETag of the rows of one partition, by key."""


class Projections:
    def __init__(self, store: Store, steps: str, outbox: str) -> None:
        self._store = store
        self._steps = steps
        self._outbox = outbox
        self._known: dict[tuple[str, str], Stamps] = {}
        """By table and job."""

    def begin(self, job_id: str) -> None:
        """A job that has no such rows yet."""
        for table in (self._steps, self._outbox):
            self._known[table, job_id] = {}

    def forget(self, job_id: str) -> None:
        for table in (self._steps, self._outbox):
            self._known.pop((table, job_id), None)

    async def write(self, job: Job) -> None:
        key, bucket = names.key(job.job_id), names.bucket(job.tenant_id, job.job_id)
        await self._brought_up(self._steps, job, key, _step_rows(job, key))
        await self._brought_up(self._outbox, job, bucket, _entry_rows(job, bucket))

    async def delete(self, job_id: str, tenant_id: str) -> None:
        """The outbox entries of a job. Its steps go with their partition."""
        self.forget(job_id)
        bucket = names.bucket(tenant_id, job_id)
        for row in await self._stamps(self._outbox, bucket, job_id):
            gone = Change(Act.DELETE, row_of(bucket, row, {}))
            await self._store.commit(self._outbox, [gone])

    async def _brought_up(self, table: str, job: Job, partition: str, rows: Iterator[Row]) -> None:
        wanted = list(rows)
        for _ in range(RACES):
            known = self._known.get((table, job.job_id))
            if known is None:
                known = await self._stamps(table, partition, job.job_id)
            if await self._written(table, job, wanted, known):
                self._known[table, job.job_id] = known
                return
            self._known.pop((table, job.job_id), None)
        raise LedgerUnavailableError(f"rows of job {job.job_id} are written by others all the time")

    async def _stamps(self, table: str, partition: str, job_id: str) -> Stamps:
        first, end = "", names.key("PLAN")
        if table == self._outbox:
            first, end = f"{names.escaped(job_id)}:", f"{names.escaped(job_id)};"
        scan = self._store.scan(table, partition, first, end, columns=[STAMP])
        return {row[ROW]: (int(row.get(STAMP) or 0), row[ETAG]) async for row in scan}

    async def _written(self, table: str, job: Job, wanted: list[Row], known: Stamps) -> bool:
        changes = []
        for row in wanted:
            version, etag = known.get(row[ROW], (-1, None))
            if version < row[STAMP]:
                act = Act.INSERT if version < 0 else Act.REPLACE
                changes.append(Change(act, row, etag))
        for at in range(0, len(changes), MOST_CHANGES):
            batch = changes[at : at + MOST_CHANGES]
            made = await self._store.commit(table, batch)
            if isinstance(made, Refused):
                return False
            for change, etag in zip(batch, made, strict=True):
                known[change.row[ROW]] = (change.row[STAMP], etag)
        return True


def _step_rows(job: Job, partition: str) -> Iterator[Row]:
    payloads = job.plan.payloads()
    for index, planned in enumerate(job.plan.steps):
        columns = {**step_plan_columns(job.plan, index, payloads), **step_columns(job, index)}
        yield row_of(partition, names.key(f"{index:03}", planned.step_id), columns)


def _entry_rows(job: Job, partition: str) -> Iterator[Row]:
    for index, step in enumerate(job.steps):
        for entry in _released(step):
            key = names.escaped(outbox_id(job, index, entry))
            yield row_of(partition, key, entry_columns(job, index, entry))


def _released(step: Step) -> Iterator[Entry]:
    """The current entry, and those of earlier attempts as their executions tell of them."""
    current = step.entry
    for run in step.executions:
        if current is None or run.exec_id != current.lease_id:
            refused = run.reason is AbortReason.PUBLISH_REFUSED
            state = EntryState.FAILED_FINAL if refused else EntryState.SENT
            yield Entry(state, run.attempt_no, run.leased_at, run.exec_id, sent_at=run.started_at)
    if current is not None and current.lease_id:
        yield current
