"""Which held entries go out, and when: the windows and the ready queues, kept in step with commits.

What waits is in the ledger; the heads of its queues are here. Releasing is a part of every turn of the
engine: as the windows have room for it, or as a worker that pulls has.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NoReturn, Protocol

from lucius.core.effects import Committed
from lucius.core.errors import LedgerUnavailableError
from lucius.core.ids import new_lease_id
from lucius.core.inputs import EntryReleased
from lucius.core.job import PRESUMED_DEAD, AbortReason, Execution, Job, Step, StepState
from lucius.core.plan import service_of
from lucius.core.record import record
from lucius.engine.clock import Tasks, persistently
from lucius.engine.inbox import A_TURN, Inbox, unawaited, until_saved
from lucius.engine.windows import Key, TenantQueue, Windows
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
class _TenantQueue:
    heads: deque[Waiting] = field(default_factory=deque)
    more: bool = False
    """The ledger may hold entries of this queue that are not in `heads`."""
    added: bool = False
    """Whether one was left to the ledger since the last read began: that read may have missed it."""


Ring = OrderedDict[str, OrderedDict[Key, _TenantQueue]]
"""By tenant, its queues by name and lane; of both, what was served last comes last."""


class ReadyQueues:
    """For those who take the directives of a queue a ring of tenants; for each the heads of its queues."""

    def __init__(self, ledger: Ledger, workers: Callable[[str], str]) -> None:
        """`workers` names those who take the directives of a queue."""
        self._ledger = ledger
        self._workers = workers
        self._rings: dict[str, Ring] = {}
        self._taken: set[Waiting] = set()
        self._loading = asyncio.Lock()
        self._unknown: set[tuple[Key, str]] = set()
        """Queues of the ledger that were not known here at the last look."""

    async def recover(self, lanes: Collection[int]) -> None:
        """After a start: every queue that the ledger holds may have entries."""
        for queue in await self._ledger.ready_queues(lanes):
            self._queue((queue.queue_name, queue.lane), queue.tenant_id).more = True

    def notice(self, queues: Iterable[ReadyQueue]) -> list[Key]:
        """Take up queues that the ledger holds and that are not known here: a save may have landed unheard.

        Return their names and lanes. A queue must be unknown twice in turn: entries may be on their way.
        """
        unknown = {
            (key, queue.tenant_id)
            for queue in queues
            if self._known(key := (queue.queue_name, queue.lane), queue.tenant_id) is None
        }
        found, self._unknown = unknown & self._unknown, unknown
        for key, tenant_id in found:
            self._queue(key, tenant_id).more = True
        return [key for key, _ in found]

    def forget(self, lane: int) -> None:
        """Forget a lane: another process owns it now."""
        for key, tenant_id in [
            (key, tenant_id)
            for ring in self._rings.values()
            for tenant_id, queues in ring.items()
            for key in queues
            if key[1] == lane
        ]:
            self._drop(key, tenant_id)

    def all_workers(self) -> list[str]:
        """All that someone waits for."""
        return list(self._rings)

    def ring(self, workers: str) -> Ring:
        """Who waits for them, and where; whoever was served last comes last."""
        return self._rings.get(workers, _NOBODY)

    def add(self, key: Key, tenant_id: str, waiting: Waiting) -> None:
        """Queue an entry that is committed as held and ready."""
        queue = self._queue(key, tenant_id)
        if queue.more or len(queue.heads) >= PAGE:
            queue.more = queue.added = True
        else:
            queue.heads.append(waiting)

    async def load(self, key: Key, tenant_id: str) -> None:
        """Read the tenant's next entries, if they are in the ledger alone."""
        if self.lacks_heads(key, tenant_id):
            async with self._loading:  # two that load the same queue would take an entry twice
                queue = self._known(key, tenant_id)
                if queue is not None and self.lacks_heads(key, tenant_id):
                    await self._load(key, tenant_id, queue)

    async def take(self, key: Key, tenant_id: str) -> Waiting | None:
        await self.load(key, tenant_id)
        return self.pop(key, tenant_id)

    def pop(self, key: Key, tenant_id: str) -> Waiting | None:
        """The tenant's next entry; call `settle` when it is released or turned out to be gone."""
        queue = self._known(key, tenant_id)
        if queue is None:
            return None
        waiting = queue.heads.popleft() if queue.heads else None
        if queue.heads or queue.more:
            ring = self._rings[self._workers(key[0])]
            ring.move_to_end(tenant_id)
            ring[tenant_id].move_to_end(key)
        else:
            self._drop(key, tenant_id)
        if waiting is not None:
            self._taken.add(waiting)
        return waiting

    def lacks_heads(self, key: Key, tenant_id: str) -> bool:
        """Whether the tenant's next entry must be read from the ledger."""
        queue = self._known(key, tenant_id)
        return queue is not None and not queue.heads and queue.more

    def settle(self, waiting: Waiting) -> None:
        self._taken.discard(waiting)

    def _known(self, key: Key, tenant_id: str) -> _TenantQueue | None:
        queues = self.ring(self._workers(key[0])).get(tenant_id)
        return queues.get(key) if queues is not None else None

    def _queue(self, key: Key, tenant_id: str) -> _TenantQueue:
        ring = self._rings.setdefault(self._workers(key[0]), OrderedDict())
        return ring.setdefault(tenant_id, OrderedDict()).setdefault(key, _TenantQueue())

    def _drop(self, key: Key, tenant_id: str) -> None:
        workers = self._workers(key[0])
        ring = self._rings[workers]
        del ring[tenant_id][key]
        if not ring[tenant_id]:
            del ring[tenant_id]
        if not ring:
            del self._rings[workers]

    async def _load(self, key: Key, tenant_id: str, queue: _TenantQueue) -> None:
        queue_name, lane = key
        limit = PAGE + len(self._taken)
        queue.added = False
        page = await self._ledger.ready(queue_name, lane, tenant_id, limit)
        found = [Waiting(entry.job_id, entry.step_id) for entry in page]
        queue.more = queue.added or len(page) == limit
        queue.heads.extend(w for w in found if w not in self._taken and w not in queue.heads)


