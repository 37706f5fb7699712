"""Directives that nobody takes: noted in their jobs, counted, said once for each service, and settled.

No job fails for it here: a service may be starting, so the ACK clock of the attempt still rules.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from lucius.core.bounds import ATTEMPT_NO
from lucius.core.effects import Committed, Outcome
from lucius.core.errors import BusUnavailableError, LockLostError
from lucius.core.inputs import DirectiveUnclaimed
from lucius.core.routing import LANES, TOPOLOGIES, every_directive_topic, lanes_of
from lucius.engines.outbox.engine import OutboxEngine
from lucius.engines.outbox.inbox import OUTAGE_PAUSE
from lucius.engines.outbox.observer import Incident, Observer
from lucius.engines.outbox.tasks import persistently
from lucius.ports.bus import Bus, Delivery, Subscription
from lucius.ports.lanes import Lanes
from lucius.telemetry.logs import message_fields

log = logging.getLogger("lucius.unclaimed")

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
            log.info("directives of %s are taken again", service)


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
            log.info("an unclaimed directive will be delivered again: %s", error)
        except Exception:
            self._observer.incident(Incident.TASK_FAILED, "unclaimed")
            log.exception("an unclaimed directive cannot be noted", extra=message_fields(body))

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
            log.warning(said, service, extra=message_fields(body))
