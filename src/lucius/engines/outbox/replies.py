"""What services answer, consumed on the owned lanes: replies become inputs, nudges a second look."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final

from lucius.core.errors import (
    BusUnavailableError,
    LedgerRowUnreadableError,
    LedgerUnavailableError,
    LockLostError,
    RequestError,
)
from lucius.core.inputs import Callback, HeartbeatReceived
from lucius.core.job import Job
from lucius.core.plan import TEMPORAL
from lucius.core.routing import LANES, lanes_of, reply_topic
from lucius.core.wire import ACK, NUDGE, parse_reply
from lucius.engines.outbox.early_acks import EarlyAcks
from lucius.engines.outbox.engine import OutboxEngine
from lucius.engines.outbox.notices import Notices
from lucius.engines.outbox.observer import Incident, Observer, Outage
from lucius.engines.outbox.outage import OUTAGE_PAUSE, persistently
from lucius.engines.outbox.tasks import Tasks
from lucius.ports.bus import Bus, Delivery, Subscription
from lucius.ports.lanes import Lanes
from lucius.telemetry.logs import message_fields
from lucius.telemetry.spans import applying_together

log = logging.getLogger("lucius.replies")

REPLIES: Final = "lucius-reconciler"
INVOKER_REPLIES: Final = "lucius-invoker"
"""The subscription of the processes that serve jobs on Temporal alone."""
BATCH: Final = 512
IDLE: Final = timedelta(seconds=30)
SILENCE: Final = 2 * IDLE
"""A receive that has not returned by then, not even empty, is given up and begun anew."""
LAST_WORDS: Final = timedelta(seconds=5)
"""How long the end of the process waits for replies that are on the bus."""

Guard = Callable[[Mapping[str, Any], str, Callback], str | None]
"""Checks the token of a reply: a reason to set it aside, or none."""


class ReplyConsumer:
    def __init__(
        self,
        engine: OutboxEngine,
        bus: Bus,
        tasks: Tasks,
        notices: Notices,
        ledger_outage: Outage,
        *,
        nudged: Callable[[str, bool], Awaitable[None]],
        lanes: Lanes,
        observer: Observer,
        guard: Guard,
        engine_name: str | None,
    ) -> None:
        """`nudged`: looks at a job that another process has moved.

        `engine_name`: whose replies are consumed; None: all. Processes of another engine have a
        subscription of their own, so what is theirs is passed over here.
        """
        self._engine = engine
        self._bus = bus
        self._tasks = tasks
        self._notices = notices
        self._ledger_outage = ledger_outage
        self._nudged = nudged
        self._lanes = lanes
        self._observer = observer
        self._guard = guard
        self._only = engine_name
        self._name = INVOKER_REPLIES if engine_name == TEMPORAL else REPLIES
        self._early = EarlyAcks(self._spawn)
        self._heard_at: dict[str, datetime] = {}
        """When the ACKs came that have waited, by their locks."""
        self._settling = 0
        self._settled = asyncio.Event()
        self._stalled: set[str] = set()
        """Locks of the replies that wait for the ledger; while there are any, none are received."""
        self.outage = Outage("bus", "replies pause", log)

    async def prepare(self) -> None:
        topics = map(reply_topic, range(LANES))
        await self._bus.ensure([Subscription(topic, self._name, by_topic=True) for topic in topics])

    async def run(self) -> None:
        while True:
            try:
                await self._consume()
                self.outage.ended()
            except (BusUnavailableError, LedgerUnavailableError, TimeoutError) as error:
                self.outage.began(error, self._observer)
                await asyncio.sleep(OUTAGE_PAUSE.total_seconds())

    async def _consume(self) -> None:
        if self._stalled:
            await asyncio.sleep(OUTAGE_PAUSE.total_seconds())
            return
        async with asyncio.timeout(SILENCE.total_seconds()):
            await self._lanes.until_change(self._take(IDLE))
        await self._settled_below(BATCH)

    async def _take(self, wait: timedelta) -> bool:
        """Begin to settle what the bus has. False: it has nothing."""
        topics = [reply_topic(lane) for lane in lanes_of(self._lanes.owned)]
        if not topics:
            await asyncio.sleep(wait.total_seconds())
            return False
        deliveries = await self._bus.receive(self._name, topics, BATCH, wait)
        self._settling += len(deliveries)
        for job_id, group in by_job(deliveries).items():
            together = self._early.joined(job_id, group)
            if len(together) == 1 and together[0].message.body.get("type") == ACK:
                self._wait_for_result(job_id, together)
            else:
                self._spawn(together)
        if self._settling >= BATCH:
            self._early.end()
        return bool(deliveries)

    def _wait_for_result(self, job_id: str, ack: Sequence[Delivery]) -> None:
        """The service has answered now, though its answer is saved later."""
        heard_at = self._engine.heard(str(ack[0].message.body.get("lease_id")))
        self._heard_at[ack[0].lock_token] = heard_at
        self._early.wait(job_id, ack)

    def _spawn(self, deliveries: Sequence[Delivery]) -> None:
        self._tasks.spawn(self._replies(deliveries))

    async def _settled_below(self, most: int) -> None:
        while self._settling >= most:
            self._settled.clear()
            await self._settled.wait()

    async def drained(self) -> None:
        """Settle what services have said so far: a volatile bus would take it along, RELEASE included.

        It is tried for a while only. What is lost then counts as a death.
        """
        with suppress(TimeoutError, BusUnavailableError):
            async with asyncio.timeout(LAST_WORDS.total_seconds()):
                if not self._bus.volatile:  # the next process receives what is on the bus
                    self._early.end()
                    await self._settled_below(1)
                    return
                while await self._take(timedelta()) or self._settling:
                    self._early.end()
                    await self._settled_below(1)

    async def _replies(self, deliveries: Sequence[Delivery]) -> None:
        """Replies about one job that came together: an ACK and its RESULT are one save."""
        try:
            await persistently(lambda: self._try_to_settle(deliveries))
        except (LockLostError, BusUnavailableError) as error:
            log.info("a reply will be delivered again: %s", error)
        finally:
            for delivery in deliveries:
                self._stalled.discard(delivery.lock_token)
                self._heard_at.pop(delivery.lock_token, None)
            self._settling -= len(deliveries)
            self._settled.set()

    async def _try_to_settle(self, deliveries: Sequence[Delivery]) -> None:
        """Settle them, and keep them while the ledger is away: given back too often, they pass for faulty."""
        try:
            await self._settle(deliveries)
        except LedgerUnavailableError as error:
            self._ledger_outage.began(error, self._observer)
            for delivery in deliveries:
                self._stalled.add(delivery.lock_token)
                self._heard_at.pop(delivery.lock_token, None)  # its lease begins when it is saved
            raise

    async def _settle(self, deliveries: Sequence[Delivery]) -> None:
        nudges = [d for d in deliveries if d.message.body.get("type") == NUDGE]
        if nudges:
            timer = any(delivery.message.body.get("timer") is True for delivery in nudges)
            await self._nudged(str(nudges[0].message.body.get("jobId")), timer)
            for delivery in nudges:
                await self._bus.complete(delivery)
        await self._apply([d for d in deliveries if d not in nudges])

    async def _apply(self, deliveries: Sequence[Delivery]) -> None:
        read = [(d, reply) for d in deliveries if (reply := await self._read(d)) is not None]
        if not read:
            return
        job_id = read[0][1][0]
        try:
            if (job := await self._engine.job(job_id)) is not None:
                read = [(d, reply) for d, reply in read if await self._concerns(d, job)]
            if read:
                await self._applied(job_id, [(d, received) for d, (_, received) in read])
        except LedgerRowUnreadableError as error:
            for delivery, _ in read:
                await self._set_aside(delivery, "JOB_UNREADABLE", str(error))

    async def _applied(self, job_id: str, replies: Sequence[tuple[Delivery, Callback]]) -> None:
        inputs = [received for _, received in replies]
        with applying_together((d.message.body, received) for d, received in replies):
            heard_at = [self._heard_at.get(d.lock_token) for d, _ in replies]
            applied = await self._engine.apply_all(job_id, inputs, heard_at)
        for received, answer in zip(inputs, applied or (), strict=False):
            if isinstance(received, HeartbeatReceived):
                self._notices.answer(received, answer.outcome, answer.job)
        for delivery, _ in replies:
            if applied is None:
                await self._set_aside(delivery, "UNKNOWN_JOB", f"there is no job {job_id}")
            else:
                await self._bus.complete(delivery)

    async def _read(self, delivery: Delivery) -> tuple[str, Callback] | None:
        """What a message says; one whose content is faulty is set aside."""
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

    async def _concerns(self, delivery: Delivery, job: Job) -> bool:
        """Whether a reply is about this job, and the job is moved here. Others are settled.

        A reply need not name a tenant. One that names another than its job's is not about that job.
        """
        if self._only is not None and job.plan.engine != self._only:
            await self._bus.complete(delivery)
            return False
        named = delivery.message.body.get("tenant_id")
        if named is None or named == job.tenant_id:
            return True
        detail = f"it names the tenant {str(named)[:128]!r}, and {job.job_id} is another tenant's"
        await self._set_aside(delivery, "WRONG_TENANT", detail)
        return False

    async def _set_aside(self, delivery: Delivery, reason: str, detail: str) -> None:
        self._observer.incident(Incident.REPLY_SET_ASIDE, reason)
        fields = message_fields(delivery.message.body)
        log.warning("a reply is set aside (%s): %s", reason, detail, extra=fields)
        await self._bus.dead_letter(delivery, reason, detail)


def by_job(deliveries: Sequence[Delivery]) -> dict[str, list[Delivery]]:
    """Replies by job, in order; one that names no job is a group of its own."""
    groups: dict[str, list[Delivery]] = {}
    for delivery in deliveries:
        job_id = delivery.message.body.get("jobId")
        key = job_id if isinstance(job_id, str) else f"?{delivery.lock_token}"
        groups.setdefault(key, []).append(delivery)
    return groups
