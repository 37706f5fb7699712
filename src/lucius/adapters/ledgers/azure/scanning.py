"""Finds what is due, by the rows of the lanes, and tidies them: the rows of a dead writer come up here.

A row that has come up is compared with its job. If the job relies on it, the job is due, or the row moves
to the moment at which it is. If the announced save never came, the row is kept for a while, and then the
late writer is fenced off.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Final

from lucius.adapters.ledgers.azure.heads import Glance, Layout
from lucius.adapters.ledgers.azure.store import Refused
from lucius.adapters.ledgers.azure.tenants import Tenants
from lucius.adapters.ledgers.azure.wakeups import (
    LATE_CREATION,
    SHARDS,
    LaneTable,
    Wakeup,
    new_row,
    unnamed,
)
from lucius.adapters.ledgers.azure.writing import SeenJobs
from lucius.adapters.ledgers.rules import may_be_out
from lucius.adapters.ledgers.stored.job_codec import SCHEMA
from lucius.adapters.ledgers.stored.json_form import MICROSECOND, instant, micros
from lucius.core.errors import LedgerError, LedgerRowUnreadableError
from lucius.core.job import TERMINAL_JOB
from lucius.core.record import record
from lucius.ports.ledger import DueJob

log = logging.getLogger("lucius.ledger")

LATE_SAVE: Final = timedelta(minutes=5) // MICROSECOND
"""How long an announced save may take, before its writer is fenced off."""
LATE_CLAIM: Final = timedelta(days=1) // MICROSECOND
LOOK_AGAIN: Final = timedelta(hours=1) // MICROSECOND
AT_ONCE: Final = 16
"""Jobs that are looked at together."""
AHEAD: Final = 256
"""Rows of a lane that are read in one request."""


@record
class FoundRow:
    due: int
    job_id: str
    out: bool


def _pass_over(row: Wakeup, error: Exception) -> None:
    """Raise what concerns more than this job."""
    if isinstance(error, LedgerError) and not isinstance(error, LedgerRowUnreadableError):
        raise error
    log.error("the rows of job %s cannot be compared: %r", row.job_id, error)


class Scanner:
    def __init__(
        self,
        rows: Layout,
        tenants: Tenants,
        lanes: LaneTable,
        seen_jobs: SeenJobs,
        now: Callable[[], datetime],
    ) -> None:
        self._rows = rows
        self._tenants = tenants
        self._lanes = lanes
        self._seen_jobs = seen_jobs
        self._now = now
        self._looked: dict[str, FoundRow | None] = {}
        """Rows that were compared for the pages so far, so that the next page does not do it again."""
        self._met: defaultdict[int, list[FoundRow]] = defaultdict(list)
        """By lane, what they led to: a page may have left some of it to the next one."""
        self._whole: set[tuple[int, int]] = set()
        """Lanes of which all rows up to a moment were met: the next page reads none of them again."""

    async def due(
        self,
        before: datetime,
        lanes: Collection[int],
        limit: int,
        after: DueJob | None,
        skips: Callable[[str], bool],
    ) -> Sequence[DueJob]:
        if after is None:
            self._looked.clear()
            self._met.clear()
            self._whole.clear()
            await self._lanes.settle(lanes)
        start = (micros(after.due_at), after.job_id) if after is not None else (-1, "")
        found: dict[str, FoundRow] = {}
        for lane in lanes:
            async for each in self._in_lane(lane, micros(before), limit, start):
                if (each.due, each.job_id) > start and not skips(each.job_id):
                    other = found.get(each.job_id, each)
                    first = min(each.due, other.due)
                    found[each.job_id] = FoundRow(first, each.job_id, each.out or other.out)
        order = sorted(found.values(), key=lambda each: (each.due, each.job_id))
        return [DueJob(f.job_id, instant(f.due), f.out) for f in islice(order, limit)]

    async def next_due(
        self, lanes: Collection[int], skips: Callable[[str], bool]
    ) -> datetime | None:
        """Not later than the first that is due. A row that is kept for what may come is passed over.

        One request a lane: where nothing is due, no more is needed.
        """
        firsts = [at for lane in lanes if (at := await self._first(lane, skips)) is not None]
        return instant(min(firsts)) if firsts else None

    async def _first(self, lane: int, skips: Callable[[str], bool]) -> int | None:
        """A row that was kept is compared again: what it announced may have come since."""
        now = micros(self._now())
        async for row in self._lanes.wakeups(lane, page=AHEAD):
            if row.schema > SCHEMA or skips(row.job_id) or self._owes_nothing(row):
                continue
            kept = row.row in self._looked and self._looked[row.row] is None
            if not kept or row.due > now or await self._again(row) is not None:
                return row.due
        return None

    async def _again(self, row: Wakeup) -> FoundRow | None:
        self._looked.pop(row.row, None)
        return await self._look(row)

    async def sweep(self, now: datetime) -> int:
        """Look at every row that has come up. How many of them announced what never came."""
        gone = 0
        for lane in SHARDS:
            async for row in self._lanes.wakeups(lane, micros(now)):
                try:
                    before = await self._rows.glance(row.job_id, row.tenant_id)
                    await self._compared(row, before)
                except Exception as error:
                    _pass_over(row, error)
                    continue
                gone += before is None and self._lanes.hides(lane, row.row)
        return gone

    # -- one lane ----------------------------------------------------------------------------

    async def _in_lane(
        self, lane: int, before: int, limit: int, start: tuple[int, str]
    ) -> AsyncIterator[FoundRow]:
        """At least the first `limit` that are due after the start, not in order.

        Rows that come up before the start were met for earlier pages, and are not read again.
        """
        enough: list[int] = []
        for met in list(self._met[lane]):
            if (met.due, met.job_id) > start and met.due <= before:
                enough.append(met.due)
                yield met
        if (lane, before) in self._whole:
            return
        async for batch in _batches(self._lanes.wakeups(lane, before, AHEAD, start[0])):
            if len(enough) >= limit and batch[0].due > sorted(enough)[limit - 1]:
                return
            for found in await asyncio.gather(*(self._look(row) for row in batch)):
                if found is not None and found.due <= before:
                    if (found.due, found.job_id) > start:
                        enough.append(found.due)
                    yield found
        self._whole.add((lane, before))

    async def _look(self, row: Wakeup) -> FoundRow | None:
        if row.schema > SCHEMA:
            return None
        if row.row not in self._looked:
            self._looked[row.row] = found = await self._found_alone(row)
            if found is not None:
                self._met[row.lane].append(found)
        return self._looked[row.row]

    async def _found_alone(self, row: Wakeup) -> FoundRow | None:
        """A job with damaged rows is due: whoever loads it is told what is wrong, and no other waits."""
        try:
            return await self._found(row)
        except Exception as error:
            _pass_over(row, error)
            return FoundRow(row.due, row.job_id, not row.held)

    async def _found(self, row: Wakeup) -> FoundRow | None:
        """A row that is still to come up says enough by itself."""
        if row.due > micros(self._now()) and self._owes_nothing(row):
            return None
        seen_job = self._seen_jobs.get(row.job_id)
        if seen_job is not None and seen_job.head.wakeup == row.row:
            if seen_job.due_at is not None and micros(seen_job.due_at) <= micros(self._now()):
                return FoundRow(micros(seen_job.due_at), row.job_id, not row.held)
        if row.due > micros(self._now()):
            return FoundRow(row.due, row.job_id, not row.held)
        return await self._compared(row, await self._rows.glance(row.job_id, row.tenant_id))

    def _owes_nothing(self, row: Wakeup) -> bool:
        """The row of a job that has ended: it only waits until the job has been copied."""
        seen_job = self._seen_jobs.get(row.job_id)
        return seen_job is not None and seen_job.head.wakeup == row.row and seen_job.due_at is None

    # -- a row that has come up --------------------------------------------------------------

    async def _compared(self, row: Wakeup, job: Glance | None) -> FoundRow | None:
        if job is None:
            await self._nobody(row)
            return None
        if job.newer:
            return None
        if job.tombstone:
            await self._give_up(row)
            return None
        if job.wakeup != row.row:
            await self._not_relied_on(row, job)
            return None
        copied = await self._rows.finish(job)
        if job.state in TERMINAL_JOB and not await self._ended(row, job):
            return None
        if job.due is None:
            self._lanes.drop(row.lane, [*([row.row] if copied else []), *_stale(row, job)])
            return None
        if job.due > micros(self._now()):
            await self._moved(row, job)
        elif job.version >= row.version:
            self._lanes.drop(row.lane, _stale(row, job))
        return FoundRow(job.due, job.job_id, may_be_out(job.state))

    async def _nobody(self, row: Wakeup) -> None:
        """A job that never came to be. Its writer may be late: it finds a tombstone then."""
        if micros(self._now()) - row.written >= LATE_CREATION:
            if await self._rows.bury(row.job_id, row.tenant_id):
                await self._give_up(row)

    async def _give_up(self, row: Wakeup) -> None:
        """Its writer may still claim, before it finds the tombstone: so look again, for a day."""
        await self._tenants.withdraw(row.tenant_id, row.claim_hash, row.job_id)
        now = micros(self._now())
        if now - row.written < LATE_CLAIM:
            due = now + LOOK_AGAIN
            again = replace(row, row=new_row(due, row.job_id, row.version), due=due, ready=())
            await self._lanes.announce(again, ())
        self._lanes.drop(row.lane, [row.row, *row.ready])

    async def _not_relied_on(self, row: Wakeup, job: Glance) -> None:
        if job.version < row.version:
            if micros(self._now()) - row.written < LATE_SAVE:
                return
            fenced = await self._rows.touch(job, job.wakeup)
            if isinstance(fenced, Refused):
                return  # someone has written since: look again
            self._seen_jobs.forget(job.job_id)
        self._lanes.drop(row.lane, [row.row, *_stale(row, job)])

    async def _ended(self, row: Wakeup, job: Glance) -> bool:
        """Make sure that the tenant's lists know."""
        seen_job = self._seen_jobs.get(job.job_id)
        if seen_job is not None and seen_job.settled:
            return True
        try:
            stored = await self._rows.read(job.job_id, job.tenant_id)
        except LedgerRowUnreadableError:
            return job.due is not None  # nothing is dropped until someone mends it
        if stored is not None:
            await self._tenants.end(stored.job, stored.head)
            await self._tenants.relist(stored.job, stored.head)
        return stored is not None

    async def _moved(self, row: Wakeup, job: Glance) -> None:
        """It announces a version that is not there yet: until the job relies on it, nobody may drop it.

        After a refusal both rows stay: an answer may have been lost, and the job relies on one of them.
        The next look at either sees which.
        """
        due, version = job.due or 0, job.version + 1
        moved = replace(
            row,
            row=new_row(due, job.job_id, version),
            due=due,
            version=version,
            written=micros(self._now()),
            ready=(),
            held=not may_be_out(job.state),
        )
        await self._lanes.announce(moved, ())
        etag = await self._rows.touch(job, moved.row)
        self._seen_jobs.forget(job.job_id)
        if not isinstance(etag, Refused):
            self._lanes.drop(row.lane, [row.row, *_stale(row, job)])


def _stale(row: Wakeup, job: Glance) -> list[str]:
    """Ready rows that were written with it, and that the job has no place for."""
    return unnamed(row.lane, row.ready, job.wakeup, job.places)


async def _batches(rows: AsyncIterator[Wakeup]) -> AsyncIterator[list[Wakeup]]:
    batch: list[Wakeup] = []
    async for row in rows:
        batch.append(row)
        if len(batch) == AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch
