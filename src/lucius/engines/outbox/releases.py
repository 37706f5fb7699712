"""Which held entries go out, and when: the windows and the ready queues, kept in step with commits.

What waits is in the ledger; the heads of its queues are here. Releasing is a part of every turn of the
engine: as the windows have room for it, or as a worker that pulls has.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Final, NoReturn, Protocol

from lucius.core.effects import Committed
from lucius.core.errors import LedgerUnavailableError
from lucius.core.ids import new_lease_id
from lucius.core.inputs import EntryReleased
from lucius.core.job import Execution, Job, Step
from lucius.core.plan import service_of
from lucius.core.record import record
from lucius.core.states import PRESUMED_DEAD, AbortReason, StepState
from lucius.engines.outbox.inbox import A_TURN, Inbox, kept
from lucius.engines.outbox.tasks import Tasks, persistently
from lucius.engines.outbox.windows import Key, Share, Windows
from lucius.ports.bus import BoundTenants
from lucius.ports.lanes import Lanes
from lucius.ports.ledger import Ledger, ReadyQueue

PAGE: Final = 256


class HeldBack(Protocol):
    """Paused services: nothing is released to them until they are resumed."""

    def __contains__(self, service: object) -> bool: ...

    async def went_on(self) -> None:
        """Return when a service that was paused has been resumed."""


@record
class Waiting:
    job_id: str
    step_id: str


@dataclass(slots=True)
class _Tenant:
    heads: deque[Waiting] = field(default_factory=deque)
    more: bool = False
    """The ledger may hold entries of this tenant that are not in `heads`."""


_NOBODY: Final[OrderedDict[str, _Tenant]] = OrderedDict()


class ReadyQueues:
    """For each line on each lane a ring of tenants; for each tenant the head of its queue."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._rings: dict[Key, OrderedDict[str, _Tenant]] = {}
        self._taken: set[Waiting] = set()
        self._loading = asyncio.Lock()
        self._unknown: set[tuple[Key, str]] = set()
        """Queues of the ledger that were not known here at the last look."""

    async def recover(self, lanes: Collection[int]) -> None:
        """After a start: every queue that the ledger holds may have entries."""
        for queue in await self._ledger.ready_queues(lanes):
            ring = self._rings.setdefault((queue.line, queue.lane), OrderedDict())
            ring[queue.tenant_id] = _Tenant(more=True)

    def notice(self, queues: Iterable[ReadyQueue]) -> list[Key]:
        """Take up queues that the ledger holds and that are not known here: a save may have landed unheard.

        Return their lines and lanes. A queue must be unknown twice in turn: entries may be on their way.
        """
        unknown = {
            ((queue.line, queue.lane), queue.tenant_id)
            for queue in queues
            if queue.tenant_id not in self.tenants((queue.line, queue.lane))
        }
        found, self._unknown = unknown & self._unknown, unknown
        for key, tenant_id in found:
            self._rings.setdefault(key, OrderedDict())[tenant_id] = _Tenant(more=True)
        return [key for key, _ in found]

    def forget(self, lane: int) -> None:
        """Forget a lane: another process owns it now."""
        for key in [key for key in self._rings if key[1] == lane]:
            del self._rings[key]

    def lines(self) -> list[Key]:
        """Every line and lane that someone waits for."""
        return list(self._rings)

    def waits(self, key: Key) -> bool:
        return key in self._rings

    def tenants(self, key: Key) -> Collection[str]:
        """Who waits there; whoever was served last comes last."""
        return self._rings.get(key, _NOBODY)

    def add(self, key: Key, tenant_id: str, waiting: Waiting) -> None:
        """Queue an entry that is committed as held and ready."""
        ring = self._rings.setdefault(key, OrderedDict())
        tenant = ring.get(tenant_id)
        if tenant is None:
            tenant = ring[tenant_id] = _Tenant()
        if tenant.more or len(tenant.heads) >= PAGE:
            tenant.more = True
        else:
            tenant.heads.append(waiting)

    async def load(self, key: Key, tenant_id: str) -> None:
        """Read the tenant's next entries, if they are in the ledger alone."""
        if self.lacks_heads(key, tenant_id):
            async with self._loading:  # two that load the same queue would take an entry twice
                if self.lacks_heads(key, tenant_id):
                    await self._load(key, tenant_id, self._rings[key][tenant_id])

    async def take(self, key: Key, tenant_id: str) -> Waiting | None:
        await self.load(key, tenant_id)
        return self.pop(key, tenant_id)

    def pop(self, key: Key, tenant_id: str) -> Waiting | None:
        """The tenant's next entry; call `settle` when it is released or turned out to be gone."""
        ring = self._rings.get(key, _NOBODY)
        tenant = ring.get(tenant_id)
        if tenant is None:
            return None
        waiting = tenant.heads.popleft() if tenant.heads else None
        del ring[tenant_id]
        if tenant.heads or tenant.more:
            ring[tenant_id] = tenant
        elif not ring:
            del self._rings[key]
        if waiting is not None:
            self._taken.add(waiting)
        return waiting

    def lacks_heads(self, key: Key, tenant_id: str) -> bool:
        """Whether the tenant's next entry must be read from the ledger."""
        tenant = self._rings.get(key, _NOBODY).get(tenant_id)
        return tenant is not None and not tenant.heads and tenant.more

    def settle(self, waiting: Waiting) -> None:
        self._taken.discard(waiting)

    async def _load(self, key: Key, tenant_id: str, tenant: _Tenant) -> None:
        line, lane = key
        limit = PAGE + len(self._taken)
        page = await self._ledger.ready(line, lane, tenant_id, limit)
        found = [Waiting(entry.job_id, entry.step_id) for entry in page]
        tenant.more = len(page) == limit
        tenant.heads.extend(w for w in found if w not in self._taken and w not in tenant.heads)


