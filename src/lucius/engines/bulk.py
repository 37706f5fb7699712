"""One order for many jobs: page by page, a bounded number at once, counted by outcome.

An order is given to every job on its own, so a run that breaks off has lost nothing, and repeating
it goes on where it stopped: jobs that were moved no longer match.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from lucius.core.effects import Outcome
from lucius.core.errors import RequestError
from lucius.core.inputs import Input
from lucius.core.job import Job
from lucius.ports.engine import Engine
from lucius.ports.ledger import JobQuery, Ledger

PAGE: Final = 500
AT_ONCE: Final = 64

Order = Callable[[str], Awaitable[str]]
"""Given to one job by its id; answers `applied`, `already`, or the code of a refusal."""


@dataclass(slots=True)
class Tally:
    """`more`: the limit was reached while jobs were left that match."""

    matched: int = 0
    applied: int = 0
    already: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    more: bool = False

    def note(self, answer: str) -> None:
        if answer == Outcome.APPLIED:
            self.applied += 1
        elif answer == Outcome.ALREADY:
            self.already += 1
        else:
            self.refused[answer] += 1


async def give(
    ledger: Ledger,
    query: JobQuery,
    wanted: Callable[[Job], bool],
    order: Order | None,
    limit: int,
) -> Tally:
    """Give the order to at most `limit` jobs; without an order they are only counted."""
    tally, slots = Tally(), asyncio.Semaphore(AT_ONCE)

    async def one(job_id: str, order: Order) -> None:
        async with slots:
            tally.note(await order(job_id))

    async for found in _pages(ledger, query, wanted):
        page = found[: limit - tally.matched]
        tally.matched += len(page)
        if order is not None:
            await asyncio.gather(*(one(job_id, order) for job_id in page))
        if len(page) < len(found):
            tally.more = True
            break
    return tally


async def _pages(
    ledger: Ledger, query: JobQuery, wanted: Callable[[Job], bool]
) -> AsyncIterator[Sequence[str]]:
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

    async def order(job_id: str) -> str:
        applied = await engine.apply(job_id, received)
        if applied is None:
            return "JOB_NOT_FOUND"
        if applied.outcome is Outcome.REJECTED:
            return applied.code or "CONFLICT"
        return applied.outcome.value

    return order


def redrive_order(engine: Engine) -> Order:
    """A new job for each, with the payload that it has."""

    async def order(job_id: str) -> str:
        try:
            submitted = await engine.redrive(job_id)
        except RequestError as error:
            return error.code
        return (Outcome.ALREADY if submitted.duplicate else Outcome.APPLIED).value

    return order
