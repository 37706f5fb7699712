"""The dispatcher publishes released directives, in batches by topic, and settles owed effects."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final

import orjson

from lucius.core.effects import (
    LinkRedrive,
    NotifyClient,
    PublishDirective,
    SignalWorkflow,
    StartWorkflow,
)
from lucius.core.errors import (
    BusUnavailableError,
    EffectRefusedError,
    PublishRefusedError,
    WorkflowsUnavailableError,
)
from lucius.core.inputs import EffectSettled, PublishConfirmed, PublishRefused, Redriven
from lucius.core.job import Fault, Job
from lucius.core.packed import Packed
from lucius.core.turn import ACK
from lucius.core.wire import directive, directive_properties, message_id
from lucius.engines.outbox.engine import OutboxEngine
from lucius.engines.outbox.inbox import OUTAGE_PAUSE, kept, told
from lucius.engines.outbox.loop import OwedDirective, OwedEffects
from lucius.engines.outbox.observer import Incident, Observer, Outage
from lucius.engines.outbox.releases import Releases
from lucius.engines.outbox.tasks import Tasks
from lucius.engines.outbox.windows import Windows
from lucius.ports.bus import Bus, Message
from lucius.ports.workflows import Workflows

signal_log = logging.getLogger("lucius.signaller")

ACK_DELAY: Final = timedelta(seconds=1)
"""How long the signal of an ACK waits: the RESULT that may follow tells the workflow the same."""
SETTLE_DELAY: Final = timedelta(seconds=1)
"""How long a delivered signal stays owed: the next question of its workflow usually settles it before."""


class Signaller:
    def __init__(
        self,
        engine: OutboxEngine,
        workflows: Workflows,
        *,
        starts: bool,
        observer: Observer,
    ) -> None:
        """`starts`: whether workflows are started here; else by orchestrators alone."""
        self._engine = engine
        self._workflows = workflows
        self._starts = starts
        self._observer = observer

    async def perform(self, job: Job, effect: SignalWorkflow | StartWorkflow) -> None:
        """Start or signal the workflow. What cannot be delivered now stays owed."""
        try:
            if isinstance(effect, SignalWorkflow):
                await self._signal(job, effect)
            elif self._starts:
                await self._workflows.start(job)  # settled by the first thing that it asks for
        except WorkflowsUnavailableError as error:
            cause = "start" if isinstance(effect, StartWorkflow) else "signal"
            self._observer.incident(Incident.WORKFLOW_UNREACHED, cause)
            signal_log.info("the workflow of job %s is told later: %s", job.job_id, error)

    async def _signal(self, job: Job, effect: SignalWorkflow) -> None:
        """A workflow that has ended needs no signal."""
        newest: Job | None = job
        if effect.signal == ACK:
            newest = await self._still_owing(job, effect, ACK_DELAY)
        if newest is None:
            return
        await self._workflows.signal(newest, effect)
        if job.terminal or await self._still_owing(job, effect, SETTLE_DELAY) is not None:
            await self._engine.apply(job.job_id, EffectSettled(effect.owed_id, performed=True))

    async def _still_owing(self, job: Job, effect: SignalWorkflow, delay: timedelta) -> Job | None:
        """The job after a pause, if the signal is still owed; None: something else has told the workflow."""
        await asyncio.sleep(delay.total_seconds())
        newest = await self._engine.job(job.job_id)
        owed = newest.owed if newest is not None else ()
        return newest if any(each.owed_id == effect.owed_id for each in owed) else None


log = logging.getLogger("lucius.dispatcher")

SENT_DELAY: Final = timedelta(seconds=1)
"""An ACK usually proves the publish before this is over; only what is still open then is written."""
LOOK: Final = timedelta(seconds=15)
"""How often an invoker looks for attempts of which it has heard nothing."""
BATCH: Final = 256
LARGE: Final = 4096
"""A payload of more bytes stays packed JSON while its directive waits on a bus in this process."""

Decorate = Callable[[dict[str, Any]], dict[str, Any]]
Notify = Callable[[Job, str, str], Awaitable[bool]]
"""Job, id of the owed effect, address: whether the client has taken it."""


class Dispatcher:
    """Takes what is owed. `decorate` completes a directive, `notify` calls the webhook of a client."""

    def __init__(
        self,
        engine: OutboxEngine,
        bus: Bus,
        owed: OwedEffects,
        releases: Releases,
        windows: Windows,
        tasks: Tasks,
        *,
        observer: Observer,
        decorate: Decorate,
        notify: Notify,
        signaller: Signaller | None,
    ) -> None:
        """`signaller`: of jobs on Temporal. A process without it leaves their workflows alone."""
        self._engine = engine
        self._bus = bus
        self._owed = owed
        self._releases = releases
        self._windows = windows
        self._tasks = tasks
        self._observer = observer
        self._decorate = decorate
        self._notify = notify
        self._signaller = signaller
        self._sent: deque[tuple[float, str, PublishConfirmed]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self.outage = Outage("bus", "dispatch pauses", log, observer)

    def close(self) -> None:
        """The process is about to end: nothing more is released or published before the next start."""
        self._closed = True
        self._windows.close()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._publish_forever())
            tasks.create_task(self._perform_forever())
            if self._signaller is not None:
                tasks.create_task(self._look_forever())

    async def _look_forever(self) -> None:
        """Any invoker may take the ACK of what another one published, also where lanes are not leased."""
        while True:
            await asyncio.sleep(LOOK.total_seconds())
            self._releases.look_again()

    # -- publishing --------------------------------------------------------------------------

    async def _publish_forever(self) -> None:
        while True:
            while self._closed or not self._owed.has_directives:
                if not self._closed:
                    self._reopen()
                await self._owed.directive_came()
            batches: dict[str, list[OwedDirective]] = {}
            for job, effect in self._owed.directives(BATCH):
                if self._windows.is_open(effect.lease_id):
                    batches.setdefault(job.plan.routing.topic, []).append((job, effect))
            for topic, batch in batches.items():
                await self._publish(topic, batch)

    async def _publish(self, topic: str, batch: list[OwedDirective]) -> None:
        try:
            await self._bus.publish(topic, [self._message(job, effect) for job, effect in batch])
        except PublishRefusedError as error:
            self._available()  # it answers
            if len(batch) > 1:
                for single in batch:
                    await self._publish(topic, [single])
            else:
                self._refused(*batch[0], error)
        except BusUnavailableError as error:
            await self._outage(error, batch)
        else:
            self._available()
            due = asyncio.get_running_loop().time() + SENT_DELAY.total_seconds()
            for job, effect in batch:
                self._windows.published(effect.lease_id)
                sent = PublishConfirmed(effect.step_id, effect.attempt_no, effect.lease_id)
                self._sent.append((due, job.job_id, sent))
            self._set_timer()

    async def publish(
        self, job: Job, effect: PublishDirective
    ) -> PublishConfirmed | PublishRefused:
        """Publish now, and say how it went. BusUnavailableError: nobody knows, so ask for the same again."""
        bound = (effect.step_id, effect.attempt_no, effect.lease_id)
        try:
            await self._bus.publish(job.plan.routing.topic, [self._message(job, effect)])
        except PublishRefusedError as error:
            self._available()
            return PublishRefused(*bound, Fault("PUBLISH_REFUSED", str(error)))
        except BusUnavailableError as error:
            self.outage.began(error)
            self._windows.close()
            asyncio.get_running_loop().call_later(OUTAGE_PAUSE.total_seconds(), self._reopen)
            raise
        self._available()
        self._windows.published(effect.lease_id)
        return PublishConfirmed(*bound)

    def _message(self, job: Job, effect: PublishDirective) -> Message:
        """PublishRefusedError: this directive cannot be rendered, and no other is concerned."""
        try:
            return self._rendered(job, effect)
        except Exception as error:
            raise PublishRefusedError(f"the directive cannot be rendered: {error!r}") from error

    def _rendered(self, job: Job, effect: PublishDirective) -> Message:
        body = directive(job, effect.step_id, effect.attempt_no, effect.lease_id)
        payload = job.plan.payload
        if self._bus.volatile and isinstance(payload, Packed) and len(payload.text) > LARGE:
            body["payload"] = Packed(orjson.dumps(body["payload"]))
        name = message_id(
            job.job_id, effect.step_id, effect.attempt_no, effect.lease_id, "DIRECTIVE"
        )
        return Message(name, self._decorate(body), directive_properties(body))

    def _refused(self, job: Job, effect: PublishDirective, error: Exception) -> None:
        fault = Fault("PUBLISH_REFUSED", str(error))
        refused = PublishRefused(effect.step_id, effect.attempt_no, effect.lease_id, fault)
        self._engine.post(kept(job.job_id, refused))

    async def _outage(self, error: Exception, batch: list[OwedDirective]) -> None:
        """Unknown is not failed: nothing new is released, and the same attempts are published again."""
        self.outage.began(error)
        self._windows.close()
        self._owed.put_back(batch)
        await asyncio.sleep(OUTAGE_PAUSE.total_seconds())

    def _available(self) -> None:
        if self.outage.on:
            self._reopen()
            self.outage.ended()

    def _reopen(self) -> None:
        """Open the windows: the bus is back, or nothing is left to publish that could show it."""
        if self.outage.on and self._windows.closed and not self._closed:
            self._windows.reopen()
            self._releases.pump_all()

    def _set_timer(self) -> None:
        """One timer, for what is next to be confirmed."""
        if self._sent and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(self._sent[0][0], self._confirm)

    def _confirm(self) -> None:
        """Write SENT for what was published and is still not acknowledged: its ACK clock starts."""
        self._timer, now = None, asyncio.get_running_loop().time()
        while self._sent and self._sent[0][0] <= now:
            _, job_id, sent = self._sent.popleft()
            if self._windows.is_open(sent.lease_id):
                self._engine.post(told(job_id, sent))
        self._set_timer()

    # -- other effects -----------------------------------------------------------------------

    async def _perform_forever(self) -> None:
        while True:
            for job, effect in await self._owed.others():
                match effect:
                    case LinkRedrive():
                        self._tasks.spawn(self._link(job, effect))
                    case NotifyClient():
                        self._tasks.spawn(self._tell(job, effect))
                    case SignalWorkflow() | StartWorkflow() if self._signaller is not None:
                        self._tasks.spawn(self._signaller.perform(job, effect))

    async def _link(self, job: Job, effect: LinkRedrive) -> None:
        await self._engine.apply(effect.job_id, Redriven(job.job_id))
        await self._engine.apply(job.job_id, EffectSettled(effect.owed_id, performed=True))

    async def _tell(self, job: Job, effect: NotifyClient) -> None:
        try:
            delivered = await self._notify(job, effect.owed_id, effect.url)
            settled = EffectSettled(effect.owed_id, performed=delivered)
        except EffectRefusedError as error:
            log.warning("the webhook of job %s is given up: %s", job.job_id, error)
            settled = EffectSettled(effect.owed_id, False, final=True, reason=str(error))
        except Exception as error:  # whatever it was, it uses up an attempt
            log.warning("the webhook of job %s failed: %r", job.job_id, error)
            settled = EffectSettled(effect.owed_id, performed=False)
        await self._engine.apply(job.job_id, settled)
