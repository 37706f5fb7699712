"""The runner of a service: receives directives into free slots only, restarts what falls silent, drains."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import uuid4

from lucius.core.errors import BusError
from lucius.core.limits import SLOTS as MOST_SLOTS
from lucius.core.routing import directive_topics
from lucius.core.wire import CANCEL, LEASE_ENDED
from lucius.platform.bodies import Body, InAThread, OnTheLoop, ServiceInstruments
from lucius.platform.chaos import Chaos, ChaoticBody, ChaoticBus, ChaoticReplies
from lucius.platform.commit import Commits
from lucius.platform.execution import Attempt, Kit
from lucius.platform.isolation.forks import ForkServer
from lucius.platform.isolation.pool import InProcesses
from lucius.platform.lease import Backoff, LeaseTimer
from lucius.platform.messages import BusReplies, Replies, utc_text
from lucius.platform.records import MemoryRecords, Records
from lucius.platform.service import Service, slots_of
from lucius.ports.bus import Bus, Delivery, Property, Subscription
from lucius.ports.workspace import Workspace
from lucius.system.tracing import adopt_provider

log = logging.getLogger("lucius.platform.runner")
SLOTS: Final = 8
WAIT: Final = timedelta(seconds=20)
"""How long one receive waits for messages."""
SILENCE: Final = timedelta(seconds=10)
"""A receive that is this late is taken for dead and begun again."""
RELEASE_TIME: Final = 3.0
"""How long giving leases back may take, and then ending what ignores that."""


@dataclass(frozen=True, slots=True)
class Health:
    """`silent_seconds`: since the bus last answered. `outage`: why it does not, if it does not."""

    free_slots: int
    running: int
    silent_seconds: float
    outage: str | None


class ServiceRunner:
    """`slots` is how many steps run at once; a directive is only received into a free one.

    A process-isolated service has as many as it has processes, unless `slots` says otherwise.
    `forks` starts those; a process with several services has one for all of them.
    `chaos` breaks on purpose what goes in and out, and where `execute()` runs.
    """

    def __init__(
        self,
        service: Service,
        bus: Bus,
        workspace: Workspace,
        *,
        slots: int | None = None,
        forks: ForkServer | None = None,
        worker_id: str | None = None,
        topics: Sequence[str] | None = None,
        filters: Mapping[str, tuple[Property, ...]] | None = None,
        subscription: str | None = None,
        grace: timedelta = timedelta(seconds=10),
        replies: Replies | None = None,
        records: Records | None = None,
        commits: Commits | None = None,
        clock: Callable[[], datetime] | None = None,
        instruments: ServiceInstruments | None = None,
        chaos: Chaos | None = None,
    ) -> None:
        free = slots or slots_of(service, SLOTS)
        self._own_forks = ForkServer() if forks is None else None
        body, replies = body_of(service, forks or self._own_forks), replies or BusReplies(bus)
        if chaos is not None:
            body, bus = ChaoticBody(body, chaos), ChaoticBus(bus, chaos)
            replies = ChaoticReplies(replies, chaos)
        self._kit = Kit(
            service,
            body,
            bus,
            workspace,
            replies,
            records or MemoryRecords(),
            commits or Commits(workspace),
            worker_id or new_worker_id(service),
            utc_text if clock is None else lambda: clock().isoformat(),
            instruments or ServiceInstruments(),
            LeaseTimer(),
            {"slots": min(free, MOST_SLOTS.high), "version": str(service.version)},
        )
        self._name = subscription or service.name
        self._task_name = f"execute {service.name}"
        self._topics = tuple(topics or directive_topics("shared"))
        self._filters = {"step_type": tuple(service.step_types), **(filters or {})}
        self._grace = grace.total_seconds()
        self._free = free
        self._freed = asyncio.Event()
        self._running: dict[asyncio.Task[None], Attempt] = {}
        self._receiver: asyncio.Task[None] | None = None
        self._listener: asyncio.Task[None] | None = None
        self._answered_at = 0.0
        self._outage: str | None = None

    @property
    def worker_id(self) -> str:
        return self._kit.worker_id

    @property
    def name(self) -> str:
        """The service's."""
        return self._kit.service.name

    def health(self) -> Health:
        silent = asyncio.get_running_loop().time() - self._answered_at
        return Health(self._free, len(self._running), silent, self._outage)

    def request_cancel(self, job_id: str) -> None:
        """Tell the running steps of a job that it is being cancelled."""
        for execution in self._running.values():
            if execution.job_id == job_id:
                execution.request_cancel()

    def end_lease(self, lease_id: str) -> None:
        """The orchestrator has ended this lease: whoever works under it stops and commits nothing."""
        for task, execution in tuple(self._running.items()):
            if execution.lease_id == lease_id:
                execution.end(task)

    async def _receive_notices_forever(self) -> None:
        """Without notices the service works on: it hears of a cancellation later, or never."""
        backoff, trouble = Backoff(), ""
        while True:
            try:
                await self._receive_notices(WAIT)
                backoff.reset()
                trouble = ""
                continue
            except (BusError, TimeoutError) as error:
                said = str(error) or type(error).__name__
            except Exception as error:
                said = repr(error)
            if said != trouble:
                log.warning("%s hears no notices: %s", self._name, said)
            trouble = said
            await backoff.wait()

    async def _receive_notices(self, wait: timedelta) -> None:
        async with asyncio.timeout((wait + SILENCE).total_seconds()):
            heard = await self._kit.bus.receive_notices(self.worker_id, wait)
        for message in heard:
            self._notice(message.body)

    def _notice(self, said: Mapping[str, Any]) -> None:
        """Obey what LUCIUS says of a lease that is held here, and nothing else."""
        for task, execution in tuple(self._running.items()):
            if execution.is_addressed(said):
                match said.get("type"):
                    case str(kind) if kind == LEASE_ENDED:
                        execution.end(task)
                    case str(kind) if kind == CANCEL:
                        execution.request_cancel()

    # -- receiving ---------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to receive. When the bus is up, the subscriptions exist on return."""
        if self._receiver is not None:
            return
        adopt_provider()
        await self._kit.body.open()
        self._answered_at = asyncio.get_running_loop().time()
        ensured = await self._try(self._ensure())
        if ensured:
            with suppress(Exception):  # whoever goes on hearing meets it again, and says so
                await self._receive_notices(timedelta())
        self._listener = asyncio.create_task(self._receive_notices_forever())
        self._receiver = asyncio.create_task(self._receive_forever(ensured))

    async def run(self) -> None:
        """Start, and serve until cancelled; then drain."""
        await self.start()
        assert self._receiver is not None
        try:
            await asyncio.shield(self._receiver)
        finally:
            await self.stop()

    async def _ensure(self) -> bool:
        await self._kit.bus.ensure(
            [Subscription(topic, self._name, self._filters) for topic in self._topics]
        )
        return True

    async def _receive_forever(self, ensured: bool) -> None:
        backoff = Backoff()
        while True:
            if not self._free:
                self._freed.clear()
                await self._freed.wait()
            ensured = ensured or await self._try(self._ensure())
            if ensured and await self._try(self._receive()):
                backoff.reset()
            else:
                await backoff.wait()

    async def _try(self, step: Coroutine[Any, Any, bool]) -> bool:
        """Whatever goes wrong with the bus is waited out: a receiver never ends by itself."""
        try:
            done = await step
        except BusError as error:
            said = str(error) or type(error).__name__
            if said != self._outage:  # once, however long it lasts
                log.warning("%s pauses: %s", self._name, said)
            self._outage = said
            return False
        except Exception as error:
            self._outage = repr(error)
            log.exception("%s: the receiver failed and is begun again", self._name)
            return False
        if self._outage is not None:
            log.info("%s goes on", self._name)
        self._outage = None
        self._answered_at = asyncio.get_running_loop().time()
        return done

    async def _receive(self) -> bool:
        wait = WAIT if self._outage is None else timedelta()  # so that its end is known at once
        async with asyncio.timeout((WAIT + SILENCE).total_seconds()):
            deliveries = await self._kit.bus.receive(self._name, self._topics, self._free, wait)
        for delivery in deliveries:
            self._start(delivery)
        return True

    def _start(self, delivery: Delivery) -> None:
        loop = asyncio.get_running_loop()
        execution = Attempt(self._kit, delivery, loop)
        self._free -= 1
        task = loop.create_task(execution.run(), name=self._task_name)
        self._running[task] = execution
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        execution = self._running.pop(task)
        self._free += 1
        self._freed.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s broke off", execution.message_id, exc_info=error)

    # -- draining ----------------------------------------------------------------------------

    async def stop(self) -> None:
        """Receive no more, let running steps finish for a while, then give their leases back."""
        if self._receiver is None:
            return
        self._receiver.cancel()
        await asyncio.gather(self._receiver, return_exceptions=True)
        self._receiver = None
        await self._ended_within(self._grace)
        for task, execution in tuple(self._running.items()):
            execution.release(task)
        await self._ended_within(RELEASE_TIME)
        for task in tuple(self._running):
            task.cancel()
        await self._ended_within(RELEASE_TIME)
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.gather(self._listener, return_exceptions=True)
        self._kit.lease_timer.stop()
        for execution in self._running.values():
            log.error("%s ignores its cancellation and is left behind", execution.message_id)
        await self._kit.body.close()
        if self._own_forks is not None:
            await self._own_forks.close()

    async def _ended_within(self, seconds: float) -> None:
        if self._running:
            await asyncio.wait(tuple(self._running), timeout=seconds)

    def attempts(self) -> "list[Attempt]":
        """Those at work. May be asked from another thread, while the loop changes nothing."""
        return list(self._running.values())

    def serves(self, task: "asyncio.Task[Any] | None") -> bool:
        """Whether the task is one of its executions. May be asked from another thread."""
        return task in self._running

    @property
    def left_behind(self) -> int:
        """How many executions would not end with `stop`."""
        return 0 if self._receiver is not None else len(self._running)


