"""A job moves on: what its lane must know first, then its rows, then what its tenant's lists say.

Stopped after the first, a save leaves a wake-up that nobody relies on; after the second, one by which
the rest is done later. So a job is never forgotten.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from lucius.core.effects import Event
from lucius.core.errors import LedgerError, LedgerTooNewError, LedgerUnavailableError
from lucius.core.ids import new_lease_id
from lucius.core.job import Job
from lucius.core.record import record
from lucius.ledgers.azure.heads import StepsHead
from lucius.ledgers.azure.layout import Layout
from lucius.ledgers.azure.seen import Sight, Sights, Stamps, sight_of
from lucius.ledgers.azure.store import Refused
from lucius.ledgers.azure.tenants import Tenants
from lucius.ledgers.azure.wakeups import LaneTable, due_of, new_wakeup, ready_rows, unnamed
from lucius.ledgers.rules import ready_steps
from lucius.ledgers.stored.json_form import micros

log = logging.getLogger("lucius.ledger")

RACES: Final = 10


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

    async def save(self, job: Job, expected: int, events: Sequence[Event]) -> bool:
        save_id = new_lease_id()
        for _ in range(RACES):
            sight = await self._sight(job, expected)
            if sight is None or sight.version != expected:
                return False
            prepared = await self._prepared(sight, job, save_id)
            head = prepared.head
            etag = await self._rows.replace(sight.steps, sight.etag, job, head, events)
            if isinstance(etag, Refused):
                found = await self._refused(job, expected, prepared)
                if found is None:
                    return False
                if found.head.save_id != save_id:
                    continue
                etag = found.etag  # this save had landed, and its answer was lost
            await self._landed(sight, sight_of(job, head, etag, settled=sight.settled), job)
            return True
        raise LedgerUnavailableError(
            f"job {job.job_id} is being written by others faster than by us"
        )

    async def _sight(self, job: Job, expected: int) -> Sight | None:
        """What is stored now. What was seen is good enough, unless the caller has seen more."""
        sight = self._sights.get(job.job_id)
        if sight is not None and sight.version >= expected:
            return sight
        try:
            stored = await self._rows.read(job.job_id, job.tenant_id)
        except LedgerTooNewError:
            return None
        if stored is None:
            return None
        sight = sight_of(stored.job, stored.head, stored.etag)
        self._sights.put(job.job_id, sight)
        return sight

    async def _refused(self, job: Job, expected: int, prepared: Prepared) -> Sight | None:
        """Read what is stored instead. The rows of the lane go, unless the stored job relies on them.

        A save whose answer was lost is sent again and refused because of itself. The stored job may also be
        a later one, which was saved on top of it.
        """
        self._sights.forget(job.job_id)
        found = await self._sight(job, expected)
        if found is not None:
            places = (found.head.ready or {}).values()
            unused = unnamed(job.plan.desk, prepared.written, found.head.wakeup, places)
            self._lanes.drop(job.plan.desk, unused)
        return found

    async def _landed(self, before: Sight, saved: Sight, job: Job) -> None:
        lane, kept = job.plan.desk, saved.head.ready or {}
        self._sights.put(job.job_id, saved)
        left = {step: at for step, at in (before.head.ready or {}).items() if step not in kept}
        self._lanes.drop(lane, list(ready_rows(job, left)))
        if saved.head.wakeup != before.head.wakeup and before.due_at is not None:
            self._lanes.drop(lane, [before.head.wakeup])
        await self._concluded(before, saved, job)

    def _places(self, sight: Sight, job: Job) -> Mapping[str, int]:
        """Who keeps a place in the ready queues, and who gets a new one at the end."""
        held = sight.head.ready or {}
        steps = [job.plan.steps[at].step_id for at in ready_steps(job)]
        return {step: held[step] if step in held else self._stamps.next() for step in steps}

    async def _prepared(self, sight: Sight, job: Job, save_id: str) -> Prepared:
        """Write what the lane must know before the save lands, if anything."""
        ready = self._places(sight, job)
        fresh = {step: at for step, at in ready.items() if step not in (sight.head.ready or {})}
        head = replace(sight.head, ready=dict(ready), save_id=save_id)
        due = self._announced_at(sight, job, fresh)
        if due is None:
            return Prepared(head)
        wakeup = new_wakeup(job, due, head.claim_hash, micros(self._now()))
        rows = list(ready_rows(job, fresh))
        await self._lanes.announce(wakeup, rows)
        return Prepared(replace(head, wakeup=wakeup.row), (wakeup.row, *rows))

    def _announced_at(self, sight: Sight, job: Job, fresh: Mapping[str, int]) -> int | None:
        """When a new wake-up row must come up; none where the one that stands is good enough.

        It is good if it comes up before the job is due. One that has come up already, before the job is due,
        would be looked at for nothing: writing a new one now is cheaper.
        """
        now = micros(self._now())
        stands = due_of(sight.head.wakeup) if sight.due_at is not None else None
        if job.due_at is None:
            changes_lists = job.terminal and (not sight.terminal or job.in_dlq != sight.in_dlq)
            leaves_something = changes_lists or self._rows.apart
            return now if stands is None and leaves_something else None
        due = micros(job.due_at)
        goes_out = any(s.out for s in job.steps) and not any(s.out for s in sight.steps)
        if stands is None or due < stands or fresh or goes_out:
            return due
        return due if stands <= now < due else None

    # -- after the save ----------------------------------------------------------------------

    async def _concluded(self, before: Sight, saved: Sight, job: Job) -> None:
        """The save is durable, whatever happens here: what is not done now, the wake-up row brings up."""
        try:
            if job.terminal:
                await self._relisted(before, saved, job)
            if self._lanes.crowded(job.plan.desk):
                await self._lanes.settle([job.plan.desk])
        except LedgerError as error:
            log.warning("job %s is saved, its lists are behind: %s", job.job_id, error)

    async def _relisted(self, before: Sight, saved: Sight, job: Job) -> None:
        if not saved.settled:
            await self._tenants.end(job, saved.head)
        if before.terminal and (not saved.settled or before.in_dlq != job.in_dlq):
            await self._tenants.relist(job, saved.head)
        self._sights.put(job.job_id, replace(saved, settled=True))
        if self._rows.is_copied(job.job_id):
            self.copied(job)

    def copied(self, job: Job) -> None:
        """Nothing is left to be done for a job that has ended and owes nothing: its wake-up row may go."""
        sight = self._sights.get(job.job_id)
        if sight is None or sight.version != job.version or not sight.settled:
            return
        if job.due_at is None and sight.head.wakeup:
            self._lanes.drop(job.plan.desk, [sight.head.wakeup])
