"""What services answer, consumed on the owned lanes: replies become inputs, nudges a second look."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from lucius.core.callbacks import BAD_TOKEN
from lucius.core.errors import (
    BusUnavailableError,
    LedgerRowUnreadableError,
    LedgerUnavailableError,
    LockLostError,
    RequestError,
)
from lucius.core.inputs import Callback, HeartbeatReceived, ReplyRefused
from lucius.core.job import Job
from lucius.core.plan import TEMPORAL
from lucius.core.routing import LANES, lanes_of, reply_topic
from lucius.core.wire import ACK, NUDGE, parse_reply
from lucius.engine.clock import Tasks
from lucius.engine.inbox import OUTAGE_PAUSE, Request, TimedInput
from lucius.engine.notices import Notices
from lucius.engine.observer import Incident, Observer, Outage
from lucius.engine.outbox import OutboxEngine
from lucius.engine.ticks import Ticks
from lucius.ports.bus import Bus, Delivery, Message, Subscription
from lucius.ports.engine import Applied
from lucius.ports.lanes import Lanes
from lucius.system.logs import message_fields
from lucius.system.spans import applying
from lucius.system.tracing import NoSpan, active

log = logging.getLogger("lucius.replies")

REPLIES: Final = "lucius-reconciler"
INVOKER_REPLIES: Final = "lucius-invoker"
"""The subscription of the processes that serve jobs on Temporal alone."""
BATCH: Final = 512
AT_ONCE: Final = 64
"""Deliveries that are settled at the same time, on a bus that is elsewhere."""
IDLE: Final = timedelta(seconds=30)
SILENCE: Final = 2 * IDLE
"""A receive that has not returned by then, not even empty, is given up and begun anew."""
LAST_WORDS: Final = timedelta(seconds=5)
"""How long the end of the process waits for replies that are on the bus."""
NO_LOCK: Final = ""
"""The lock of a reply that came without a bus."""
LOCK: Final = timedelta(seconds=60)
MOST_DELIVERIES: Final = 10
"""How such a reply comes again when it could not be applied: as it would on a bus."""
INVALID: Final = "INVALID_CALLBACK"
MOST_SAID: Final = 256
PATIENCE: Final = timedelta(milliseconds=100)
"""How long an ACK waits for its RESULT, so that one save holds both."""

Guard = Callable[[Mapping[str, Any], str, Callback], str | None]
"""Checks the token of a reply: a reason to set it aside, or none."""


class Came(NamedTuple):
    """A message under its lock, and when it came if it has waited since."""

    delivery: Delivery
    at: datetime | None = None


class Reply(NamedTuple):
    """What a message says, when it came if it has waited since, and why it is refused if it is."""

    delivery: Delivery
    received: Callback
    at: datetime | None
    refusal: str | None

    @property
    def input(self) -> TimedInput:
        if self.refusal is None:
            return self.received, self.at
        return ReplyRefused(self.received, self.refusal), None


class ReplyConsumer:
    """Takes replies from the bus, posts those of one job together, and settles them once they are saved."""

    def __init__(
        self,
        engine: OutboxEngine,
        bus: Bus,
        tasks: Tasks,
        notices: Notices,
        ticks: Ticks,
        ledger_outage: Outage,
        *,
        lanes: Lanes,
        observer: Observer,
        guard: Guard,
        engine_name: str | None,
    ) -> None:
        """`ticks`: what a nudge leads to.

        `engine_name`: whose replies are consumed; None: all. Processes of another engine have a
        subscription of their own, so what is theirs is passed over here.
        """
        self._engine = engine
        self._bus = bus
        self._tasks = tasks
        self._notices = notices
        self._ticks = ticks
        self._ledger_outage = ledger_outage
        self._lanes = lanes
        self._observer = observer
        self._guard = guard
        self._only = engine_name
        self._name = INVOKER_REPLIES if engine_name == TEMPORAL else REPLIES
        self._early = EarlyAcks(self._post)
        self._open = 0
        """Deliveries that are not settled yet."""
        self._unsorted: deque[Delivery] = deque()
        """Replies that came without a bus and wait for room, in order."""
        self._settled = asyncio.Event()
        self._stalled: set[int] = set()
        """Replies that wait for the ledger; while there are any, none are received."""
        self._ended: deque[tuple[Delivery, str | None, str]] = deque()
        """What is to be settled, and why it is set aside if it is."""
        self._settling = False
        self.outage = Outage("bus", "replies pause", log, observer)

    async def prepare(self) -> None:
        topics = map(reply_topic, range(LANES))
        await self._bus.ensure([Subscription(topic, self._name, by_topic=True) for topic in topics])

    # -- receiving ---------------------------------------------------------------------------

    async def run(self) -> None:
        while True:
            try:
                await self._consume()
                self.outage.ended()
            except (BusUnavailableError, LedgerUnavailableError, TimeoutError) as error:
                self.outage.began(error)
                await asyncio.sleep(OUTAGE_PAUSE.total_seconds())

    async def _consume(self) -> None:
        while self._stalled:
            await self._next_settled()
        async with asyncio.timeout(SILENCE.total_seconds()):
            await self._lanes.until_change(self._take(IDLE))
        await self._open_below(BATCH)

    async def _take(self, wait: timedelta) -> bool:
        """Post what the bus has. False: it has nothing."""
        topics = [reply_topic(lane) for lane in lanes_of(self._lanes.owned)]
        if not topics:
            await asyncio.sleep(wait.total_seconds())
            return False
        deliveries = await self._bus.receive(self._name, topics, BATCH, wait)
        self._sort(deliveries)
        return bool(deliveries)

    def came(self, bodies: Sequence[Mapping[str, Any]]) -> bool:
        """Take replies that came without a bus. False: these are enough until `until_capacity` returns."""
        self._unsorted += [
            Delivery(Message("", body), "", self._name, NO_LOCK, 1) for body in bodies
        ]
        self._sort_some()
        return self._has_capacity

    async def until_capacity(self) -> None:
        while not self._has_capacity:
            await self._next_settled()

    @property
    def _has_capacity(self) -> bool:
        return self._open < BATCH and not self._stalled

    def _sort_some(self) -> None:
        """As many at a time as a bus gives: so a flood delays nothing else for long."""
        while self._unsorted and self._has_capacity:
            many = min(BATCH, len(self._unsorted))
            self._sort([self._unsorted.popleft() for _ in range(many)])

    def _sort(self, deliveries: Sequence[Delivery]) -> None:
        """Post them by job. An ACK that comes alone waits a moment for its RESULT."""
        self._open += len(deliveries)
        for job_id, group in by_job(deliveries).items():
            together = self._early.joined(job_id, [Came(delivery) for delivery in group])
            body = group[0].message.body
            lease_id = body.get("lease_id") if body.get("type") == ACK else None
            if len(together) == 1 and isinstance(lease_id, str):
                # The service has answered now, though its answer is saved later.
                self._early.wait(job_id, [Came(group[0], self._engine.mark_answered(lease_id))])
            else:
                self._post(job_id, together)
        if self._open >= BATCH:
            self._early.end()

    def _post(self, job_id: str, came: Sequence[Came]) -> None:
        replies = ReplyGroup(self, job_id, came)
        given = (replies.inputs, replies.answered, replies.failed)
        self._engine.post(Request(job_id, *given, open=replies.open, fresh=replies.nudged))

    async def _open_below(self, most: int) -> None:
        while self._open >= most:
            await self._next_settled()

    async def _next_settled(self) -> None:
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
                    await self._open_below(1)
                    return
                while await self._take(timedelta()) or self._open:
                    self._early.end()
                    await self._open_below(1)

    # -- what they say -----------------------------------------------------------------------

    def read(self, delivery: Delivery) -> tuple[Callback, str | None] | None:
        """What a message says, and why it is refused if it is; one whose content is faulty is set aside."""
        body = delivery.message.body
        try:
            job_id, received = parse_reply(body)
            refusal = self._guard(body, job_id, received)
        except RequestError as error:
            detail = "; ".join(f"{pointer}: {what}" for pointer, what in error.faults)
            self.set_aside(delivery, error.code, detail)
            return None
        except Exception as error:  # too deep, for example: whatever it was, it concerns no other
            self.set_aside(delivery, INVALID, f"it cannot be read: {error!r}"[:MOST_SAID])
            return None
        if refusal is None:
            self._engine.mark_answered(received.lease_id)
        return received, refusal

    def applying(self, replies: Sequence[Reply]) -> list[NoSpan]:
        """A span for each, open until it is settled."""
        broker = self._bus.broker
        return [applying(each.delivery, broker) for each in replies]

    def concerns(self, reply: Reply, job: Job) -> bool:
        """Whether a reply is about this job, and the job is moved here. Others are settled.

        A reply need not name a tenant. One that names another than its job's is not about that job.
        One that is refused for its token is recorded in the job that it names.
        """
        if self._only is not None and job.plan.engine != self._only:
            self.end(reply.delivery)
            return False
        named = reply.delivery.message.body.get("tenant_id")
        if named is None or named == job.tenant_id or reply.refusal is not None:
            return True
        detail = f"it names the tenant {str(named)[:128]!r}, and {job.job_id} is another tenant's"
        self.set_aside(reply.delivery, "WRONG_TENANT", detail)
        return False

    def nudged(self, job: Job, *, timer: bool) -> Sequence[TimedInput]:
        return self._ticks.nudged(job, timer=timer)

    def beat(self, received: HeartbeatReceived, answer: Applied) -> None:
        self._notices.answer(received, answer.outcome, answer.job)

    # -- settling ----------------------------------------------------------------------------

    def set_aside(self, delivery: Delivery, reason: str, detail: str) -> None:
        self._observer.incident(Incident.REPLY_SET_ASIDE, reason)
        fields = message_fields(delivery.message.body)
        log.warning("a reply is set aside (%s): %s", reason, detail, extra=fields)
        self.end(delivery, reason, detail)

    def stall(self, deliveries: Sequence[Delivery], error: LedgerUnavailableError) -> None:
        """Keep them while the ledger is away: given back too often, they pass for faulty."""
        self._ledger_outage.began(error)
        self._stalled.update(id(delivery) for delivery in deliveries)

    def leave(self, delivery: Delivery) -> None:
        """It is settled, or will be delivered again."""
        self._stalled.discard(id(delivery))
        self._open -= 1
        self._sort_some()
        self._settled.set()

    def come_again(self, delivery: Delivery) -> None:
        """It failed, and nobody knows why. A bus delivers it again when its lock has run out."""
        if delivery.lock_token == NO_LOCK and delivery.count < MOST_DELIVERIES:
            again = [replace(delivery, count=delivery.count + 1)]
            asyncio.get_running_loop().call_later(LOCK.total_seconds(), self._sort, again)
        self.leave(delivery)

    def end(self, delivery: Delivery, reason: str | None = None, detail: str = "") -> None:
        """Settle it, or set it aside for that reason."""
        if delivery.lock_token == NO_LOCK:
            self.leave(delivery)
            return
        self._ended.append((delivery, reason, detail))
        if not self._settling:
            self._settling = True
            self._tasks.spawn(self._settle_all())

    async def _settle_all(self) -> None:
        """All that have ended, in one go. Each call takes its time where the bus is elsewhere."""
        try:
            while self._ended:
                ended, self._ended = self._ended, deque()
                if self._bus.volatile:  # it is in this process: no call takes time
                    await self._settle_each(ended)
                else:
                    many = range(min(AT_ONCE, len(ended)))
                    await asyncio.gather(*(self._settle_each(ended) for _ in many))
        finally:
            self._settling = False

    async def _settle_each(self, ended: deque[tuple[Delivery, str | None, str]]) -> None:
        while ended:
            delivery, reason, detail = ended.popleft()
            try:
                if reason is None:
                    await self._bus.complete(delivery)
                else:
                    await self._bus.dead_letter(delivery, reason, detail)
            except (LockLostError, BusUnavailableError) as error:
                log.info("a reply will be delivered again: %s", error)
            except Exception as error:
                self._tasks.report(error)
            finally:
                self.leave(delivery)


class ReplyGroup:
    """Messages about one job that came together: an ACK and its RESULT are one save."""

    __slots__ = (
        "_came",
        "_consumer",
        "_job_id",
        "_nudges",
        "_replies",
        "_spans",
        "_ticks",
        "nudged",
    )

    def __init__(self, consumer: ReplyConsumer, job_id: str, came: Sequence[Came]) -> None:
        self._consumer = consumer
        self._job_id = job_id
        self._came = came
        self.nudged = NUDGE in [delivery.message.body.get("type") for delivery, _ in came]
        self._nudges: list[Delivery] = []
        self._replies: list[Reply] = []
        self._ticks = 0
        self._spans: list[NoSpan] | None = None

    def open(self) -> bool:
        """Read the messages, once. Those that are faulty are set aside, and the job is not read for them."""
        came, self._came = self._came, ()
        for delivery, at in came:
            if delivery.message.body.get("type") == NUDGE:
                self._nudges.append(delivery)
            elif (read := self._consumer.read(delivery)) is not None:
                received, refusal = read
                self._replies.append(Reply(delivery, received, at, refusal))
        return bool(self._nudges or self._replies)

    def inputs(self, job: Job) -> Sequence[TimedInput]:
        self._replies = [each for each in self._replies if self._consumer.concerns(each, job)]
        if self._spans is None and active():
            self._spans = self._consumer.applying(self._replies)
        ticks: Sequence[TimedInput] = ()
        if self._nudges:
            timer = any(each.message.body.get("timer") is True for each in self._nudges)
            ticks = self._consumer.nudged(job, timer=timer)
        self._ticks = len(ticks)
        return [*ticks, *[reply.input for reply in self._replies]]

    def answered(self, job: Job | None, applied: Sequence[Applied]) -> None:
        for nudge in self._nudges:
            self._consumer.end(nudge)
        answers: Sequence[Applied | None] = applied[self._ticks :] or [None] * len(self._replies)
        for reply, answer in zip(self._replies, answers, strict=True):
            self._settle(reply, answer)
        for span in self._spans or ():
            span.end()

    def _settle(self, reply: Reply, answer: Applied | None) -> None:
        """No answer: there is no such job."""
        if reply.refusal is not None:
            self._consumer.set_aside(reply.delivery, BAD_TOKEN, reply.refusal)
        elif answer is None:
            detail = f"there is no job {self._job_id}"
            self._consumer.set_aside(reply.delivery, "UNKNOWN_JOB", detail)
        else:
            if isinstance(reply.received, HeartbeatReceived):
                self._consumer.beat(reply.received, answer)
            self._consumer.end(reply.delivery)

    def failed(self, error: BaseException) -> bool:
        deliveries = [*self._nudges, *(reply.delivery for reply in self._replies)]
        if isinstance(error, LedgerUnavailableError):
            self._consumer.stall(deliveries, error)
            # A lease begins when its ACK is saved: by then, that is not when it came.
            self._replies = [reply._replace(at=None) for reply in self._replies]
            return True
        for span in self._spans or ():
            span.failed(type(error).__name__)
            span.end()
        if isinstance(error, LedgerRowUnreadableError):
            for nudge in self._nudges:
                self._consumer.end(nudge)
            for reply in self._replies:
                self._consumer.set_aside(reply.delivery, "JOB_UNREADABLE", str(error))
            return False
        for delivery in deliveries:
            self._consumer.come_again(delivery)
        raise error


class EarlyAcks:
    """ACKs that wait a moment for their RESULT, so that one save holds both.

    A quick step sends its RESULT some milliseconds after its ACK. Saved alone, the ACK costs a commit
    that tells nobody anything for longer than that. Whatever else comes about the same job ends the wait.
    What waits is still locked on the bus, and comes again if the process dies. One timer serves all.
    """

    def __init__(self, due: Callable[[str, Sequence[Came]], None]) -> None:
        self._due = due
        self._waiting: dict[str, tuple[float, Sequence[Came]]] = {}
        """By job, in the order in which they came."""
        self._timer: asyncio.TimerHandle | None = None

    def joined(self, job_id: str, came: Sequence[Came]) -> Sequence[Came]:
        """What waits about this job, and then these. Nothing about the job waits any more."""
        waiting = self._waiting.pop(job_id, None)
        return came if waiting is None else [*waiting[1], *came]

    def wait(self, job_id: str, acks: Sequence[Came]) -> None:
        loop = asyncio.get_running_loop()
        self._waiting[job_id] = (loop.time() + PATIENCE.total_seconds(), acks)
        if self._timer is None:
            self._timer = loop.call_later(PATIENCE.total_seconds(), self._ring)

    def end(self) -> None:
        """Nobody waits any longer."""
        self._ring(all_of_them=True)

    def _ring(self, *, all_of_them: bool = False) -> None:
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting:
            job_id, (until, acks) = next(iter(self._waiting.items()))
            if until > loop.time() and not all_of_them:
                self._timer = loop.call_at(until, self._ring)
                return
            del self._waiting[job_id]
            self._due(job_id, acks)


def by_job(deliveries: Sequence[Delivery]) -> dict[str, list[Delivery]]:
    """Replies by job, in order; one that names no job is a group of its own."""
    groups: dict[str, list[Delivery]] = {}
    for delivery in deliveries:
        job_id = delivery.message.body.get("jobId")
        key = job_id if isinstance(job_id, str) else f"?{delivery.lock_token}"
        groups.setdefault(key, []).append(delivery)
    return groups
