"""A job moves on: what its lane must know first, then its rows, then what its tenant's lists say.

Stopped after the first, a save leaves a wake-up that nobody relies on; after the second, one by which
the rest is done later. So a job is never forgotten.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from typing import Final

from lucius.adapters.ledgers.azure.heads import Layout, StepsHead
from lucius.adapters.ledgers.azure.store import ETAG, Refused, Row
from lucius.adapters.ledgers.azure.tenants import Tenants
from lucius.adapters.ledgers.azure.wakeups import (
    LATE_CREATION,
    LaneTable,
    due_of,
    new_wakeup,
    ready_rows,
    unnamed,
)
from lucius.adapters.ledgers.rules import HeldClaim, existing_claim, ready_steps
from lucius.adapters.ledgers.stored.json_form import instant, micros
from lucius.core.effects import Event
from lucius.core.errors import LedgerError, LedgerTooNewError, LedgerUnavailableError
from lucius.core.ids import new_lease_id
from lucius.core.job import Job, Step
from lucius.core.record import record
from lucius.ports.ledger import (
    Claim,
    Created,
    CreateOutcome,
    Duplicate,
    KeyReused,
    LimitReached,
    Taken,
    Unfinished,
)

# What this process last saw of each job's rows, so that a save needs no reading; and whose turn it is.

MOST: Final = 20_000


@record
class SeenJob:
    version: int
    etag: str
    head: StepsHead
    steps: Sequence[Step]
    due_at: datetime | None
    terminal: bool
    in_dlq: bool
    settled: bool
    """Whether the tenant's rows are known to say that it has ended."""


def seen_job_of(job: Job, head: StepsHead, etag: str, *, settled: bool = False) -> SeenJob:
    return SeenJob(
        job.version, etag, head, job.steps, job.due_at, job.terminal, job.in_dlq, settled
    )


class SeenJobs:
    """The latest are kept. Nobody relies on them: an ETag guards every save."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, SeenJob] = OrderedDict()

    def get(self, job_id: str) -> SeenJob | None:
        return self._jobs.get(job_id)

    def put(self, job_id: str, seen_job: SeenJob) -> None:
        self._jobs[job_id] = seen_job
        self._jobs.move_to_end(job_id)
        if len(self._jobs) > MOST:
            self._jobs.popitem(last=False)

    def forget(self, job_id: str) -> None:
        self._jobs.pop(job_id, None)


class JobTurns:
    """Those who write to one job go one after another, in the order in which they came."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def of(self, job_id: str) -> AsyncIterator[None]:
        lock, waiting = self._locks.get(job_id, (asyncio.Lock(), 0))
        self._locks[job_id] = (lock, waiting + 1)
        try:
            async with lock:
                yield
        finally:
            lock, waiting = self._locks[job_id]
            if waiting == 1:
                del self._locks[job_id]
            else:
                self._locks[job_id] = (lock, waiting - 1)


