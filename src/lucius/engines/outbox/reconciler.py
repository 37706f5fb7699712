"""The reconciler: ticks what is due, consumes replies, and takes up what an earlier process left."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from lucius.core.errors import (
    BusUnavailableError,
    LedgerRowUnreadableError,
    LedgerUnavailableError,
    LockLostError,
    RequestError,
)
from lucius.core.inputs import BusRestarted, Callback, Ticked
from lucius.core.job import Job
from lucius.core.routing import reply_topic
from lucius.core.states import JobState
from lucius.core.wire import parse_reply
from lucius.engines.outbox.alarm import Alarm
from lucius.engines.outbox.clock import LOOK, StallWatch
from lucius.engines.outbox.dispatcher import Dispatcher
from lucius.engines.outbox.engine import OutboxEngine
from lucius.engines.outbox.lost_services import LostServices
from lucius.engines.outbox.observer import Incident, Observer, Outage
from lucius.engines.outbox.outage import OUTAGE_PAUSE, persistently
from lucius.engines.outbox.pace import Pace
from lucius.engines.outbox.pump import Pump
from lucius.engines.outbox.ready import ReadyQueues
from lucius.engines.outbox.releases import Releases
from lucius.engines.outbox.tasks import Tasks
from lucius.engines.outbox.unclaimed import UnclaimedReporter
from lucius.engines.outbox.windows import Windows
from lucius.ports.bus import Bus, Delivery, Subscription
from lucius.ports.lanes import Lanes
from lucius.ports.ledger import DueJob, JobQuery, Ledger
from lucius.telemetry.logs import message_fields
from lucius.telemetry.spans import applying_together

log = logging.getLogger("lucius.reconciler")

REPLIES: Final = "lucius-reconciler"
EMBEDDED: Final = "embedded/"
"""Worker ids of services that live in a process of LUCIUS begin so: their leases die with it."""
BATCH: Final = 512
AT_ONCE: Final = 64
"""Jobs that are taken up together at the start; they are in memory with their payloads."""
DELIVERING: Final = (
    JobState.DISPATCHING,
    JobState.IN_PROGRESS,
    JobState.PAUSING,
    JobState.CANCELLING,
)
"""States of a job that may have a step out."""
IDLE: Final = timedelta(seconds=30)
SILENCE: Final = 2 * IDLE
"""A receive that has not even come back empty by then has fallen silent, and is begun anew."""
LAST_WORDS: Final = timedelta(seconds=5)
"""How long the end waits for what services have said."""

Guard = Callable[[Mapping[str, Any], str, Callback], str | None]
"""Checks the token of a reply: a reason to set it aside, or none."""


class Reconciler:
    """Owns the engine's lanes: everything that happens by itself on them happens here."""

    def __init__(
        self,
        engine: OutboxEngine,
        ledger: Ledger,
        bus: Bus,
        dispatcher: Dispatcher,
        pump: Pump,
        unclaimed: UnclaimedReporter,
        releases: Releases,
        windows: Windows,
        ready: ReadyQueues,
        alarm: Alarm,
        lost: LostServices,
        tasks: Tasks,
        *,
        lanes: Lanes,
        pace: Pace,
        now: Callable[[], datetime],
        observer: Observer,
        look: timedelta = IDLE,
        guard: Guard = lambda body, job_id, received: None,
    ) -> None:
        self._engine = engine
        self._ledger = ledger
        self._bus = bus
        self._dispatcher = dispatcher
        self._pump = pump
        self._unclaimed = unclaimed
        self._releases = releases
        self._windows = windows
        self._ready = ready
        self._alarm = alarm
        self._lost = lost
        self._tasks = tasks
        self._lanes = lanes
        self._pace = pace
        self._now = now
        self._observer = observer
        self._look = look
        self._guard = guard
        self._topics = [reply_topic(lane) for lane in sorted(lanes.owned)]
        self._settling = 0
        self._settled = asyncio.Event()
        self._stalled: set[str] = set()
        """Locks of the replies that wait for the ledger; while there are any, none are received."""
        self._watch = StallWatch(now, lambda: asyncio.get_running_loop().time())
        self.ticks = Outage("ledger", "ticks pause", log)
        self.replies = Outage("bus", "replies pause", log)

    async def prepare(self) -> None:
        """Make the topology, take up what is out, and fill the ready queues."""
        topics = self._topics
        await self._bus.ensure([Subscription(topic, REPLIES, by_topic=True) for topic in topics])
        await self._unclaimed.prepare()
        await self._recover()
        await self._ready.recover(self._lanes.owned)
        self._releases.pump_all()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._dispatcher.run())
            tasks.create_task(self._pump.run())
            tasks.create_task(self._watch_forever())
            tasks.create_task(self._tick_forever())
            tasks.create_task(self._consume_forever())
            tasks.create_task(self._unclaimed.run())
            if not self._bus.volatile:
                tasks.create_task(self._bury_forever())

    # -- what is due -------------------------------------------------------------------------

    async def _watch_forever(self) -> None:
        """Look often, so that no stall that could matter falls between two looks."""
        while True:
            self._watch.deaf_until(self._observer)
            await asyncio.sleep(LOOK.total_seconds())

    async def _tick_forever(self) -> None:
        while True:
            try:
                if await self.tick_due():
                    continue
                self._alarm.set(await self._ledger.next_due(self._lanes.owned))
            except LedgerUnavailableError as error:
                self.ticks.began(error, self._observer)
                await asyncio.sleep(OUTAGE_PAUSE.total_seconds())
                continue
            self.ticks.ended()
            await self._alarm.wait(self._pause())

    def _pause(self) -> float:
        if self._alarm.at is None:
            return self._look.total_seconds()
        left = (self._alarm.at - self._now()).total_seconds()
        return min(max(left, 0.001), self._look.total_seconds())

    async def tick_due(self) -> bool:
        """Tick what is due now. False: nothing was, or nothing that is due could be moved."""
        deaf_until, now = self._watch.deaf_until(self._observer), self._now()
        due = await self._ledger.due(now, self._lanes.owned, BATCH)
        moved = await asyncio.gather(*(self._tick(found, deaf_until) for found in due))
        if due and not any(moved):
            self._observer.incident(Incident.STUCK, "due")
            log.error("due jobs do not move: %s", [found.job_id for found in due[:5]])
            await asyncio.sleep(OUTAGE_PAUSE.total_seconds())
        return any(moved)

    async def _tick(self, found: DueJob, deaf_until: datetime | None) -> bool:
        """One job that cannot be moved must not keep the others waiting."""
        self._engine.forget_stale(found.job_id, found.due_at)
        try:
            queued = self._queued(await self._engine.job(found.job_id))
            ticked = Ticked(queued=queued, deaf_until=deaf_until)
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

    def _queued(self, job: Job | None) -> frozenset[str]:
        """Leases of the job that wait behind others, at a service that is at work."""
        if job is None:
            return frozenset()
        out = (step.executions[-1].exec_id for step in job.steps if step.unacked)
        return frozenset(filter(self._windows.queued, out))

    # -- replies -----------------------------------------------------------------------------

    async def _consume_forever(self) -> None:
        while True:
            try:
                await self._consume()
                self.replies.ended()
            except (BusUnavailableError, LedgerUnavailableError, TimeoutError) as error:
                self.replies.began(error, self._observer)
                await asyncio.sleep(OUTAGE_PAUSE.total_seconds())

    async def _consume(self) -> None:
        if self._stalled:
            await asyncio.sleep(OUTAGE_PAUSE.total_seconds())
            return
        async with asyncio.timeout(SILENCE.total_seconds()):
            await self._take(IDLE)
        await self._settled_below(BATCH)

    async def _take(self, wait: timedelta) -> bool:
        """Begin to settle what the bus has. False: it has nothing."""
        deliveries = await self._bus.receive(REPLIES, self._topics, BATCH, wait)
        self._settling += len(deliveries)
        for together in by_job(deliveries):
            await self._pace.turn()
            self._tasks.spawn(self._replies(together))
        return bool(deliveries)

    async def _settled_below(self, most: int) -> None:
        while self._settling >= most:
            self._settled.clear()
            await self._settled.wait()

    async def drained(self) -> None:
        """Settle what services have said so far: a volatile bus would take it along, RELEASE included.

        It is tried for a while only. What is lost then counts as a death.
        """
        if not self._bus.volatile:
            return
        with suppress(TimeoutError, BusUnavailableError):
            async with asyncio.timeout(LAST_WORDS.total_seconds()):
                while await self._take(timedelta()) or self._settling:
                    await self._settled_below(1)

    async def _replies(self, deliveries: Sequence[Delivery]) -> None:
        """Replies about one job that came together: an ACK and its RESULT are one save."""
        try:
            await persistently(lambda: self._try_to_settle(deliveries))
        except (LockLostError, BusUnavailableError) as error:
            log.info("a reply will be delivered again: %s", error)
        finally:
            self._stalled.difference_update(delivery.lock_token for delivery in deliveries)
            self._settling -= len(deliveries)
            self._settled.set()

    async def _try_to_settle(self, deliveries: Sequence[Delivery]) -> None:
        """Given back, they would come again at once and soon pass for faulty: so they are kept."""
        try:
            await self._settle(deliveries)
        except LedgerUnavailableError as error:
            self.ticks.began(error, self._observer)
            self._stalled.update(delivery.lock_token for delivery in deliveries)
            raise

    async def _settle(self, deliveries: Sequence[Delivery]) -> None:
        read = [(d, reply) for d in deliveries if (reply := await self._read(d)) is not None]
        read = [(d, reply) for d, reply in read if await self._of_its_tenant(d, reply[0])]
        if not read:
            return
        job_id, inputs = read[0][1][0], [received for _, (_, received) in read]
        reason, detail = "UNKNOWN_JOB", f"there is no job {job_id}"
        try:
            with applying_together((d.message.body, received) for d, (_, received) in read):
                applied = await self._engine.apply_all(job_id, inputs)
        except LedgerRowUnreadableError as error:
            applied, reason, detail = None, "JOB_UNREADABLE", str(error)
        for delivery, _ in read:
            if applied is None:
                await self._set_aside(delivery, reason, detail)
            else:
                await self._bus.complete(delivery)

    async def _read(self, delivery: Delivery) -> tuple[str, Callback] | None:
        """Only faulty content is set aside."""
        body = delivery.message.body
        try:
            job_id, received = parse_reply(body)
        except RequestError as error:
            detail = "; ".join(f"{pointer}: {what}" for pointer, what in error.faults)
            await self._set_aside(delivery, error.code, detail)
            return None
        refusal = self._guard(body, job_id, received)
        if refusal is not None:
            await self._set_aside(delivery, "BAD_TOKEN", refusal)
            return None
        return job_id, received

    async def _of_its_tenant(self, delivery: Delivery, job_id: str) -> bool:
        """A reply need not name a tenant. One that names another than its job's is not about that job."""
        named = delivery.message.body.get("tenant_id")
        job = await self._engine.job(job_id) if named is not None else None
        if job is None or named == job.tenant_id:
            return True
        detail = f"it names the tenant {str(named)[:128]!r}, and {job_id} is another tenant's"
        await self._set_aside(delivery, "WRONG_TENANT", detail)
        return False

    async def _set_aside(self, delivery: Delivery, reason: str, detail: str) -> None:
        self._observer.incident(Incident.REPLY_SET_ASIDE, reason)
        fields = message_fields(delivery.message.body)
        log.warning("a reply is set aside (%s): %s", reason, detail, extra=fields)
        await self._bus.dead_letter(delivery, reason, detail)

    # -- the start ---------------------------------------------------------------------------

    async def _recover(self) -> None:
        """Whatever was out when an earlier process ended, however long its leases still run.

        Lists are newest first, and what has waited longest goes first: so their ids are read before.
        """
        left = await self._left_behind()
        for start in range(0, len(left), AT_ONCE):
            await asyncio.gather(*map(self._take_up, left[start : start + AT_ONCE]))
        if left:
            log.info("took up %d jobs of an earlier process", len(left))

    async def _left_behind(self) -> list[str]:
        """Oldest first. No more are out than the windows let out and services work on."""
        query, left = JobQuery(states=DELIVERING, limit=AT_ONCE), list[str]()
        while True:
            page = await self._ledger.list(query)
            left += [job.job_id for job in page.jobs if self._left_out(job)]
            if page.next_cursor is None:
                return left[::-1]
            query = replace(query, cursor=page.next_cursor)

    def _left_out(self, job: Job) -> bool:
        return job.plan.routing.lane in self._lanes.owned and any(step.out for step in job.steps)

    async def _take_up(self, job_id: str) -> None:
        """A volatile bus has lost it: publish again. One that cannot be moved must not stop the start."""
        try:
            job = await self._engine.job(job_id)
            if job is None or not self._left_out(job):
                return
            self._engine.recovered(job)
            if self._bus.volatile:
                await self._engine.apply(job_id, BusRestarted(EMBEDDED))
            else:
                await self._bury(job)
        except LedgerUnavailableError:
            raise
        except LedgerRowUnreadableError:
            return  # the ledger has named it
        except Exception:
            self._observer.incident(Incident.TASK_FAILED, "recovery")
            log.exception("a job cannot be taken up", extra={"jobId": job_id})

    async def _bury_forever(self) -> None:
        while True:
            for job in await self._lost.jobs():
                self._tasks.spawn(self._bury(job))

    async def _bury(self, job: Job) -> None:
        """End the leases of services that lived in an earlier process of this installation."""
        for owner in self._lost.owners(job):
            await self._engine.apply(job.job_id, BusRestarted(owner, kept=True))


def by_job(deliveries: Sequence[Delivery]) -> list[list[Delivery]]:
    """In order; what names no job stands alone."""
    groups: dict[object, list[Delivery]] = {}
    for delivery in deliveries:
        job_id = delivery.message.body.get("jobId")
        key = job_id if isinstance(job_id, str) else delivery.lock_token
        groups.setdefault(key, []).append(delivery)
    return list(groups.values())
