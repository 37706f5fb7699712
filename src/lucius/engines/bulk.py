"""One order for many jobs: page by page, a bounded number at once, counted by outcome.

An order is given to every job on its own, so a run that breaks off has lost nothing, and repeating
it goes on where it stopped: jobs that were moved no longer match.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from lucius.core.effects import Outcome
from lucius.core.errors import RequestError
from lucius.core.inputs import Input
from lucius.core.job import Job
from lucius.ports.engine import Engine
from lucius.ports.ledger import JobQuery, Ledger

PAGE: Final = 500
AT_ONCE: Final = 64
MOST_REFUSALS: Final = 100
"""Refusals beyond these are counted, not listed."""

Wanted = Callable[[Job], bool]


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

    def note(self, job_id: str, answer: Outcome | Refusal) -> None:
        if isinstance(answer, Refusal):
            self.refused[answer.code] += 1
            if len(self.refusals) < MOST_REFUSALS:
                self.refusals.append((job_id, answer))
        elif answer is Outcome.APPLIED:
            self.applied += 1
        else:
            self.already += 1


async def give(ledger: Ledger, query: JobQuery, wanted: Wanted, order: Order, limit: int) -> Tally:
    """Give the order to at most `limit` jobs."""
    tally, slots = Tally(), asyncio.Semaphore(AT_ONCE)

    async def one(job_id: str) -> None:
        async with slots:
            tally.note(job_id, await order(job_id))

    async for found in _pages(ledger, query, wanted):
        page = found[: limit - tally.matched]
        tally.matched += len(page)
        await asyncio.gather(*map(one, page))
        if len(page) < len(found):
            tally.more = True
            break
    return tally


async def count(ledger: Ledger, query: JobQuery, wanted: Wanted | None) -> int:
    """All that match, beyond every limit. `wanted`: what the query cannot say, asked of each job."""
    if wanted is None:
        return await ledger.count(query)
    return sum([len(found) async for found in _pages(ledger, query, wanted)])


async def _pages(ledger: Ledger, query: JobQuery, wanted: Wanted) -> AsyncIterator[Sequence[str]]:
    """The ids of matching jobs, newest first. Jobs that move meanwhile do not disturb the cursor."""
    cursor: str | None = None
    while True:
        page = await ledger.list(replace(query, limit=PAGE, cursor=cursor))
        yield [job.job_id for job in page.jobs if wanted(job)]
        cursor = page.next_cursor
        if cursor is None:
            return


def move_order(engine: Engine, received: Input) -> Order:
    """Cancel, pause, resume, dismiss: one input for each job."""

    async def order(job_id: str) -> Outcome | Refusal:
        applied = await engine.apply(job_id, received)
        if applied is None:
            return Refusal("JOB_NOT_FOUND", "the job is gone")
        if applied.outcome is Outcome.REJECTED:
            return Refusal(applied.code or "CONFLICT", f"the job is {applied.job.state.value}")
        return applied.outcome

    return order


def redrive_order(engine: Engine, payload: Mapping[str, Any] | None = None) -> Order:
    """A new job for each, with the payload that it has, or with this one if it suits the job."""

    async def order(job_id: str) -> Outcome | Refusal:
        try:
            submitted = await engine.redrive(job_id, payload=payload)
        except RequestError as error:
            return Refusal(error.code, error.detail, error.faults)
        return Outcome.ALREADY if submitted.duplicate else Outcome.APPLIED

    return order
