"""Which held entries go out, and when: the windows and the ready queues, kept in step with commits."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any

from lucius.core.ids import new_lease_id
from lucius.core.inputs import EntryReleased
from lucius.core.job import Execution, Job, Step
from lucius.core.states import AbortReason, StepState
from lucius.engines.outbox.outage import persistently
from lucius.engines.outbox.ready import ReadyQueues, Waiting
from lucius.engines.outbox.window import Key, Windows
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

    def at_once(self, job: Job) -> list[tuple[Key, EntryReleased]]:
        """Entries that the window has room for and nobody waits before; the room is reserved."""
        lane = job.plan.routing.lane
        found: list[tuple[Key, EntryReleased]] = []
        if lane not in self._lanes:
            return found
        for index, step in enumerate(job.steps):
            if step.state is not StepState.DISPATCHING or not step.ready:
                continue
            planned = job.plan.steps[index]
            key = (job.plan.line_of(planned.service), lane)
            if not self.ready.waits(key) and self.windows.room(key):
                self.windows.reserve(key)
                found.append((key, EntryReleased(planned.step_id, new_lease_id())))
        return found

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
            self._count_running(key, earlier, step)
            if earlier is not None:
                self._close_ended(key, earlier, job, index)
            if step.unacked:
                self.windows.opened(key, step.executions[-1].exec_id)
            if step.ready and not (earlier is not None and earlier.ready):
                self.ready.add(key, job.tenant_id, Waiting(job.job_id, planned.step_id))
                self.pump(key)

    def overtaken(self, known: Job, job: Job) -> None:
        """Someone else moved the job: what they ended no longer counts against our windows."""
        for index, (planned, earlier) in enumerate(zip(job.plan.steps, known.steps, strict=True)):
            key = (job.plan.line_of(planned.service), job.plan.routing.lane)
            self._count_running(key, earlier, job.steps[index])
            self._close_ended(key, earlier, job, index)

    def recovered(self, job: Job) -> None:
        """A job found at the start: what is out counts against the window again."""
        for planned, step in zip(job.plan.steps, job.steps, strict=True):
            key = (job.plan.line_of(planned.service), job.plan.routing.lane)
            self._count_running(key, None, step)
            if step.unacked:
                self.windows.opened(key, step.executions[-1].exec_id)

    def _count_running(self, key: Key, earlier: Step | None, step: Step) -> None:
        was = earlier is not None and earlier.state is StepState.IN_PROGRESS
        change = (step.state is StepState.IN_PROGRESS) - was
        if change:
            self.windows.ran(key, change)

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
        if key in self._pumping or not self.ready.waits(key) or not self.windows.room(key):
            return
        self._pumping.add(key)
        self._spawn(self._pump(key))

    async def _pump(self, key: Key) -> None:
        try:
            while self.windows.room(key) and self.ready.waits(key):
                waiting = await persistently(lambda: self.ready.take(key))
                if waiting is None:
                    break
                self.windows.reserve(key)
                self._spawn(self._release(key, waiting))
        finally:
            self._pumping.discard(key)

    async def _release(self, key: Key, waiting: Waiting) -> None:
        try:
            released = EntryReleased(waiting.step_id, new_lease_id())
            await persistently(lambda: self._release_entry(waiting.job_id, released))
        finally:
            self.windows.unreserve(key)
            self.ready.settle(waiting)
            self.pump(key)


def _of_lease(step: Step, lease_id: str) -> Execution | None:
    for execution in reversed(step.executions):
        if execution.exec_id == lease_id:
            return execution
    return None
