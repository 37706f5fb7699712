"""Which held entries go out, and when: the windows and the ready queues, kept in step with commits.

It decides and counts. Whom it names, the pump releases.
"""

import asyncio
from collections import deque
from collections.abc import Collection, Container, Iterable
from math import inf

from lucius.core.ids import new_lease_id
from lucius.core.inputs import EntryReleased
from lucius.core.job import Execution, Job, Step
from lucius.core.plan import service_of
from lucius.core.states import AbortReason, StepState
from lucius.engines.outbox.ready import ReadyQueues, Waiting
from lucius.engines.outbox.windows import Key, Share, Windows
from lucius.ports.lanes import Lanes
from lucius.ports.ledger import ReadyQueue


class Releases:
    """Keeps the windows and ready queues of the owned lanes, and says what may be released."""

    def __init__(
        self,
        windows: Windows,
        ready: ReadyQueues,
        lanes: Lanes,
        held_back: Container[str],
    ) -> None:
        """`held_back`: services to which nothing is released now."""
        self._held_back = held_back
        self._windows = windows
        self._ready = ready
        self._lanes = lanes
        self._busy: set[Key] = set()
        """Lines and lanes that the pump has been asked for, until it is through with them."""
        self._asked: dict[Key, None] = {}
        self._wake = asyncio.Event()
        self._pulled = 0

    def at_once(self, job: Job, *, told: bool = False) -> list[tuple[Share, EntryReleased]]:
        """Entries that the window has room for; the room is reserved.

        None goes before others of its tenant. Who waits there of other tenants has no room.
        """
        lane, tenant_id = job.plan.desk, job.tenant_id
        found: list[tuple[Share, EntryReleased]] = []
        if lane not in self._lanes.owned:
            return found
        for index, step in enumerate(job.steps):
            if step.state is not StepState.DISPATCHING or not step.ready:
                continue
            planned = job.plan.steps[index]
            if planned.service in self._held_back:
                continue
            key = (job.plan.line_of(planned.service), lane)
            behind = key in self._busy or tenant_id in self._ready.tenants(key)
            if not behind and self._windows.room(key, tenant_id):
                share = (key, tenant_id)
                self._windows.reserve(share)
                found.append((share, EntryReleased(planned.step_id, new_lease_id(), told=told)))
        return found

    def unreserve(self, share: Share) -> None:
        """The save has ended, so the reservation has too. Others may have waited for its room."""
        self._windows.unreserve(share)
        self.pump(share[0])

    def heard(self, lease_id: str) -> None:
        """Note when a service answered, though its answer is yet to be saved."""
        self._windows.heard(lease_id)

    # -- keeping in step ---------------------------------------------------------------------

    def committed(self, before: Job | None, job: Job) -> None:
        plan = job.plan
        for index, step in enumerate(job.steps):
            earlier = before.steps[index] if before is not None else None
            if step is earlier:
                continue
            planned = plan.steps[index]
            key = (plan.line_of(planned.service), plan.desk)
            self._follow(key, job.tenant_id, step)
            if step.ready and not (earlier is not None and earlier.ready):
                self._ready.add(key, job.tenant_id, Waiting(job.job_id, planned.step_id))
                self.pump(key)

    def found(self, job: Job) -> None:
        """A job of a lane that is taken over: what is out counts here from now on."""
        for planned, step in zip(job.plan.steps, job.steps, strict=True):
            key = (job.plan.line_of(planned.service), job.plan.desk)
            self._follow(key, job.tenant_id, step)

    def overtaken(self, job: Job) -> None:
        """Someone else moved it: what they ended no longer counts. What they let out is theirs to count."""
        for planned, step in zip(job.plan.steps, job.steps, strict=True):
            key = (job.plan.line_of(planned.service), job.plan.desk)
            out = step.unacked and not self._windows.is_open(step.executions[-1].exec_id)
            if not out:
                self._follow(key, job.tenant_id, step)

    def notice(self, queues: Iterable[ReadyQueue]) -> None:
        """Release what waits in queues of the ledger that are not known here."""
        for key in self._ready.notice(queues):
            self.pump(key)

    def forget(self, lane: int) -> None:
        """Forget a lane: another process owns it now."""
        self._windows.forget(lane)
        self._ready.forget(lane)

    def ended(self, job: Job) -> None:
        """Count attempts of a job no more that have ended, and no others: its lane is not owned now.

        The lease of the lane may have lapsed for a moment only, and what was counted before counts on.
        """
        for planned, step in zip(job.plan.steps, job.steps, strict=True):
            self._end((job.plan.line_of(planned.service), job.plan.desk), step)

    def _follow(self, key: Key, tenant_id: str, step: Step) -> None:
        self._end(key, step)
        if step.execution is not None and step.state is StepState.IN_PROGRESS:
            self._windows.runs(key, tenant_id, step.execution.exec_id)
        if step.execution is not None and step.unacked:
            self._windows.opened(key, tenant_id, step.execution.exec_id)

    def _end(self, key: Key, step: Step) -> None:
        for execution in step.executions:
            lease_id, current = execution.exec_id, execution is step.execution
            if not (current and step.state is StepState.IN_PROGRESS):
                self._windows.rests(lease_id)
            if not (current and step.unacked) and self._windows.is_open(lease_id):
                self._closed(lease_id, step, execution)
                self.pump(key)

    def _closed(self, lease_id: str, step: Step, execution: Execution) -> None:
        if execution.started_at is not None:
            self._windows.acknowledged(lease_id)
        elif step.state is not StepState.CANCELLED and execution.reason is AbortReason.ACK_TIMEOUT:
            self._windows.timed_out(lease_id)
        else:
            self._windows.withdrawn(lease_id)

    # -- what the pump is asked for ----------------------------------------------------------

    def pump_all(self) -> None:
        for key in self._ready.lines():
            self.pump(key)

    def pump(self, key: Key) -> None:
        """Ask the pump to release what waits there, if there is room."""
        if self._ready.waits(key) and key not in self._busy and self.next_tenant(key) is not None:
            self._busy.add(key)
            self._asked[key] = None
            self._wake.set()

    async def asked(self) -> list[Key]:
        """Wait until the pump is asked for, and return for which lines and lanes."""
        while not self._asked:
            self._wake.clear()
            await self._wake.wait()
        keys = list(self._asked)
        self._asked.clear()
        return keys

    def pumped(self, key: Key) -> None:
        """The pump has released what it could there."""
        self._busy.discard(key)

    def next_tenant(self, key: Key) -> str | None:
        """Whose turn it is: of those who have room, the tenant that has least out."""
        if service_of(key[0]) in self._held_back:
            return None
        window, least, chosen = self._windows.of(key), inf, None
        for tenant_id in self._ready.tenants(key):
            out = window.out(tenant_id)
            if out < least and self._windows.room(key, tenant_id):
                least, chosen = out, tenant_id
                if not out:
                    break
        return chosen

    def in_turn(
        self, service: str, room: int, tenants: Collection[str] | None
    ) -> deque[tuple[str, deque[Key]]]:
        """Tenants of whom something may go out, each with the lines and lanes it waits on.

        No more than the worker has room for: whoever is left out comes first at one of the next pulls.
        """
        found: dict[str, deque[Key]] = {}
        if service in self._held_back:
            return deque()
        keys = deque(key for key in self._ready.lines() if service_of(key[0]) == service)
        keys.rotate(self._pulled)
        self._pulled += 1
        for key in keys:
            for tenant_id in self._ready.tenants(key):
                bound = tenants is None or tenant_id in tenants
                if bound and self._windows.trusts(key, tenant_id):
                    found.setdefault(tenant_id, deque()).append(key)
                if len(found) >= room:
                    break
        return deque(found.items())