_NOBODY: Final[Ring] = OrderedDict()


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
        self._busy: set[str] = set()
        """Workers to whom something is to be released, until no more of it has room."""
        self._asked: dict[str, None] = {}
        """Of those, to whom the next turn releases something. What the others wait for is being read."""

    async def run(self) -> NoReturn:
        """When a paused service is resumed, release what waited for it."""
        while True:
            await self._held_back.went_on()
            self.pump_all()

    def at_once(self, job: Job, *, told: bool = False) -> list[tuple[TenantQueue, EntryReleased]]:
        """Entries that the window has room for; the room is reserved.

        None goes before others of its tenant. Who waits there of other tenants has no room.
        """
        lane, tenant_id = job.plan.shard, job.tenant_id
        found: list[tuple[TenantQueue, EntryReleased]] = []
        if lane not in self._lanes.owned:
            return found
        for index, step in enumerate(job.steps):
            if step.state is not StepState.DISPATCHING or not step.ready:
                continue
            planned = job.plan.steps[index]
            if planned.service in self._held_back:
                continue
            queue_name = job.plan.queue_name(planned.service)
            workers = self._windows.workers(queue_name)
            behind = workers in self._busy or tenant_id in self._ready.ring(workers)
            if not behind and self._windows.has_capacity(queue_name, tenant_id):
                tenant_queue = ((queue_name, lane), tenant_id)
                self._windows.reserve(tenant_queue)
                found.append(
                    (tenant_queue, EntryReleased(planned.step_id, new_lease_id(), told=told))
                )
        return found

    def unreserve(self, tenant_queue: TenantQueue) -> None:
        """The save has ended, so the reservation has too. Others may have waited for its room."""
        self._windows.unreserve(tenant_queue)
        self.pump(tenant_queue[0])

    def mark_answered(self, lease_id: str) -> None:
        """Note when a service answered, though its answer is yet to be saved."""
        self._windows.mark_answered(lease_id)

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
            key = (plan.queue_name(planned.service), plan.shard)
            self._follow(key, job, step)
            if step.ready and not (earlier is not None and earlier.ready):
                self._ready.add(key, job.tenant_id, Waiting(job.job_id, planned.step_id))
                self.pump(key)

    def found(self, job: Job) -> None:
        """A job of a lane that is taken over: what is out counts here from now on."""
        for planned, step in zip(job.plan.steps, job.steps, strict=True):
            key = (job.plan.queue_name(planned.service), job.plan.shard)
            self._follow(key, job, step)

    def caught_up(self, job: Job) -> None:
        """A job whose last write was in doubt: what is out counts, and what is held waits here.

        An entry that waits here already is queued twice; the second time it is found to be gone.
        """
        self.found(job)
        for planned, step in zip(job.plan.steps, job.steps, strict=True):
            if step.ready:
                key = (job.plan.queue_name(planned.service), job.plan.shard)
                self._ready.add(key, job.tenant_id, Waiting(job.job_id, planned.step_id))
                self.pump(key)

    def overtaken(self, job: Job) -> None:
        """Someone else moved it: what they ended no longer counts. What they let out is theirs to count."""
        for planned, step in zip(job.plan.steps, job.steps, strict=True):
            key = (job.plan.queue_name(planned.service), job.plan.shard)
            out = step.unacked and not self._windows.is_open(step.executions[-1].exec_id)
            if not out:
                self._follow(key, job, step)

    def look_again(self) -> None:
        """Read jobs of which nothing was heard for long: what another process ended counts no more."""
        for job_id in self._windows.silent_jobs():
            self._inbox.post(unawaited(job_id, fresh=True))

    async def recover(self, lanes: Collection[int]) -> None:
        """Lanes are taken over: every queue that the ledger holds may have entries."""
        await self._ready.recover(lanes)

    def notice(self, queues: Iterable[ReadyQueue]) -> None:
        """Release what waits in queues of the ledger that are not known here."""
        for key in self._ready.notice(queues):
            self.pump(key)

    def forget(self, lane: int) -> None:
        """Forget a lane: another process owns it now. Its room is there for what waits on other lanes."""
        self._windows.forget(lane)
        self._ready.forget(lane)
        self.pump_all()

    def ended(self, job: Job) -> None:
        """Count attempts of a job no more that have ended, and no others: its lane is not owned now.

        The lease of the lane may have lapsed for a moment only, and what was counted before counts on.
        """
        for planned, step in zip(job.plan.steps, job.steps, strict=True):
            self._end((job.plan.queue_name(planned.service), job.plan.shard), step)

    def _follow(self, key: Key, job: Job, step: Step) -> None:
        self._end(key, step)
        execution = step.execution
        if execution is None:
            return
        if step.state is StepState.IN_PROGRESS:
            lease = (execution.lease_expires_at or job.updated_at) - job.updated_at
            attempt = (key, job.tenant_id, execution.exec_id, job.job_id)
            self._windows.runs(*attempt, lease.total_seconds())
        if step.unacked:
            self._windows.opened(key, job.tenant_id, execution.exec_id, job.job_id)

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
        for workers in self._ready.all_workers():
            self._pump(workers)

    def pump(self, key: Key) -> None:
        """Have the next turn release what waits for the same workers, if there is room."""
        self._pump(self._windows.workers(key[0]))

    def _pump(self, workers: str) -> None:
        if workers not in self._busy and self.next_tenant_queue(workers) is not None:
            self._busy.add(workers)
            self._asked[workers] = None
            self._inbox.wake()

    def take_turn(self) -> None:
        """Post what has room, up to a bound."""
        for _ in range(A_TURN):
            workers = next(iter(self._asked), None)
            if workers is None:
                return
            tenant_queue = self.next_tenant_queue(workers)
            if tenant_queue is None:
                del self._asked[workers]
                self._busy.discard(workers)
            elif self._ready.lacks_heads(*tenant_queue):
                del self._asked[workers]
                self._tasks.spawn(self._load(workers, tenant_queue))
            elif (waiting := self._ready.pop(*tenant_queue)) is not None:
                self._start(tenant_queue, waiting)
        self._inbox.wake()

    async def _load(self, workers: str, tenant_queue: TenantQueue) -> None:
        try:
            await persistently(partial(self._ready.load, *tenant_queue))
        except BaseException:
            self._busy.discard(workers)
            raise
        self._asked[workers] = None
        self._inbox.wake()

    def _start(self, tenant_queue: TenantQueue, waiting: Waiting) -> None:
        self._windows.reserve(tenant_queue)
        released = EntryReleased(waiting.step_id, new_lease_id())
        self._inbox.post(
            until_saved(waiting.job_id, released, partial(self._ended, tenant_queue, waiting))
        )

    def _ended(self, tenant_queue: TenantQueue, waiting: Waiting) -> None:
        """It is released, or turned out to be gone."""
        self._ready.settle(waiting)
        self.unreserve(tenant_queue)

    def next_tenant_queue(self, workers: str) -> TenantQueue | None:
        """Whose turn it is, of the tenants that have room, and where."""
        return self._first(
            workers, lambda tenant_id: self._windows.has_capacity(workers, tenant_id)
        )

    def _first(self, workers: str, may: Callable[[str], bool]) -> TenantQueue | None:
        if service_of(workers) in self._held_back:
            return None
        for tenant_id, queues in self._ready.ring(workers).items():
            if may(tenant_id):
                return next(iter(queues)), tenant_id
        return None

    async def release_for(self, service: str, capacity: int, tenants: BoundTenants) -> int:
        """A worker has room for so many more than the bus had for it, so they go out beyond the window.

        Tenants take turns. The answer says how many: they are on their way. While the bus or the ledger is
        away, none is.
        """
        started = 0
        for workers in self._ready.all_workers():
            if service_of(workers) != service:
                continue

            def may(tenant_id: str, queue_name: str = workers) -> bool:
                bound = tenants is None or tenant_id in tenants
                return bound and self._windows.trusts(queue_name, tenant_id)

            while started < capacity and (tenant_queue := self._first(workers, may)) is not None:
                try:
                    waiting = await self._ready.take(*tenant_queue)
                except LedgerUnavailableError:
                    return started
                if waiting is not None:
                    self._start(tenant_queue, waiting)
                    started += 1
        return started


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

    async def release(self, service: str, capacity: int, tenants: BoundTenants) -> int:
        """Let so many more go out, beyond the window. The answer says how many are on their way."""
        return await self._releases.release_for(service, capacity, tenants)

    def handed_out(self, lease_id: str, seconds: float) -> None:
        """A worker has it, and has so many seconds to acknowledge it."""
        key = self._windows.handed_out(lease_id, seconds)
        if key is not None:
            self._releases.pump(key)
