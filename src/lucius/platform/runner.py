"""The runner of a service: receives directives into free slots only, restarts what falls silent, drains."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import uuid4

from lucius.core.errors import BusError
from lucius.core.routing import directive_topics
from lucius.platform.backoff import Backoff
from lucius.platform.commit import Commits
from lucius.platform.execution import Execution, Kit
from lucius.platform.records import MemoryRecords, Records
from lucius.platform.replies import BusReplies, Replies
from lucius.platform.service import Service
from lucius.ports.bus import Bus, Delivery, Property, Subscription
from lucius.ports.workspace import Workspace
from lucius.telemetry.tracing import adopt_provider

log = logging.getLogger(__name__)
WAIT: Final = timedelta(seconds=20)
"""How long one receive waits for messages."""
SILENCE: Final = timedelta(seconds=10)
"""A receive that is this late is taken for dead and begun again."""
RELEASE_TIME: Final = 5.0
"""How long giving leases back may take before the process ends anyway."""


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Health:
    """`silent_seconds`: since the bus last answered. `outage`: why it does not, if it does not."""

    free_slots: int
    running: int
    silent_seconds: float
    outage: str | None


class ServiceRunner:
    """`slots` is how many steps run at once; a directive is only received into a free one."""

    def __init__(
        self,
        service: Service,
        bus: Bus,
        workspace: Workspace,
        *,
        slots: int = 8,
        worker_id: str | None = None,
        topics: Sequence[str] | None = None,
        filters: Mapping[str, tuple[Property, ...]] | None = None,
        subscription: str | None = None,
        grace: timedelta = timedelta(seconds=10),
        replies: Replies | None = None,
        records: Records | None = None,
        commits: Commits | None = None,
        clock: Callable[[], datetime] = _utc_now,
    ) -> None:
        self._kit = Kit(
            service,
            bus,
            workspace,
            replies or BusReplies(bus),
            records or MemoryRecords(),
            commits or Commits(workspace),
            worker_id or f"{service.name}-{uuid4().hex[:12]}",
            clock,
        )
        self._name = subscription or service.name
        self._topics = tuple(topics or directive_topics("shared"))
        self._filters = {"step_type": tuple(service.step_types), **(filters or {})}
        self._grace = grace.total_seconds()
        self._free = slots
        self._freed = asyncio.Event()
        self._running: dict[asyncio.Task[None], Execution] = {}
        self._receiver: asyncio.Task[None] | None = None
        self._answered_at = 0.0
        self._outage: str | None = None

    @property
    def worker_id(self) -> str:
        return self._kit.worker_id

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

    # -- receiving ---------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to receive. When the bus is up, the subscriptions exist on return."""
        if self._receiver is not None:
            return
        adopt_provider()
        self._answered_at = asyncio.get_running_loop().time()
        ensured = await self._try(self._ensure())
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
            self._outage = str(error) or type(error).__name__
            log.warning("%s pauses: %s", self._name, error)
            return False
        except Exception as error:
            self._outage = repr(error)
            log.exception("%s: the receiver failed and is begun again", self._name)
            return False
        self._outage = None
        self._answered_at = asyncio.get_running_loop().time()
        return done

    async def _receive(self) -> bool:
        patience = (WAIT + SILENCE).total_seconds()
        async with asyncio.timeout(patience):
            deliveries = await self._kit.bus.receive(self._name, self._topics, self._free, WAIT)
        for delivery in deliveries:
            self._start(delivery)
        return True

    def _start(self, delivery: Delivery) -> None:
        execution = Execution(self._kit, delivery)
        self._free -= 1
        task = asyncio.create_task(execution.run())
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

    async def _ended_within(self, seconds: float) -> None:
        if self._running:
            await asyncio.wait(tuple(self._running), timeout=seconds)
