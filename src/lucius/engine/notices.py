"""What others are told over the bus: workers that their lease is over, owners of lanes that a job was moved.

Both may be lost. Whoever beats its heart over the bus afterwards is told again, and an owner finds by itself
what is due.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NoReturn

from lucius.core.effects import Committed, Outcome
from lucius.core.errors import BusUnavailableError, LockLostError, PublishRefusedError
from lucius.core.inputs import DirectiveUnclaimed, HeartbeatReceived
from lucius.core.job import AbortReason, Execution, ExecutionState, Job, JobState, Step
from lucius.core.limits import ATTEMPT_NO
from lucius.core.routing import LANES, TOPOLOGIES, every_directive_topic, lanes_of, reply_topic
from lucius.core.wire import CANCEL, LEASE_ENDED, notice, nudge
from lucius.engine.clock import persistently
from lucius.engine.inbox import OUTAGE_PAUSE
from lucius.engine.observer import Incident, Observer
from lucius.engine.outbox import OutboxEngine
from lucius.ports.bus import Bus, Delivery, Message, Subscription
from lucius.ports.lanes import Lanes
from lucius.system.logs import message_fields

# Directives that nobody takes: noted in their jobs, counted, said once for each service, and settled.
#
# No job fails for it here: a service may be starting, so the ACK clock of the attempt still rules.

unclaimed_log = logging.getLogger("lucius.unclaimed")

UNCLAIMED: Final = "lucius-unclaimed"
UNKNOWN: Final = "unknown"
"""Stands for the service of a directive whose job or step is not known here."""
BATCH: Final = 32
"""Directives taken at once. Few, because each waits for the ledger while that is away."""
IDLE: Final = timedelta(seconds=30)
SILENCE: Final = 2 * IDLE
QUIET: Final = timedelta(minutes=1)
"""An ACK so long after the last unclaimed directive means that the service is back."""


class UnclaimedServices:
    """Services whose directives nobody takes. It listens to commits: an ACK tells that it is over."""

    def __init__(self) -> None:
        self._left: dict[str, datetime] = {}
        """By service that is warned about: when a directive was last left unclaimed."""

    def services(self) -> list[str]:
        return list(self._left)

    def leave(self, service: str, at: datetime) -> bool:
        """Note that a directive of the service was left unclaimed. True: this is the first one."""
        news = service not in self._left
        self._left[service] = at
        return news

    def listen(self, commit: Committed) -> None:
        if self._left:
            job = commit.job
            for planned, step in zip(job.plan.steps, job.steps, strict=True):
                if step.execution is not None and step.execution.started_at is not None:
                    self._taken(planned.service, step.execution.started_at)

    def _taken(self, service: str, at: datetime) -> None:
        left_at = self._left.get(service)
        if left_at is not None and at >= left_at + QUIET:
            del self._left[service]
            unclaimed_log.info("directives of %s are taken again", service)


class UnclaimedReporter:
    """Takes what no subscription of the engine's lanes takes, whatever topology a job was routed by."""

    def __init__(
        self,
        engine: OutboxEngine,
        bus: Bus,
        services: UnclaimedServices,
        *,
        lanes: Lanes,
        topologies: Sequence[str] = TOPOLOGIES,
        now: Callable[[], datetime],
        observer: Observer,
    ) -> None:
        self._engine = engine
        self._bus = bus
        self._services = services
        self._lanes = lanes
        self._topologies = topologies
        self._now = now
        self._observer = observer

    async def prepare(self) -> None:
        await self._bus.ensure(
            [
                Subscription(topic, UNCLAIMED, catch_all=True, by_topic=True)
                for topic in every_directive_topic(range(LANES), self._topologies)
            ]
        )

    async def run(self) -> None:
        """Take unclaimed directives for ever. Outages are logged by the consumer of replies, not here."""
        while True:
            try:
                async with asyncio.timeout(SILENCE.total_seconds()):
                    found = await self._lanes.until_change(self._receive()) or ()
            except (BusUnavailableError, TimeoutError):
                await asyncio.sleep(OUTAGE_PAUSE.total_seconds())
                continue
            await asyncio.gather(*(self._take(delivery) for delivery in found))

    async def _receive(self) -> Sequence[Delivery]:
        topics = every_directive_topic(lanes_of(self._lanes.owned), self._topologies)
        if not topics:
            await asyncio.sleep(IDLE.total_seconds())
            return ()
        return await self._bus.receive(UNCLAIMED, topics, BATCH, IDLE)

    async def _take(self, delivery: Delivery) -> None:
        """Note each directive in its job. One that cannot be noted does not keep the others waiting."""
        body = delivery.message.body
        try:
            service = await persistently(lambda: self._noted(body))
            if service is not None:
                self._report(service, body)
            await self._bus.complete(delivery)
        except (LockLostError, BusUnavailableError) as error:
            unclaimed_log.info("an unclaimed directive will be delivered again: %s", error)
        except Exception:
            self._observer.incident(Incident.TASK_FAILED, "unclaimed")
            unclaimed_log.exception(
                "an unclaimed directive cannot be noted", extra=message_fields(body)
            )

    async def _noted(self, body: Mapping[str, Any]) -> str | None:
        """The service by the plan of the job, or `UNKNOWN`. None: its attempt waits no more."""
        job_id, step_id, lease_id = (
            str(body.get(name)) for name in ("jobId", "stepId", "lease_id")
        )
        attempt_no = ATTEMPT_NO.read(body.get("attempt_no")) or 0
        unclaimed = DirectiveUnclaimed(step_id, attempt_no, lease_id)
        applied = await self._engine.apply(job_id, unclaimed)
        if applied is None or applied.outcome is Outcome.REJECTED:
            return UNKNOWN
        if applied.outcome is Outcome.ALREADY:
            return None
        plan = applied.job.plan
        return next(step.service for step in plan.steps if step.step_id == step_id)

    def _report(self, service: str, body: Mapping[str, Any]) -> None:
        self._observer.incident(Incident.UNCLAIMED, service)
        if self._services.leave(service, self._now()):
            said = "nobody takes directives of %s: no service is subscribed to them"
            unclaimed_log.warning(said, service, extra=message_fields(body))


