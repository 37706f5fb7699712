"""Which held entries go out, and when: the windows and the ready queues, kept in step with commits."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine
from functools import partial
from math import inf
from typing import Any

from lucius.core.errors import LedgerUnavailableError
from lucius.core.ids import new_lease_id
from lucius.core.inputs import EntryReleased
from lucius.core.job import Execution, Job, Step
from lucius.core.plan import service_of
from lucius.core.states import AbortReason, StepState
from lucius.engines.outbox.outage import persistently
from lucius.engines.outbox.ready import ReadyQueues, Waiting
from lucius.engines.outbox.windows import Key, Share, Windows
from lucius.ports.ledger import Ledger

Release = Callable[[str, EntryReleased], Awaitable[object]]
Spawn = Callable[[Coroutine[Any, Any, None]], None]


class Releases:
    """Of the owned lanes. `release` applies the input; `spawn` runs it beside what goes on."""

    def __init__(
        self, ledger: Ledger, lanes: Collection[int], release: Release, spawn: Spawn
    ) -> None:
        self.windows = Windows(self._time)
        self._loop: asyncio.AbstractEventLoop | None = None
        self.ready = ReadyQueues(ledger)
        self._lanes = lanes
        self._release_entry = release
        self._spawn = spawn
        self._pumping: set[Key] = set()
        self._pulled = 0

    def at_once(self, job: Job) -> list[tuple[Share, EntryReleased]]:
        """Entries that the window has room for; the room is reserved.

        None goes before others of its tenant. Who waits there of other tenants has no room.
        """
        lane, tenant_id = job.plan.routing.lane, job.tenant_id
        found: list[tuple[Share, EntryReleased]] = []
        if lane not in self._lanes:
            return found
        for index, step in enumerate(job.steps):
            if step.state is not StepState.DISPATCHING or not step.ready:
                continue
            planned = job.plan.steps[index]
            key = (job.plan.line_of(planned.service), lane)
            behind = key in self._pumping or tenant_id in self.ready.tenants(key)
            if not behind and self.windows.room(key, tenant_id):
                share = (key, tenant_id)
                self.windows.reserve(share)
                found.append((share, EntryReleased(planned.step_id, new_lease_id())))
        return found

    def unreserve(self, share: Share) -> None:
        """What was to go out at once has, or will not: others may have been held for it."""
        self.windows.unreserve(share)
        self.pump(share[0])

    def _time(self) -> float:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop.time()

    # -- keeping in step ---------------------------------------------------------------------

    def committed(self, before: Job | None, job: Job) -> None:
        plan = job.plan
        for index, step in enumerate(job.steps):
            earlier = before.steps[index] if before is not None else None
            if step is earlier:
                continue
            planned = plan.steps[index]
            key = (plan.line_of(planned.service), plan.routing.lane)
            self._count_running(key, job, earlier, step)
            if earlier is not None:
                self._close_ended(key, earlier, job, index)
            if step.unacked:
                self.windows.opened(key, job.tenant_id, step.executions[-1].exec_id)
            if step.ready and not (earlier is not None and earlier.ready):
                self.ready.add(key, job.tenant_id, Waiting(job.job_id, planned.step_id))
                self.pump(key)

    def overtaken(self, known: Job, job: Job) -> None:
        """Someone else moved the job: what they ended no longer counts against our windows."""
        for index, (planned, earlier) in enumerate(zip(job.plan.steps, known.steps, strict=True)):
            key = (job.plan.line_of(planned.service), job.plan.routing.lane)
            self._count_running(key, job, earlier, job.steps[index])
            self._close_ended(key, earlier, job, index)

    def recovered(self, job: Job) -> None:
        """A job found at the start: what is out counts against the window again."""
        for planned, step in zip(job.plan.steps, job.steps, strict=True):
            key = (job.plan.line_of(planned.service), job.plan.routing.lane)
            self._count_running(key, job, None, step)
            if step.unacked:
                self.windows.opened(key, job.tenant_id, step.executions[-1].exec_id)

    def _count_running(self, key: Key, job: Job, earlier: Step | None, step: Step) -> None:
        was = earlier is not None and earlier.state is StepState.IN_PROGRESS
        change = (step.state is StepState.IN_PROGRESS) - was
        if change:
            self.windows.ran(key, job.tenant_id, change)

    def _close_ended(self, key: Key, earlier: Step, job: Job, index: int) -> None:
        """The lease that was out before is acknowledged or over by now."""
        step = job.steps[index]
        if not earlier.unacked:
            return
        lease_id = earlier.executions[-1].exec_id
        if not (step.unacked and step.executions[-1].exec_id == lease_id):
            self._closed(lease_id, step)
            self.pump(key)

    def _closed(self, lease_id: str, step: Step) -> None:
        execution = _of_lease(step, lease_id)
        if execution is not None and execution.started_at is not None:
            self.windows.acknowledged(lease_id)
        elif (
            step.state is not StepState.CANCELLED
            and execution is not None
            and execution.reason is AbortReason.ACK_TIMEOUT
        ):
            self.windows.timed_out(lease_id)
        else:
            self.windows.withdrawn(lease_id)

    # -- releasing what waits ----------------------------------------------------------------

    def pump_all(self) -> None:
        for key in self.ready.lines():
            self.pump(key)

    def pump(self, key: Key) -> None:
        """Release what waits while there is room; one pump a key at a time."""
        if not self.ready.waits(key) or key in self._pumping or self._next(key) is None:
            return
        self._pumping.add(key)
        self._spawn(self._pump(key))

    async def _pump(self, key: Key) -> None:
        try:
            while (tenant_id := self._next(key)) is not None:
                waiting = await persistently(partial(self.ready.take, key, tenant_id))
                if waiting is not None:
                    self._start((key, tenant_id), waiting)
        finally:
            self._pumping.discard(key)

    def _next(self, key: Key) -> str | None:
        """Whose turn it is: of those who have room, the tenant that has least out."""
        window, least, chosen = self.windows.of(key), inf, None
        for tenant_id in self.ready.tenants(key):
            out = window.out(tenant_id)
            if out < least and self.windows.room(key, tenant_id):
                least, chosen = out, tenant_id
                if not out:
                    break
        return chosen

    def _start(self, share: Share, waiting: Waiting) -> None:
        self.windows.reserve(share)
        self._spawn(self._release(share, waiting))

    async def _release(self, share: Share, waiting: Waiting) -> None:
        try:
            released = EntryReleased(waiting.step_id, new_lease_id())
            await persistently(lambda: self._release_entry(waiting.job_id, released))
        finally:
            self.ready.settle(waiting)
            self.unreserve(share)

    # -- workers that pull -------------------------------------------------------------------

    async def release_for(self, service: str, room: int, tenants: Collection[str] | None) -> int:
        """A worker has room for so many more than the bus had for it, so they go out beyond the window.

        The answer says how many: they are on their way. While the bus or the ledger is away, none is.
        """
        turns, started = self._in_turn(service, room, tenants), 0
        while turns and started < room:
            tenant_id, keys = turns.popleft()
            share = (keys.popleft(), tenant_id)
            try:
                waiting = await self.ready.take(*share)
            except LedgerUnavailableError:
                break
            if waiting is not None:
                self._start(share, waiting)
                started += 1
            if tenant_id in self.ready.tenants(share[0]) and self.windows.trusts(*share):
                keys.append(share[0])
            if keys:
                turns.append((tenant_id, keys))
        return started

    def _in_turn(
        self, service: str, room: int, tenants: Collection[str] | None
    ) -> deque[tuple[str, deque[Key]]]:
        """Tenants of whom something may go out, each with the lines and lanes it waits on.

        No more than the worker has room for: whoever is left out comes first at one of the next pulls.
        """
        found: dict[str, deque[Key]] = {}
        keys = deque(key for key in self.ready.lines() if service_of(key[0]) == service)
        keys.rotate(self._pulled)
        self._pulled += 1
        for key in keys:
            for tenant_id in self.ready.tenants(key):
                bound = tenants is None or tenant_id in tenants
                if bound and self.windows.trusts(key, tenant_id):
                    found.setdefault(tenant_id, deque()).append(key)
                if len(found) >= room:
                    break
        return deque(found.items())


def _of_lease(step: Step, lease_id: str) -> Execution | None:
    for execution in reversed(step.executions):
        if execution.exec_id == lease_id:
            return execution
    return None
