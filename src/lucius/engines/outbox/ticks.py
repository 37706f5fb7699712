"""What time alone does: jobs that are due are ticked, and jobs that others have moved are looked at."""

import asyncio
import logging
from collections.abc import Callable, Container
from datetime import datetime, timedelta
from typing import Final, NoReturn

from lucius.core.errors import LedgerRowUnreadableError, LedgerUnavailableError
from lucius.core.inputs import Ticked
from lucius.core.job import Job
from lucius.engines.outbox.alarm import Alarm
from lucius.engines.outbox.clock import LOOK, StallWatch
from lucius.engines.outbox.engine import OutboxEngine
from lucius.engines.outbox.observer import Incident, Observer, Outage
from lucius.engines.outbox.outage import OUTAGE_PAUSE
from lucius.engines.outbox.windows import Windows
from lucius.ports.engine import Applied
from lucius.ports.lanes import Lanes
from lucius.ports.ledger import DueJob, Ledger

log = logging.getLogger("lucius.reconciler")

BATCH: Final = 512
QUIET: Final = timedelta(seconds=5)
"""How long between two looks at most, where nothing happens. What is known to be due is not late for it."""


class Ticks:
    """Of the owned lanes. `every`: how long between two looks at most, whatever the alarm says.

    Where looks find nothing and nobody nudges, they become rarer: up to `QUIET` apart, if `every` is less.
    """

    def __init__(
        self,
        engine: OutboxEngine,
        ledger: Ledger,
        windows: Windows,
        alarm: Alarm,
        outage: Outage,
        *,
        lanes: Lanes,
        now: Callable[[], datetime],
        observer: Observer,
        every: timedelta,
        held_back: Container[str],
    ) -> None:
        """`held_back`: services whose leases do not run out now."""
        self._held_back = held_back
        self._engine = engine
        self._ledger = ledger
        self._windows = windows
        self._alarm = alarm
        self._outage = outage
        self._lanes = lanes
        self._now = now
        self._observer = observer
        self._every = every
        self._pause = every
        self._watch = StallWatch(now, lambda: asyncio.get_running_loop().time())

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch_forever())
            tasks.create_task(self._tick_forever())

    async def _watch_forever(self) -> NoReturn:
        """Look often, so that no stall that could matter falls between two looks."""
        while True:
            self._watch.deaf_until(self._observer)
            await asyncio.sleep(LOOK.total_seconds())

    async def _tick_forever(self) -> NoReturn:
        while True:
            try:
                moved = await self._looked()
            except LedgerUnavailableError as error:
                self._outage.began(error, self._observer)
                await asyncio.sleep(OUTAGE_PAUSE.total_seconds())
                continue
            self._outage.ended()
            if moved or await self._alarm.wait(self.pause()):
                self._pause = self._every
            else:
                self._pause = min(self._pause * 2, max(self._every, QUIET))

    async def _looked(self) -> bool:
        """Tick what is due. True: something has moved."""
        self._alarm.forget()
        await self._engine.settle_doubts()
        at = await self._ledger.next_due(self._lanes.owned)
        if at is not None and at <= self._now() and await self.tick_due():
            return True
        self._alarm.found(at)
        return False

    def pause(self) -> float:
        """Seconds until the next look."""
        if self._alarm.at is None:
            return self._pause.total_seconds()
        left = (self._alarm.at - self._now()).total_seconds()
        return min(max(left, 0.001), self._pause.total_seconds())

    async def tick_due(self) -> bool:
        """Tick what is due now. False: nothing was, or nothing that is due could be moved."""
        deaf_until, now = self._watch.deaf_until(self._observer), self._now()
        moved, page = False, await self._ledger.due(now, self._lanes.owned, BATCH)
        due = page
        while page and not moved:  # those that cannot be moved must not keep the next ones waiting
            moved = any(await asyncio.gather(*(self._tick(found, deaf_until) for found in page)))
            last = page[-1]
            if not moved and len(page) == BATCH:
                page = await self._ledger.due(now, self._lanes.owned, BATCH, last)
            else:
                page = ()
        if due and not moved:
            self._observer.incident(Incident.STUCK, "due")
            log.error("due jobs do not move: %s", [found.job_id for found in due[:5]])
            await asyncio.sleep(OUTAGE_PAUSE.total_seconds())
        return moved

    async def asked(self, job_id: str, *, told: bool) -> Applied | None:
        """The timer of a workflow has fired. `told`: it hears of what follows in the answer."""
        job = await self._engine.job(job_id)
        ticked = Ticked(
            queued=self._queued(job),
            deaf_until=self._watch.deaf_until(self._observer),
            on_hold=self._on_hold(job),
            asked=True,
            told=told,
        )
        return await self._engine.apply(job_id, ticked)

    async def look(self, job_id: str, timer: bool = False) -> None:
        """Another process has moved it. What it left to do is due already.

        `timer`: it was told that a timer of the job's workflow has fired.
        """
        self._pause = self._every
        try:
            job = await self._engine.look(job_id)
            if timer and job is not None and job.plan.desk in self._lanes.owned:
                await self.asked(job_id, told=False)
                return
        except LedgerRowUnreadableError:
            return  # the ledger has named it
        if job is not None and job.due_at is not None and job.due_at <= self._now():
            await self._tick(DueJob(job_id, job.due_at), None)

    async def _tick(self, found: DueJob, deaf_until: datetime | None) -> bool:
        """Tick one job. True: it has moved. A job that cannot be moved does not keep the others waiting."""
        try:
            if self._engine.is_stale(found.job_id, found.due_at):
                await self._engine.look(found.job_id)
            job = await self._engine.job(found.job_id)
            queued, on_hold = self._queued(job), self._on_hold(job)
            ticked = Ticked(queued=queued, deaf_until=deaf_until, on_hold=on_hold)
            applied = await self._engine.apply(found.job_id, ticked)
        except LedgerUnavailableError:
            raise
        except LedgerRowUnreadableError:
            return True  # the ledger has named it, and leaves it out from now on
        except Exception:
            self._observer.incident(Incident.TASK_FAILED, "tick")
            log.exception("a job cannot be ticked", extra={"jobId": found.job_id})
            return False
        return applied is not None and applied.job.due_at != found.due_at

    def _on_hold(self, job: Job | None) -> frozenset[str]:
        """Leases of the job that are with a service which is held back."""
        if job is None:
            return frozenset()
        pairs = zip(job.plan.steps, job.steps, strict=True)
        return frozenset(
            step.executions[-1].exec_id
            for planned, step in pairs
            if step.out and planned.service in self._held_back
        )

    def _queued(self, job: Job | None) -> frozenset[str]:
        """Leases of the job that wait behind others, at a service that is at work."""
        if job is None:
            return frozenset()
        out = (step.executions[-1].exec_id for step in job.steps if step.unacked)
        return frozenset(filter(self._windows.queued, out))
