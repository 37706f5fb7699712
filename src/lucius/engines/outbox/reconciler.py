"""The reconciler: ticks what is due, consumes replies, and takes up what an earlier process left."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final

from lucius.core.effects import Decision
from lucius.core.errors import (
    BusUnavailableError,
    LedgerRowUnreadableError,
    LedgerUnavailableError,
    LockLostError,
    RequestError,
)
from lucius.core.inputs import BusRestarted, Callback, Ticked
from lucius.core.job import Job
from lucius.core.record import evolve
from lucius.core.routing import reply_topic
from lucius.core.states import JobState, StepState
from lucius.core.wire import parse_reply
from lucius.engines.outbox.clock import LOOK, StallWatch
from lucius.engines.outbox.dispatcher import Dispatcher
from lucius.engines.outbox.engine import OutboxEngine
from lucius.engines.outbox.observer import Incident, Outage
from lucius.engines.outbox.outage import OUTAGE_PAUSE, persistently
from lucius.engines.outbox.unclaimed import UnclaimedReporter
from lucius.ports.bus import Bus, Delivery, Subscription
from lucius.ports.ledger import DueJob, JobQuery
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
        dispatcher: Dispatcher,
        bus: Bus,
        *,
        look: timedelta = IDLE,
        guard: Guard = lambda body, job_id, received: None,
        home: str = EMBEDDED,
        alive: str = EMBEDDED,
    ) -> None:
        """`home`: worker ids of all services that ever lived in this installation's process begin so.
        `alive`: those of the services that live in it now.
        """
        self._engine = engine
        self._dispatcher = dispatcher
        self._bus = bus
        self._look = look
        self._guard = guard
        self._home = home
        self._alive = alive
        self._unclaimed = UnclaimedReporter(engine, bus)
        self._topics = [reply_topic(lane) for lane in sorted(engine.lanes)]
        self._settling = 0
        self._settled = asyncio.Event()
        self._stalled: set[str] = set()
        """Locks of the replies that wait for the ledger; while there are any, none are received."""
        self._wake = asyncio.Event()
        self._next: datetime | None = None
        self._watch = StallWatch(engine.now, lambda: asyncio.get_running_loop().time())
        self.ticks = Outage("ledger", "ticks pause", log)
        self.replies = Outage("bus", "replies pause", log)
        engine.woken = self.woken
        if not bus.volatile:
            engine.listeners.append(self._listen)

    async def prepare(self) -> None:
        """Make the topology, take up what is out, and fill the ready queues."""
        topics = self._topics
        await self._bus.ensure([Subscription(topic, REPLIES, by_topic=True) for topic in topics])
        await self._unclaimed.prepare()
        await self._recover()
        await self._engine.ready.recover(self._engine.lanes)
        self._engine.pump_all()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._dispatcher.run())
            tasks.create_task(self._watch_forever())
            tasks.create_task(self._tick_forever())
            tasks.create_task(self._consume_forever())
            tasks.create_task(self._unclaimed.run())

    # -- what is due -------------------------------------------------------------------------

    def woken(self, due_at: datetime) -> None:
        if self._next is None or due_at < self._next:
            self._next = due_at
            self._wake.set()

    async def _watch_forever(self) -> None:
        """Look often, so that no stall that could matter falls between two looks."""
        while True:
            self._watch.deaf_until(self._engine.observer)
            await asyncio.sleep(LOOK.total_seconds())

    async def _tick_forever(self) -> None:
        while True:
            try:
                if await self.tick_due():
                    continue
                self._next = await self._engine.ledger.next_due(self._engine.lanes)
            except LedgerUnavailableError as error:
                self.ticks.began(error, self._engine.observer)
                await asyncio.sleep(OUTAGE_PAUSE.total_seconds())
                continue
            self.ticks.ended()
            self._wake.clear()
            pause = self._pause()
            try:
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            except TimeoutError:
                pass

    def _pause(self) -> float:
        if self._next is None:
            return self._look.total_seconds()
        left = (self._next - self._engine.now()).total_seconds()
        return min(max(left, 0.001), self._look.total_seconds())

    async def tick_due(self) -> bool:
        """Tick what is due now. False: nothing was, or nothing that is due could be moved."""
        deaf_until, now = self._watch.deaf_until(self._engine.observer), self._engine.now()
        due = await self._engine.ledger.due(now, self._engine.lanes, BATCH)
        moved = await asyncio.gather(*(self._tick(found, deaf_until) for found in due))
        if due and not any(moved):
            self._engine.observer.incident(Incident.STUCK, "due")
            log.error("due jobs do not move: %s", [found.job_id for found in due[:5]])
            await asyncio.sleep(OUTAGE_PAUSE.total_seconds())
        return any(moved)

    async def _tick(self, found: DueJob, deaf_until: datetime | None) -> bool:
        """One job that cannot be moved must not keep the others waiting."""
        known = self._engine.cache.get(found.job_id)
        if known is not None and known.due_at != found.due_at:
            self._engine.cache.drop(found.job_id)  # another process may have moved it
        try:
            queued = self._queued(await self._engine.job(found.job_id))
            ticked = Ticked(queued=queued, deaf_until=deaf_until)
            applied = await self._engine.apply(found.job_id, ticked)
        except LedgerUnavailableError:
            raise
        except LedgerRowUnreadableError:
            return True  # the ledger has named it, and leaves it out from now on
        except Exception:
            self._engine.observer.incident(Incident.TASK_FAILED, "tick")
            log.exception("a job cannot be ticked", extra={"jobId": found.job_id})
            return False
        return applied is not None and applied.job.due_at != found.due_at

    def _queued(self, job: Job | None) -> frozenset[str]:
        """Leases of the job that wait behind others, at a service that is at work."""
        if job is None:
            return frozenset()
        out = (step.executions[-1].exec_id for step in job.steps if step.unacked)
        return frozenset(filter(self._engine.windows.queued, out))

    # -- replies -----------------------------------------------------------------------------

    async def _consume_forever(self) -> None:
        while True:
            try:
                await self._consume()
                self.replies.ended()
            except (BusUnavailableError, LedgerUnavailableError, TimeoutError) as error:
                self.replies.began(error, self._engine.observer)
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
            await self._engine.pace.turn()
            self._engine.spawn(self._replies(together))
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
            self.ticks.began(error, self._engine.observer)
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
        self._engine.observer.incident(Incident.REPLY_SET_ASIDE, reason)
        fields = message_fields(delivery.message.body)
        log.warning("a reply is set aside (%s): %s", reason, detail, extra=fields)
        await self._bus.dead_letter(delivery, reason, detail)

    # -- the start ---------------------------------------------------------------------------

    async def _recover(self) -> None:
        """Whatever was out when an earlier process ended, however long its leases still run."""
        query, taken_up = JobQuery(states=DELIVERING, limit=AT_ONCE), 0
        while True:
            page = await self._engine.ledger.list(query)
            left = [job for job in page.jobs if self._left_out(job)]
            await asyncio.gather(*(self._take_up(job) for job in left))
            taken_up += len(left)
            if page.next_cursor is None:
                break
            query = evolve(query, cursor=page.next_cursor)
        if taken_up:
            log.info("took up %d jobs of an earlier process", taken_up)

    def _left_out(self, job: Job) -> bool:
        return job.plan.routing.lane in self._engine.lanes and any(step.out for step in job.steps)

    async def _take_up(self, job: Job) -> None:
        """A volatile bus has lost it: publish again. One that cannot be moved must not stop the start."""
        try:
            self._engine.recovered(job)
            if self._bus.volatile:
                await self._engine.apply(job.job_id, BusRestarted(EMBEDDED))
            else:
                await self._bury(job)
        except LedgerUnavailableError:
            raise
        except LedgerRowUnreadableError:
            return  # the ledger has named it
        except Exception:
            self._engine.observer.incident(Incident.TASK_FAILED, "recovery")
            log.exception("a job cannot be taken up", extra={"jobId": job.job_id})

    def _listen(self, before: Job | None, decision: Decision) -> None:
        """A durable bus may still hold the ACK of a service that has died meanwhile."""
        if self._dead_owners(decision.job):
            self._engine.spawn(self._bury(decision.job))

    async def _bury(self, job: Job) -> None:
        """End the leases of services that lived in an earlier process of this installation."""
        for owner in self._dead_owners(job):
            await self._engine.apply(job.job_id, BusRestarted(owner, kept=True))

    def _dead_owners(self, job: Job) -> set[str]:
        if self._home == self._alive:
            return set()
        at_work = (step for step in job.steps if step.state is StepState.IN_PROGRESS)
        owners = {step.executions[-1].lease_owner or "" for step in at_work}
        return {o for o in owners if o.startswith(self._home) and not o.startswith(self._alive)}


def by_job(deliveries: Sequence[Delivery]) -> list[list[Delivery]]:
    """In order; what names no job stands alone."""
    groups: dict[object, list[Delivery]] = {}
    for delivery in deliveries:
        job_id = delivery.message.body.get("jobId")
        key = job_id if isinstance(job_id, str) else delivery.lock_token
        groups.setdefault(key, []).append(delivery)
    return list(groups.values())
