"""One order for many jobs: page by page, a bounded number at once, counted by outcome.

Each job gets the order on its own. A run that breaks off has lost nothing: repeat it, and it goes on
where it stopped, because jobs that were moved no longer match.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from lucius.core.effects import Outcome
from lucius.core.errors import RequestError
from lucius.core.inputs import Input
from lucius.core.job import Job
from lucius.ports.engine import Engine
from lucius.ports.ledger import JobQuery

PAGE_SIZE: Final = 500
JOBS_AT_ONCE: Final = 64
MAX_LISTED_REFUSALS: Final = 100
"""Refusals beyond these are counted, not listed."""

Condition = Callable[[Job], bool]
Among = Callable[[Sequence[Job]], Awaitable[Collection[str]]]
"""Of the jobs of a page, the ids of those that are meant."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """What one job answered to an order that it does not take."""

    code: str
    detail: str
    faults: Sequence[tuple[str, str]] = ()


Order = Callable[[str], Awaitable[Outcome | Refusal]]
"""Given to one job by its id; answers `APPLIED`, `ALREADY`, or a refusal."""


@dataclass(slots=True)
class Tally:
    """`more`: the limit was reached while jobs were left that match."""

    matched: int = 0
    applied: int = 0
    already: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    refusals: list[tuple[str, Refusal]] = field(default_factory=list)
    """The first of them, each with the id of its job."""
    more: bool = False

    def add(self, job_id: str, answer: Outcome | Refusal) -> None:
        if isinstance(answer, Refusal):
            self.refused[answer.code] += 1
            if len(self.refusals) < MAX_LISTED_REFUSALS:
                self.refusals.append((job_id, answer))
        elif answer is Outcome.APPLIED:
            self.applied += 1
        else:
            self.already += 1


async def order_matching(
    engine: Engine,
    query: JobQuery,
    accepts: Condition,
    order: Order,
    limit: int,
    among: Among | None = None,
) -> Tally:
    """Give the order to at most `limit` jobs that match the query and that `accepts` takes."""
    tally, slots = Tally(), asyncio.Semaphore(JOBS_AT_ONCE)

    async def order_one(job_id: str) -> None:
        async with slots:
            tally.add(job_id, await order(job_id))

    async for found in _matching_ids(engine, query, accepts, among):
        page = found[: limit - tally.matched]
        tally.matched += len(page)
        await asyncio.gather(*map(order_one, page))
        if len(page) < len(found):
            tally.more = True
            break
    return tally


async def count_matching(
    engine: Engine, query: JobQuery, accepts: Condition | None, among: Among | None = None
) -> int:
    """All jobs that match, without a limit. With `accepts` or `among`, each job is loaded and asked."""
    if accepts is None and among is None:
        return await engine.count(query)
    each = accepts or (lambda job: True)
    return sum([len(found) async for found in _matching_ids(engine, query, each, among)])


async def _matching_ids(
    engine: Engine, query: JobQuery, accepts: Condition, among: Among | None
) -> AsyncIterator[Sequence[str]]:
    """The ids of matching jobs in pages, newest first. Jobs that move meanwhile do not disturb the cursor."""
    cursor: str | None = None
    while True:
        page = await engine.jobs(replace(query, limit=PAGE_SIZE, cursor=cursor))
        jobs = [job for job in page.jobs if accepts(job)]
        kept = await among(jobs) if among is not None else None
        yield [job.job_id for job in jobs if kept is None or job.job_id in kept]
        cursor = page.next_cursor
        if cursor is None:
            return


def order_to_move(engine: Engine, received: Input) -> Order:
    """Cancel, pause, resume, retry, dismiss: one input for each job."""

    async def order(job_id: str) -> Outcome | Refusal:
        applied = await engine.apply(job_id, received)
        if applied is None:
            return Refusal("JOB_NOT_FOUND", "the job is gone")
        if applied.outcome is Outcome.REJECTED:
            return Refusal(applied.code or "CONFLICT", f"the job is {applied.job.state.value}")
        return applied.outcome

    return order


def order_to_redrive(
    engine: Engine,
    payload: Mapping[str, Any] | None = None,
    said: Mapping[str, str] | None = None,
) -> Order:
    """A new job for each, with the payload that it has, or with this one if it suits the job."""

    async def order(job_id: str) -> Outcome | Refusal:
        try:
            submitted = await engine.redrive(job_id, payload=payload, said=said)
        except RequestError as error:
            return Refusal(error.code, error.detail, error.faults)
        return Outcome.ALREADY if submitted.duplicate else Outcome.APPLIED

    return order