class Stamps:
    """Microseconds that never repeat in this process: they order what comes at one instant."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._last = 0

    def next(self) -> int:
        self._last = max(self._last + 1, micros(self._now()))
        return self._last


# A job comes to be: a wake-up that announces it, the admission by its tenant, its rows. In this order.
#
# Whatever stops in between is found by the wake-up: a claim without rows is completed by whoever repeats
# the request, or removed with its count after ten minutes.

CREATE_RACES: Final = 20


class Creation:
    def __init__(
        self,
        rows: Layout,
        tenants: Tenants,
        lanes: LaneTable,
        seen_jobs: SeenJobs,
        stamps: Stamps,
        now: Callable[[], datetime],
    ) -> None:
        self._rows = rows
        self._tenants = tenants
        self._lanes = lanes
        self._seen_jobs = seen_jobs
        self._stamps = stamps
        self._now = now

    # -- claims ------------------------------------------------------------------------------

    async def claimed(self, claim: Claim) -> Taken | None:
        row = await self._tenants.claim(claim)
        return await self._holder(claim, row) if row is not None else None

    async def _holder(self, claim: Claim, row: Row) -> Taken | None:
        """Who holds it. None: nobody, or a job that ended without success."""
        job_id = row["job_id"]
        found = await self._rows.glance(job_id, claim.tenant_id)
        if found is not None and found.tombstone:
            await self._tenants.withdraw(claim.tenant_id, claim.claim_hash, job_id)
            return None
        state = found.state if found is not None else None
        held = HeldClaim(row["body_hash"], bool(row["keyed"]), job_id, state)
        if state is not None:
            return existing_claim(claim, held)
        if held.keyed and held.body_hash != claim.body_hash:
            return KeyReused(job_id)
        return Unfinished(job_id, instant(micros(row["created_at"])))

    # -- creating ----------------------------------------------------------------------------

    async def create(
        self, claim: Claim, job: Job, events: Sequence[Event], limit: int | None
    ) -> CreateOutcome:
        head, announced = await self._announced(claim, job)
        try:
            outcome = await self._admitted(claim, job, head, limit)
            if isinstance(outcome, StepsHead):
                outcome = await self._inserted(job, outcome, events, announced)
        except LedgerUnavailableError:
            raise  # nobody knows how far it came: the wake-up row brings it up
        except LedgerError:
            self._lanes.drop(job.plan.shard, announced)
            raise
        if outcome not in (Created(), Duplicate(job.job_id)):
            self._lanes.drop(job.plan.shard, announced)
        return outcome

    async def _announced(self, claim: Claim, job: Job) -> tuple[StepsHead, list[str]]:
        """The row comes up in time to see whether the job came to be."""
        places = {job.plan.steps[at].step_id: self._stamps.next() for at in ready_steps(job)}
        now = micros(self._now())
        due = micros(job.due_at) if job.due_at is not None else now
        wakeup = new_wakeup(job, min(due, now + LATE_CREATION), claim.claim_hash, now)
        ready = list(ready_rows(job, places))
        await self._lanes.announce(wakeup, ready)
        head = StepsHead(
            claim.claim_hash,
            claim.body_hash,
            claim.keyed,
            self._stamps.next(),
            wakeup.row,
            places,
            new_lease_id(),
        )
        return head, [wakeup.row, *ready]

    async def _admitted(
        self, claim: Claim, job: Job, head: StepsHead, limit: int | None
    ) -> CreateOutcome | StepsHead:
        """A head: the claim is this job's, and it counts and is listed where that head says."""
        replaces: str | None = None
        for _ in range(CREATE_RACES):
            answer = await self._tenants.admit(job, head, limit, replaces)
            if answer is None:
                return head
            row = await self._tenants.claim(claim)
            if row is not None and row["job_id"] == job.job_id:
                return replace(head, no=row["no"])  # of an earlier try, whose rows are to come
            holder = await self._holder(claim, row) if row is not None else None
            if holder is not None:
                return holder
            if isinstance(answer, LimitReached):
                return answer
            replaces = row[ETAG] if row is not None else None
        raise LedgerUnavailableError("others claim and give up this request faster than we do")

    async def _inserted(
        self, job: Job, head: StepsHead, events: Sequence[Event], announced: Sequence[str]
    ) -> CreateOutcome:
        etag = await self._rows.insert(job, head, events)
        if not isinstance(etag, Refused):
            self._seen_jobs.put(job.job_id, seen_job_of(job, head, etag))
            if job.terminal:
                await self._tenants.end(job, head)
            return Created()
        return await self._taken(job, head, announced)

    async def _taken(self, job: Job, head: StepsHead, announced: Sequence[str]) -> CreateOutcome:
        """Under this id there is this job, whose answer was lost; the same one, made by someone else, or
        moved since; a tombstone; or another job."""
        found = await self._rows.glance(job.job_id, job.tenant_id)
        if found is None or found.tombstone:
            await self._tenants.withdraw(job.tenant_id, head.claim_hash, job.job_id)
            raise LedgerUnavailableError(
                f"job {job.job_id} was given up before its rows were written: submit it again"
            )
        if found.save_id == head.save_id:
            return Created()
        if found.claim_hash == head.claim_hash:
            lane = job.plan.shard
            self._lanes.drop(lane, unnamed(lane, announced, found.wakeup, found.places))
            return Duplicate(job.job_id)
        await self._tenants.withdraw(job.tenant_id, head.claim_hash, job.job_id)
        raise LedgerError(f"the ledger cannot store this: job {job.job_id} exists")


log = logging.getLogger("lucius.ledger")

SAVE_RACES: Final = 10


@record
class Prepared:
    """A save that its lane knows of: the new head, and the rows that were written for it."""

    head: StepsHead
    written: tuple[str, ...] = ()


