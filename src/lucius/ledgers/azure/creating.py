"""A job comes to be: a wake-up that announces it, the admission by its tenant, its rows. In this order.

Whatever stops in between is found by the wake-up: a claim without rows is completed by whoever repeats
the request, or removed with its count after ten minutes.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from lucius.core.effects import Event
from lucius.core.errors import LedgerError, LedgerUnavailableError
from lucius.core.ids import new_lease_id
from lucius.core.job import Job
from lucius.ledgers.azure.heads import StepsHead
from lucius.ledgers.azure.layout import Layout
from lucius.ledgers.azure.seen import Sights, Stamps, sight_of
from lucius.ledgers.azure.store import ETAG, Refused, Row
from lucius.ledgers.azure.tenants import Tenants
from lucius.ledgers.azure.wakeups import (
    LATE_CREATION,
    LaneTable,
    new_wakeup,
    ready_rows,
    unnamed,
)
from lucius.ledgers.rules import HeldClaim, ready_steps, standing
from lucius.ledgers.stored.json_form import instant, micros
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

RACES: Final = 20


class Creation:
    def __init__(
        self,
        rows: Layout,
        tenants: Tenants,
        lanes: LaneTable,
        sights: Sights,
        stamps: Stamps,
        now: Callable[[], datetime],
    ) -> None:
        self._rows = rows
        self._tenants = tenants
        self._lanes = lanes
        self._sights = sights
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
            return standing(claim, held)
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
            self._lanes.drop(job.plan.desk, announced)
            raise
        if outcome not in (Created(), Duplicate(job.job_id)):
            self._lanes.drop(job.plan.desk, announced)
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
        for _ in range(RACES):
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
            self._sights.put(job.job_id, sight_of(job, head, etag))
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
            lane = job.plan.desk
            self._lanes.drop(lane, unnamed(lane, announced, found.wakeup, found.places))
            return Duplicate(job.job_id)
        await self._tenants.withdraw(job.tenant_id, head.claim_hash, job.job_id)
        raise LedgerError(f"the ledger cannot store this: job {job.job_id} exists")
