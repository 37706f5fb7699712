"""Every job of the separate tables with all its rows, for `verify`."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final

from lucius.ledgers.azure import names
from lucius.ledgers.azure.projections import Projections
from lucius.ledgers.azure.store import PARTITION, ROW, Row, Store

AT_ONCE: Final = 16
"""Jobs whose rows are read together."""

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
    async for each in _each(store, jobs):
        batch.append(each)
        if len(batch) == AT_ONCE:
            yield batch
            batch = []
    yield batch


async def _each(store: Store, jobs: str) -> AsyncIterator[JobRows]:
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