class Releases:
    """Keeps the windows and ready queues of the owned lanes, and says what may be released."""

    def __init__(
        self,
        inbox: Inbox,
        windows: Windows,
        ready: ReadyQueues,
        tasks: Tasks,
        lanes: Lanes,
        held_back: HeldBack,
    ) -> None:
        """`held_back`: services to which nothing is released now."""
        self._inbox = inbox
        self._held_back = held_back
        self._windows = windows
        self._ready = ready
        self._tasks = tasks
        self._lanes = lanes
        self._busy: set[Key] = set()
        """Lines and lanes where something is to be released, until no more of it has room."""
        self._asked: dict[Key, None] = {}
        """Of those, where the next turn releases something. The others are being read from the ledger."""
        self._pulled = 0

    async def run(self) -> NoReturn:
        """When a paused service is resumed, release what waited for it."""
        while True:
            await self._held_back.went_on()
            self.pump_all()

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

    def listen(self, commit: Committed) -> None:
        """Of every commit: on the owned lanes, count what it let out and what it ended."""
        if not commit.owned:
            self.ended(commit.job)
            return
        before, job = commit.before, commit.job
        plan = job.plan
        for index in commit.steps:
            earlier, step = before.steps[index] if before is not None else None, job.steps[index]
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

    def caught_up(self, job: Job) -> None:
        """A job whose last write was in doubt: what is out counts, and what is held waits here.

        An entry that waits here already is queued twice; the second time it is found to be gone.
        """
        self.found(job)
        for planned, step in zip(job.plan.steps, job.steps, strict=True):
            if step.ready:
                key = (job.plan.line_of(planned.service), job.plan.desk)
                self._ready.add(key, job.tenant_id, Waiting(job.job_id, planned.step_id))
                self.pump(key)

    def overtaken(self, job: Job) -> None:
        """Someone else moved it: what they ended no longer counts. What they let out is theirs to count."""
        for planned, step in zip(job.plan.steps, job.steps, strict=True):
            key = (job.plan.line_of(planned.service), job.plan.desk)
            out = step.unacked and not self._windows.is_open(step.executions[-1].exec_id)
            if not out:
                self._follow(key, job.tenant_id, step)

    async def recover(self, lanes: Collection[int]) -> None:
        """Lanes are taken over: every queue that the ledger holds may have entries."""
        await self._ready.recover(lanes)

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
                self._windows.rests(lease_id, freed=execution.reason not in PRESUMED_DEAD)
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

    # -- releasing ---------------------------------------------------------------------------

    def pump_all(self) -> None:
        for key in self._ready.lines():
            self.pump(key)

    def pump(self, key: Key) -> None:
        """Have the next turn release what waits there, if there is room."""
        if self._ready.waits(key) and key not in self._busy and self.next_tenant(key) is not None:
            self._busy.add(key)
            self._asked[key] = None
            self._inbox.wake()

    def take_turn(self) -> None:
        """Post what has room, up to a bound."""
        for _ in range(A_TURN):
            key = next(iter(self._asked), None)
            if key is None:
                return
            tenant_id = self.next_tenant(key)
            if tenant_id is None:
                del self._asked[key]
                self._busy.discard(key)
            elif self._ready.lacks_heads(key, tenant_id):
                del self._asked[key]
                self._tasks.spawn(self._load(key, tenant_id))
            elif (waiting := self._ready.pop(key, tenant_id)) is not None:
                self._start((key, tenant_id), waiting)
        self._inbox.wake()

    async def _load(self, key: Key, tenant_id: str) -> None:
        try:
            await persistently(partial(self._ready.load, key, tenant_id))
        except BaseException:
            self._busy.discard(key)
            raise
        self._asked[key] = None
        self._inbox.wake()

    def _start(self, share: Share, waiting: Waiting) -> None:
        self._windows.reserve(share)
        released = EntryReleased(waiting.step_id, new_lease_id())
        self._inbox.post(kept(waiting.job_id, released, partial(self._ended, share, waiting)))

    def _ended(self, share: Share, waiting: Waiting) -> None:
        """It is released, or turned out to be gone."""
        self._ready.settle(waiting)
        self.unreserve(share)

    async def release_for(self, service: str, room: int, tenants: Collection[str] | None) -> int:
        """A worker has room for so many more than the bus had for it, so they go out beyond the window.

        The answer says how many: they are on their way. While the bus or the ledger is away, none is.
        """
        turns, started = self._in_turn(service, room, tenants), 0
        while turns and started < room:
            tenant_id, keys = turns.popleft()
            share = (keys.popleft(), tenant_id)
            try:
                waiting = await self._ready.take(*share)
            except LedgerUnavailableError:
                break
            if waiting is not None:
                self._start(share, waiting)
                started += 1
            if tenant_id in self._ready.tenants(share[0]) and self._windows.trusts(*share):
                keys.append(share[0])
            if keys:
                turns.append((tenant_id, keys))
        return started

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

    def _in_turn(
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


class Pulls:
    """What the pull gateway tells the engine: who pulls, how much room there is, what was handed out.

    Workers that pull count what they have room for themselves, so the window need not guess it.
    """

    def __init__(self, releases: Releases, windows: Windows) -> None:
        self._releases = releases
        self._windows = windows

    def began(self, service: str, tenants: BoundTenants) -> None:
        self._windows.visits.began(service, tenants)

    def ended(self, service: str, tenants: BoundTenants, *, spare: bool) -> None:
        self._windows.visits.ended(service, tenants, spare=spare)

    async def release(self, service: str, room: int, tenants: BoundTenants) -> int:
        """Let so many more go out, beyond the window. The answer says how many are on their way."""
        return await self._releases.release_for(service, room, tenants)

    def handed_out(self, lease_id: str, seconds: float, *, spare: bool) -> None:
        """A worker has it, and has so many seconds to acknowledge it. `spare`: it had room for more."""
        key = self._windows.handed_out(lease_id, seconds, spare=spare)
        if key is not None:
            self._releases.pump(key)