def new_worker_id(service: Service) -> str:
    return f"{service.name}-{uuid4().hex[:12]}"


def body_of(service: Service, forks: ForkServer | None) -> Body:
    if service.isolation == "process":
        assert forks is not None, "a runner has a fork server of its own, if it is not given one"
        return InProcesses(service, forks)
    return InAThread(service) if service.blocking else OnTheLoop(service)


# Heartbeats while the event loop is held up: a thread sends them, over a connection of its own.
#
# An `async def execute()` that computes without awaiting holds up everything else on its loop, heartbeats
# included. Its lease, and those of its neighbours, are kept all the same.

standby_log = logging.getLogger("lucius.platform.standby")
PATIENCE_SECONDS: Final = 10.0
"""For opening the connection and sending what is due. What fails is tried again at the next look."""

OpenReplies = Callable[[], AbstractAsyncContextManager[Replies]]
"""Opens a way for replies that the loop which is held up has no part in."""


class StandbyHeartbeats:
    def __init__(self, runners: Sequence[ServiceRunner], open_replies: OpenReplies) -> None:
        self._runners = runners
        self._open_replies = open_replies

    def send_due(self) -> None:
        """Send the heartbeats that are overdue, from a thread that is not the loop's."""
        now = time.monotonic()
        due = [each for runner in self._runners for each in runner.attempts() if each.overdue(now)]
        if not due:
            return
        try:
            asyncio.run(self._send(due))
        except Exception as error:
            standby_log.warning("no heartbeats could be sent beside the event loop: %r", error)

    async def _send(self, due: Sequence[Attempt]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS), self._open_replies() as replies:
            await asyncio.gather(*(attempt.beat_over(replies) for attempt in due))
