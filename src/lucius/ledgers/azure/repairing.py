"""Repairs jobs that no row of a lane brings up, or that lack a row in a ready queue.

No save leaves such a job, whether or not an answer is lost. Rows that somebody has deleted lead there.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from lucius.core.errors import LedgerRowUnreadableError, LedgerTooNewError
from lucius.ledgers.azure.heads import Stored
from lucius.ledgers.azure.layout import Layout
from lucius.ledgers.azure.seen import Sights
from lucius.ledgers.azure.store import Refused
from lucius.ledgers.azure.tenants import Tenants
from lucius.ledgers.azure.wakeups import DESKS, LaneTable, new_wakeup, ready_rows
from lucius.ledgers.stored.json_form import micros

log = logging.getLogger("lucius.ledger")

PAUSE: Final = timedelta(minutes=5)
"""Between two comparisons of all live jobs with the rows of the lanes."""
MOST_COMPARED: Final = 100_000
"""Rows of lanes. Where more jobs wait, the comparison is left out: its memory is bounded."""


class Repair:
    def __init__(
        self,
        rows: Layout,
        tenants: Tenants,
        lanes: LaneTable,
        sights: Sights,
        now: Callable[[], datetime],
    ) -> None:
        self._rows = rows
        self._tenants = tenants
        self._lanes = lanes
        self._sights = sights
        self._now = now
        self._compared_at = now()
        self._suspects: frozenset[str] = frozenset()
        """Live jobs that had no row in a lane at the last comparison."""

    async def job(self, job_id: str) -> bool:
        """Write the rows of its lane again if one of them is missing. True: it has them again."""
        stored = await self._rows.read(job_id)
        if stored is None or not await self._lanes.lacks(stored.job.plan.desk, _needed(stored)):
            return False
        job, head = stored.job, stored.head
        found = await self._rows.glance(job_id, job.tenant_id)
        if found is None or found.version != job.version:
            return False  # someone has moved it since, and has written what it needs
        due = micros(job.due_at or self._now())
        announced = replace(job, version=job.version + 1)
        wakeup = new_wakeup(announced, due, head.claim_hash, micros(self._now()))
        await self._lanes.announce(wakeup, list(ready_rows(job, dict(head.ready or {}))))
        self._sights.forget(job_id)
        if isinstance(await self._rows.touch(found, wakeup.row), Refused):
            return False
        log.warning("job %s had lost rows of its lane: they are written again", job_id)
        return True

    async def all(self) -> int:
        """Repair the live jobs that two comparisons in turn have found without a row. How many."""
        if self._now() - self._compared_at < PAUSE:
            return 0
        self._compared_at = self._now()
        missing = await self._missing()
        lost, self._suspects = missing & self._suspects, missing
        return sum([await self._repaired(job_id) for job_id in lost])

    async def _repaired(self, job_id: str) -> bool:
        try:
            return await self.job(job_id)
        except (LedgerRowUnreadableError, LedgerTooNewError):
            return False

    async def _missing(self) -> frozenset[str]:
        """Live jobs that no row of a lane names. One that has just ended or begun may be among them."""
        woken: set[str] = set()
        for lane in DESKS:
            async for wakeup in self._lanes.wakeups(lane):
                woken.add(wakeup.job_id)
                if len(woken) > MOST_COMPARED:
                    return frozenset()
        missing: set[str] = set()
        for tenant_id in await self._tenants.all():
            async for job_id in self._tenants.live_jobs(tenant_id):
                if job_id not in woken and len(missing) < MOST_COMPARED:
                    missing.add(job_id)
        return frozenset(missing)


def _needed(stored: Stored) -> list[str]:
    job, head = stored.job, stored.head
    wakeups = [head.wakeup] if job.due_at is not None else []
    return [*wakeups, *ready_rows(job, dict(head.ready or {}))]