log = logging.getLogger("lucius.notices")
AT_ONCE: Final = 64
"""Notices that are sent at the same time."""

Tokens = Callable[[str, str, str, int, str], Sequence[str]]
"""Tenant, job, step, attempt and lease: the callback token under every key that may have signed it."""


class Notices:
    """`here`: what the ids of workers begin with that this process has started. They are told directly."""

    def __init__(self, bus: Bus, observer: Observer, tokens: Tokens, here: str) -> None:
        self._bus = bus
        self._observer = observer
        self._tokens = tokens
        self._here = here
        self._owed: list[tuple[str, Message]] = []
        self._some = asyncio.Event()

    def listen(self, commit: Committed) -> None:
        """Hears of every commit: a cancelled job's workers are told once."""
        before, job = commit.before, commit.job
        if before is None or job.cancel_requested_at is None:
            return
        asked_before = before.cancel_requested_at is not None
        for planned, old, new in zip(job.plan.steps, before.steps, job.steps, strict=True):
            execution = new.execution
            if execution is None:
                continue
            if _at_work(new) and not (asked_before and _at_work(old)):
                self._put(CANCEL, job, planned.step_id, execution)
            elif _at_work(old) and execution.reason is AbortReason.CANCELLED:
                self._put(LEASE_ENDED, job, planned.step_id, execution)

    def answer(self, received: HeartbeatReceived, outcome: Outcome, job: Job) -> None:
        """What a heartbeat over HTTP would be answered with; nothing where all is well."""
        worker = received.worker_id
        if worker is None or outcome is Outcome.REJECTED:
            return
        attempt = (job.job_id, received.step_id, received.attempt_no, received.lease_id)
        if outcome is Outcome.STALE:
            self._send_notice(LEASE_ENDED, worker, job.tenant_id, attempt)
        elif job.cancel_requested_at is not None or job.terminal:
            self._send_notice(CANCEL, worker, job.tenant_id, attempt)

    def _put(self, kind: str, job: Job, step_id: str, execution: Execution) -> None:
        if execution.lease_owner is not None:
            attempt = (job.job_id, step_id, execution.attempt_no, execution.exec_id)
            self._send_notice(kind, execution.lease_owner, job.tenant_id, attempt)

    def _send_notice(
        self, kind: str, worker: str, tenant_id: str, attempt: tuple[str, str, int, str]
    ) -> None:
        if not worker.startswith(self._here):
            tokens = self._tokens(tenant_id, *attempt)
            self._owed.append((worker, Message(*notice(kind, attempt, tokens))))
            self._some.set()

    async def run(self) -> NoReturn:
        while True:
            while not self._owed:
                self._some.clear()
                await self._some.wait()
            now, self._owed = self._owed[:AT_ONCE], self._owed[AT_ONCE:]
            await asyncio.gather(*(self._send(worker, message) for worker, message in now))

    async def _send(self, worker: str, message: Message) -> None:
        try:
            await self._bus.send_notice(worker, message)
        except Exception as error:  # the address is a worker's own word: it concerns no other
            self._observer.incident(Incident.NOTICE_LOST, "bus")
            log.info("%s is not told of %s: %r", worker, message.message_id, error)


def _at_work(step: Step) -> bool:
    return step.execution is not None and step.execution.state is ExecutionState.IN_PROGRESS


nudge_log = logging.getLogger("lucius.nudges")


class Nudges:
    def __init__(self, bus: Bus, observer: Observer, lanes: Lanes) -> None:
        self._bus = bus
        self._observer = observer
        self._lanes = lanes
        self._jobs: dict[str, Job] = {}
        """By job: its newest version."""
        self._timers: set[str] = set()
        """Jobs whose workflow has a timer that fired."""
        self._some = asyncio.Event()

    def listen(self, commit: Committed) -> None:
        """A job of somebody else's lane was moved here, and not only its lease extended.

        So it is where the lane was lost during the save: its new owner may not know.
        """
        job = commit.job
        if commit.decision.events and job.state is not JobState.QUEUED:
            if job.plan.shard not in self._lanes.owned:
                self.put(job)

    def put(self, job: Job, *, timer: bool = False) -> None:
        self._jobs[job.job_id] = job
        if timer:
            self._timers.add(job.job_id)
        self._some.set()

    async def run(self) -> NoReturn:
        while True:
            while not self._jobs:
                self._some.clear()
                await self._some.wait()
            by_lane: dict[int, list[Message]] = {}
            for job in self._jobs.values():
                lane, timer = job.plan.routing.lane, job.job_id in self._timers
                message = Message(*nudge(job.job_id, job.version, lane, timer=timer))
                by_lane.setdefault(lane, []).append(message)
            self._jobs.clear()
            self._timers.clear()
            await asyncio.gather(*(self._send(lane, each) for lane, each in by_lane.items()))

    async def _send(self, lane: int, messages: Sequence[Message]) -> None:
        try:
            await self._bus.publish(reply_topic(lane), messages)
        except (BusUnavailableError, PublishRefusedError) as error:
            self._observer.incident(Incident.NUDGE_LOST, "bus")
            nudge_log.info("owners will find %d jobs by themselves: %s", len(messages), error)
