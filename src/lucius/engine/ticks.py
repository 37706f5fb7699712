"""What time alone does: jobs that are due are ticked, and jobs that others have moved are looked at."""

import asyncio
import logging
from collections.abc import Callable, Container, Sequence
from datetime import datetime, timedelta
from typing import Final, NoReturn

from lucius.core.effects import Committed
from lucius.core.errors import LedgerRowUnreadableError, LedgerUnavailableError
from lucius.core.inputs import Ticked
from lucius.core.job import Job
from lucius.engine.clock import LOOK, StallWatch
from lucius.engine.inbox import OUTAGE_PAUSE, Request, TimedInput, answer
from lucius.engine.observer import Incident, Observer, Outage
from lucius.engine.outbox import OutboxEngine
from lucius.engine.windows import Windows
from lucius.ports.engine import Applied
from lucius.ports.lanes import Lanes
from lucius.ports.ledger import DueJob, Ledger

log = logging.getLogger("lucius.reconciler")

BATCH: Final = 512
QUIET: Final = timedelta(seconds=5)
"""How long between two looks at most, where nothing happens. What is known to be due is not late for it."""


class Alarm(Observer):
    """When the next job is due. It listens to commits and to jobs that are taken up; `Ticks` waits for it."""

    def __init__(self) -> None:
        self._at: datetime | None = None
        self._earlier = asyncio.Event()

    @property
    def at(self) -> datetime | None:
        return self._at

    def listen(self, commit: Committed) -> None:
        before, at = commit.before, commit.job.due_at
        if commit.owned and at is not None and (before is None or before.due_at != at):
            self.due(at)

    def took_up(self, job: Job) -> None:
        if job.due_at is not None:
            self.due(job.due_at)

    def due(self, at: datetime) -> None:
        """A job was committed that is due then."""
        if self._at is None or at < self._at:
            self._at = at
            self._earlier.set()

    def forget(self) -> None:
        """The ledger is about to be asked. What is committed from now on counts besides its answer."""
        self._at = None
        self._earlier.clear()

    def found(self, at: datetime | None) -> None:
        """The ledger was asked, and named this as the earliest moment at which a job is due."""
        if at is not None and (self._at is None or at < self._at):
            self._at = at

    async def wait(self, seconds: float) -> bool:
        """Wait so many seconds. True: something has become due earlier than was known, so ask again."""
        try:
            async with asyncio.timeout(seconds):
                return await self._earlier.wait()
        except TimeoutError:
            return False


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
                self._outage.began(error)
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
            moved = await self._ticked(page, deaf_until)
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

    async def _ticked(self, found: Sequence[DueJob], deaf_until: datetime | None) -> bool:
        """Post a tick for each, and wait for the last. True: at least one job has moved."""
        page = _Page(self, found, deaf_until)
        for due in found:
            fresh = self._engine.is_stale(due.job_id, due.due_at)
            self._engine.post(page.tick(due, fresh=fresh))
        return await page.moved

    # -- what others ask for -----------------------------------------------------------------

    async def asked(self, job_id: str, *, told: bool) -> Applied | None:
        """The timer of a workflow has fired. `told`: it hears of what follows in the answer."""
        _, applied = await self._engine.ask(job_id, lambda job: self._timer_fired(job, told=told))
        return applied[0] if applied else None

    def nudged(self, job: Job, *, timer: bool) -> Sequence[TimedInput]:
        """Another process has moved it. What it left to do is due already.

        `timer`: it was told that a timer of the job's workflow has fired.
        """
        self._pause = self._every
        if timer and job.plan.shard in self._lanes.owned:
            return self._timer_fired(job, told=False)
        if job.due_at is not None and job.due_at <= self._now():
            return ((self.tick(job, None), None),)
        return ()

    def _timer_fired(self, job: Job, *, told: bool) -> Sequence[TimedInput]:
        deaf_until = self._watch.deaf_until(self._observer)
        queued, on_hold = self._queued(job), self._on_hold(job)
        return ((Ticked(False, queued, deaf_until, on_hold, asked=True, told=told), None),)

    def tick(self, job: Job, deaf_until: datetime | None) -> Ticked:
        queued, on_hold = self._queued(job), self._on_hold(job)
        return Ticked(queued=queued, deaf_until=deaf_until, on_hold=on_hold)

    def defect(self, job_id: str, error: BaseException) -> None:
        """A job that cannot be ticked does not keep the others waiting."""
        self._observer.incident(Incident.TASK_FAILED, "tick")
        log.error("a job cannot be ticked", exc_info=error, extra={"jobId": job_id})

    def _on_hold(self, job: Job) -> frozenset[str]:
        """Leases of the job that are with a service which is held back."""
        pairs = zip(job.plan.steps, job.steps, strict=True)
        return frozenset(
            step.executions[-1].exec_id
            for planned, step in pairs
            if step.out and planned.service in self._held_back
        )

    def _queued(self, job: Job) -> frozenset[str]:
        """Leases of the job that wait behind others, at a service that is at work."""
        out = (step.executions[-1].exec_id for step in job.steps if step.unacked)
        return frozenset(filter(self._windows.queued, out))


class _Page:
    """Ticks that are posted together: one future for all."""

    def __init__(self, ticks: Ticks, found: Sequence[DueJob], deaf_until: datetime | None) -> None:
        self._ticks = ticks
        self._deaf_until = deaf_until
        self._left = len(found)
        self._moved = False
        self._error: BaseException | None = None
        self.moved: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def tick(self, due: DueJob, *, fresh: bool) -> Request:
        def answered(job: Job | None, applied: Sequence[Applied]) -> None:
            self._ended(moved=job is not None and job.due_at != due.due_at)

        def failed(error: BaseException) -> bool:
            if isinstance(error, LedgerUnavailableError | asyncio.CancelledError):
                self._error = error
            elif not isinstance(error, LedgerRowUnreadableError):
                self._ticks.defect(due.job_id, error)
            # What cannot be read the ledger has named, and leaves it out from now on.
            self._ended(moved=isinstance(error, LedgerRowUnreadableError))
            return False

        inputs = lambda job: ((self._ticks.tick(job, self._deaf_until), None),)  # noqa: E731
        return Request(due.job_id, inputs, answered, failed, fresh=fresh)

    def _ended(self, *, moved: bool) -> None:
        self._left -= 1
        self._moved = self._moved or moved
        if not self._left:
            answer(self.moved, self._error or self._moved)