class Saving:
    def __init__(
        self,
        rows: Layout,
        tenants: Tenants,
        lanes: LaneTable,
        seen_jobs: SeenJobs,
        stamps: Stamps,
        now: Callable[[], datetime],
    ) -> None:
        self._rows = rows
        self._tenants = tenants
        self._lanes = lanes
        self._seen_jobs = seen_jobs
        self._stamps = stamps
        self._now = now

    async def save(self, job: Job, expected: int, events: Sequence[Event]) -> bool:
        save_id = new_lease_id()
        for _ in range(SAVE_RACES):
            seen_job = await self._seen_job(job, expected)
            if seen_job is None or seen_job.version != expected:
                return False
            prepared = await self._prepared(seen_job, job, save_id)
            head = prepared.head
            etag = await self._rows.replace(seen_job.steps, seen_job.etag, job, head, events)
            if isinstance(etag, Refused):
                found = await self._refused(job, expected, prepared)
                if found is None:
                    return False
                if found.head.save_id != save_id:
                    continue
                etag = found.etag  # this save had landed, and its answer was lost
            await self._landed(
                seen_job, seen_job_of(job, head, etag, settled=seen_job.settled), job
            )
            return True
        raise LedgerUnavailableError(
            f"job {job.job_id} is being written by others faster than by us"
        )

    async def _seen_job(self, job: Job, expected: int) -> SeenJob | None:
        """What is stored now. What was seen is good enough, unless the caller has seen more."""
        seen_job = self._seen_jobs.get(job.job_id)
        if seen_job is not None and seen_job.version >= expected:
            return seen_job
        try:
            stored = await self._rows.read(job.job_id, job.tenant_id)
        except LedgerTooNewError:
            return None
        if stored is None:
            return None
        seen_job = seen_job_of(stored.job, stored.head, stored.etag)
        self._seen_jobs.put(job.job_id, seen_job)
        return seen_job

    async def _refused(self, job: Job, expected: int, prepared: Prepared) -> SeenJob | None:
        """Read what is stored instead. The rows of the lane go, unless the stored job relies on them.

        A save whose answer was lost is sent again and refused because of itself. The stored job may also be
        a later one, which was saved on top of it.
        """
        self._seen_jobs.forget(job.job_id)
        found = await self._seen_job(job, expected)
        if found is not None:
            places = (found.head.ready or {}).values()
            unused = unnamed(job.plan.shard, prepared.written, found.head.wakeup, places)
            self._lanes.drop(job.plan.shard, unused)
        return found

    async def _landed(self, before: SeenJob, saved: SeenJob, job: Job) -> None:
        lane, kept = job.plan.shard, saved.head.ready or {}
        self._seen_jobs.put(job.job_id, saved)
        left = {step: at for step, at in (before.head.ready or {}).items() if step not in kept}
        self._lanes.drop(lane, list(ready_rows(job, left)))
        if saved.head.wakeup != before.head.wakeup and before.due_at is not None:
            self._lanes.drop(lane, [before.head.wakeup])
        await self._concluded(before, saved, job)

    def _places(self, seen_job: SeenJob, job: Job) -> Mapping[str, int]:
        """Who keeps a place in the ready queues, and who gets a new one at the end."""
        held = seen_job.head.ready or {}
        steps = [job.plan.steps[at].step_id for at in ready_steps(job)]
        return {step: held[step] if step in held else self._stamps.next() for step in steps}

    async def _prepared(self, seen_job: SeenJob, job: Job, save_id: str) -> Prepared:
        """Write what the lane must know before the save lands, if anything."""
        ready = self._places(seen_job, job)
        fresh = {step: at for step, at in ready.items() if step not in (seen_job.head.ready or {})}
        head = replace(seen_job.head, ready=dict(ready), save_id=save_id)
        due = self._announced_at(seen_job, job, fresh)
        if due is None:
            return Prepared(head)
        wakeup = new_wakeup(job, due, head.claim_hash, micros(self._now()))
        rows = list(ready_rows(job, fresh))
        await self._lanes.announce(wakeup, rows)
        return Prepared(replace(head, wakeup=wakeup.row), (wakeup.row, *rows))

    def _announced_at(self, seen_job: SeenJob, job: Job, fresh: Mapping[str, int]) -> int | None:
        """When a new wake-up row must come up; none where the one that stands is good enough.

        It is good if it comes up before the job is due. One that has come up already, before the job is due,
        would be looked at for nothing: writing a new one now is cheaper.
        """
        now = micros(self._now())
        stands = due_of(seen_job.head.wakeup) if seen_job.due_at is not None else None
        if job.due_at is None:
            changes_lists = job.terminal and (
                not seen_job.terminal or job.in_dlq != seen_job.in_dlq
            )
            leaves_something = changes_lists or self._rows.apart
            return now if stands is None and leaves_something else None
        due = micros(job.due_at)
        goes_out = any(s.out for s in job.steps) and not any(s.out for s in seen_job.steps)
        if stands is None or due < stands or fresh or goes_out:
            return due
        return due if stands <= now < due else None

    # -- after the save ----------------------------------------------------------------------

    async def _concluded(self, before: SeenJob, saved: SeenJob, job: Job) -> None:
        """The save is durable, whatever happens here: what is not done now, the wake-up row brings up."""
        try:
            if job.terminal:
                await self._relisted(before, saved, job)
            if self._lanes.crowded(job.plan.shard):
                await self._lanes.settle([job.plan.shard])
        except LedgerError as error:
            log.warning("job %s is saved, its lists are behind: %s", job.job_id, error)

    async def _relisted(self, before: SeenJob, saved: SeenJob, job: Job) -> None:
        if not saved.settled:
            await self._tenants.end(job, saved.head)
        if before.terminal and (not saved.settled or before.in_dlq != job.in_dlq):
            await self._tenants.relist(job, saved.head)
        self._seen_jobs.put(job.job_id, replace(saved, settled=True))
        if self._rows.is_copied(job.job_id):
            self.copied(job)

    def copied(self, job: Job) -> None:
        """Nothing is left to be done for a job that has ended and owes nothing: its wake-up row may go."""
        seen_job = self._seen_jobs.get(job.job_id)
        if seen_job is None or seen_job.version != job.version or not seen_job.settled:
            return
        if job.due_at is None and seen_job.head.wakeup:
            self._lanes.drop(job.plan.shard, [seen_job.head.wakeup])
