"""The dispatcher publishes released directives, in batches by topic, and settles owed effects."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, TypedDict

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
    LedgerRowUnreadableError,
    LedgerTooNewError,
    PublishRefusedError,
    WorkflowsUnavailableError,
)
from lucius.core.inputs import EffectSettled, PublishConfirmed, PublishRefused, Redriven, Ticked
from lucius.core.job import EntryState, Fault, Job, Step, StepState
from lucius.core.record import Packed
from lucius.core.retry import PUBLISH_GRACE
from lucius.core.turn import ACK
from lucius.core.wire import directive, directive_properties, message_id
from lucius.engine.clock import Tasks
from lucius.engine.inbox import OUTAGE_PAUSE, unawaited, until_saved
from lucius.engine.loop import OwedDirective, OwedEffects
from lucius.engine.observer import Incident, Observer, Outage
from lucius.engine.outbox import OutboxEngine
from lucius.engine.releases import Releases
from lucius.engine.windows import Windows
from lucius.ports.bus import Bus, Message
from lucius.ports.config import Catalog
from lucius.ports.lanes import Lanes
from lucius.ports.ledger import Ledger
from lucius.ports.workflows import Workflows

# Publishing what is pending now: an operator's answer to a bus that has recovered.
#
# It hurries what waits and counts what became of it. It never goes past the maximum of attempts: a
# publish that is refused again uses one up, as at any other time.

MOST: Final = 10_000
"""Jobs looked at in one call, those that are due first."""
AT_ONCE: Final = 64
PATIENCE: Final = timedelta(seconds=5)
"""How long a call waits for the bus; what is not out by then is counted as pending."""
RECENT: Final = timedelta(seconds=2)
"""A publish that was asked for since then is on its way: asking again would only repeat it."""


class Retried(TypedDict):
    """`published`: the bus has it. `pending`: it still waits. `failed`: its attempts are used up."""

    published: int
    pending: int
    failed: int


class _Wait(NamedTuple):
    """A pending entry as it was found: the attempts used tell a later refusal from the one before."""

    place: int
    used: int


class OutboxRetry:
    def __init__(
        self,
        engine: OutboxEngine,
        ledger: Ledger,
        releases: Releases,
        catalog: Callable[[], Catalog],
        *,
        lanes: Lanes,
        now: Callable[[], datetime],
    ) -> None:
        self._engine = engine
        self._ledger = ledger
        self._releases = releases
        self._lanes = lanes
        self._now = now
        self._catalog = catalog
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def __call__(self) -> Retried:
        now = self._now()
        horizon = now + max(longest_backoff(self._catalog()), PUBLISH_GRACE)
        due = await self._ledger.due(horizon, self._lanes.owned, MOST)
        self._releases.pump_all()
        fates = [
            fate
            for found in await asyncio.gather(*(self._hurry(job.job_id, now) for job in due))
            for fate in found
        ]
        queues = await self._ledger.ready_queues(self._lanes.owned)
        return Retried(
            published=fates.count("published"),
            pending=fates.count("pending") + sum(queue.held for queue in queues),
            failed=fates.count("failed"),
        )

    async def _hurry(self, job_id: str, now: datetime) -> list[str]:
        """What became of each entry of the job that was waiting."""
        try:
            async with self._slots:
                job = await self._engine.job(job_id)
                waits = list(_waiting(job, now)) if job is not None else []
                if not waits:
                    return []
                applied = await self._engine.apply(job_id, Ticked(publish_now=True))
        except (LedgerRowUnreadableError, LedgerTooNewError):
            return []
        return await self._fates(applied.job, waits) if applied is not None else []

    async def _fates(self, job: Job, waits: list[_Wait]) -> list[str]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE.total_seconds()
        while True:
            fates = [_fate(job.steps[wait.place], wait) for wait in waits]
            left = deadline - loop.time()
            if None not in fates or left <= 0:
                return _without_queued(job, waits, fates)
            newer = await self._engine.wait(job.job_id, job.version, left)
            job = newer if newer is not None else job


def longest_backoff(catalog: Catalog) -> timedelta:
    """The longest backoff after a refused publish in the protocols that are in force."""
    steps = (step for protocol in catalog.protocols.values() for step in protocol.steps)
    return max(
        (wait for step in steps for wait in step.policy.publish_backoff), default=timedelta()
    )


def _waiting(job: Job, now: datetime) -> Iterator[_Wait]:
    """Entries that wait out a refusal, or were released and are not known to be sent."""
    for index, step in enumerate(job.steps):
        entry = step.entry
        if entry is None or step.state is not StepState.DISPATCHING:
            continue
        refused = entry.state is EntryState.HELD and entry.ready_at is not None
        asked_at = entry.asked_at
        unsent = step.out and asked_at is not None and asked_at + RECENT <= now
        if refused or unsent:
            yield _Wait(index, step.used)


def _fate(step: Step, wait: _Wait) -> str | None:
    """Whether the entry was published or has failed; None: that is not known yet."""
    if step.state is StepState.FAILED_FINAL:
        return "failed"
    if step.entry is not None and step.entry.state is EntryState.SENT:
        return "published"
    if step.held:
        return "pending" if step.used > wait.used else None
    return None if step.out else "withdrawn"


def _without_queued(job: Job, waits: list[_Wait], fates: list[str | None]) -> list[str]:
    """What waits for the window is counted in the ready queues, not here."""
    pairs = zip(waits, fates, strict=True)
    return [fate or "pending" for wait, fate in pairs if fate or not job.steps[wait.place].ready]


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
        self._engine.post(until_saved(job.job_id, refused))

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
                self._engine.post(unawaited(job_id, sent))
        self._set_timer()

    # -- other effects -----------------------------------------------------------------------

    async def _perform_forever(self) -> None:
        while True:
            for job, effect in await self._owed.others():
                match effect:
                    case LinkRedrive():
                        self._tasks.spawn(self._link(job, effect))
                    case NotifyClient():
                        self._tasks.spawn(self._notify_client(job, effect))
                    case SignalWorkflow() | StartWorkflow() if self._signaller is not None:
                        self._tasks.spawn(self._signaller.perform(job, effect))

    async def _link(self, job: Job, effect: LinkRedrive) -> None:
        await self._engine.apply(effect.job_id, Redriven(job.job_id))
        await self._engine.apply(job.job_id, EffectSettled(effect.owed_id, performed=True))

    async def _notify_client(self, job: Job, effect: NotifyClient) -> None:
        try:
            delivered = await self._notify(job, effect.owed_id, effect.url)
            settled = EffectSettled(effect.owed_id, performed=delivered)
        except EffectRefusedError as error:
            log.warning("the webhook of job %s is given up: %s", job.job_id, error)
            settled = EffectSettled(effect.owed_id, False, final=True, reason=str(error))
        except Exception as error:  # whatever it was, it uses up an attempt
            log.warning("the webhook of job %s failed: %r", job.job_id, error)
            reason = str(error) or repr(error)
            settled = EffectSettled(effect.owed_id, performed=False, reason=reason)
        await self._engine.apply(job.job_id, settled)
