"""The outbox engine: load, decide, save, then perform. The ledger is the truth; this only delivers."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any, Final

from lucius.core.decide import decide, submit
from lucius.core.effects import Decision, Effect, Event, Outcome
from lucius.core.errors import LedgerUnavailableError, RequestError
from lucius.core.ids import new_job_id, new_lease_id
from lucius.core.inputs import Callback, EntryReleased, Input
from lucius.core.job import Job, Step
from lucius.core.routing import LANES
from lucius.core.states import AbortReason, StepState
from lucius.engines.cache import JobCache
from lucius.engines.ingress import Admission, Ingress
from lucius.engines.observer import Incident, Observer
from lucius.engines.outage import persistently
from lucius.engines.ready import ReadyQueues, Waiting
from lucius.engines.window import Key, Windows
from lucius.ports.engine import Applied, Submitted
from lucius.ports.ledger import Created, Duplicate, KeyReused, Ledger, Limits, Saturated

ALL_LANES: Final = frozenset(range(LANES))
RACES: Final = 20
"""How often a lost compare-and-swap is tried again before the caller is told."""

Waiters = dict[str, set[asyncio.Future[None]]]
"""Who waits for a job to move, or to end."""
Listener = Callable[[Job | None, Decision], None]
"""Told of every committed decision, with the job as it was before."""


class OutboxEngine:
    """One per process. It releases and publishes only on the lanes it owns; it may save any job."""

    def __init__(
        self,
        ledger: Ledger,
        ingress: Ingress,
        *,
        now: Callable[[], datetime],
        limits: Callable[[str], Limits] = lambda tenant_id: Limits(),
        lanes: Collection[int] = ALL_LANES,
    ) -> None:
        self.ledger = ledger
        self.now = now
        self.lanes = frozenset(lanes)
        self.windows = Windows(lambda: asyncio.get_running_loop().time())
        self.ready = ReadyQueues(ledger)
        self.cache = JobCache()
        self.listeners: list[Listener] = []
        self.observer = Observer()
        self.perform: Callable[[Job, Effect], None] = lambda job, effect: None
        self.woken: Callable[[datetime], None] = lambda due_at: None
        self._ingress = ingress
        self._limits = limits
        self._watchers: Waiters = {}
        self._enders: Waiters = {}
        self._hurried = False
        self._pumping: set[Key] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    # -- the port ----------------------------------------------------------------------------

    async def submit(
        self, envelope: Mapping[str, Any], *, idempotency_key: str | None = None
    ) -> Submitted:
        now = self.now()
        admission = self._ingress.admit(
            envelope, job_id=new_job_id(now), now=now, idempotency_key=idempotency_key
        )
        return await self._create(admission, now)

    async def redrive(self, job_id: str, *, payload: Mapping[str, Any] | None = None) -> Submitted:
        old = await self.job(job_id)
        if old is None:
            raise RequestError("JOB_NOT_FOUND", "there is no such job", status=404)
        now = self.now()
        admission = self._ingress.admit_redrive(
            old, job_id=new_job_id(now), now=now, payload=payload
        )
        if (
            payload is None
        ):  # it says nothing about the payload, so any redrive before it is the same
            held = await self.ledger.claimed(admission.claim)
            if held is not None:
                return await self._duplicate(held.job_id)
        return await self._create(admission, now)

    async def apply(self, job_id: str, received: Input) -> Applied | None:
        if isinstance(received, Callback):
            self.windows.heard(received.lease_id)
        async with self.cache.lock(job_id):
            for _ in range(RACES):
                job = self.cache.get(job_id) or await self.ledger.load(job_id)
                if job is None:
                    return None
                decision = decide(job, received, self.now())
                saved = await self._commit(job, decision)
                if saved is not None:
                    self.observer.applied(received, decision.outcome)
                    return Applied(decision.outcome, saved, decision.code)
        raise LedgerUnavailableError(f"job {job_id} is being moved by others faster than by us")

    async def job(self, job_id: str) -> Job | None:
        return self.cache.get(job_id) or await self.ledger.load(job_id)

    async def wait(self, job_id: str, version: int, seconds: float) -> Job | None:
        return await self._wait(
            self._watchers, job_id, seconds, lambda job: job.version > version or job.terminal
        )

    async def ended(self, job_id: str, seconds: float) -> Job | None:
        return await self._wait(self._enders, job_id, seconds, lambda job: job.terminal)

    async def _wait(
        self, waiting: "Waiters", job_id: str, seconds: float, enough: Callable[[Job], bool]
    ) -> Job | None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        job = await self.job(job_id)
        while job is not None and not enough(job) and not self._hurried:
            if (left := deadline - loop.time()) <= 0:
                break
            await _woken(waiting, job_id, left)
            job = await self.job(job_id)
        return job

    def end_waits(self) -> None:
        """The process is about to end: whoever waits is answered with the job as it is."""
        self._hurried = True
        for waiting in (self._watchers, self._enders):
            for job_id in tuple(waiting):
                _wake(waiting, job_id)

    # -- committing --------------------------------------------------------------------------

    async def _create(self, admission: Admission, now: datetime) -> Submitted:
        decision = submit(admission.plan, now)
        released, reserved = self._release_at_once(decision)
        limits = self._limits(admission.plan.tenant_id)
        try:
            outcome = await self.ledger.create(
                admission.claim, released.job, released.events, limits
            )
        finally:
            for key in reserved:
                self.windows.unreserve(key)
        match outcome:
            case Created():
                self._committed(None, released)
                return Submitted(released.job.job_id, released.job.state.value, duplicate=False)
            case Duplicate(job_id):
                return await self._duplicate(job_id)
            case KeyReused(job_id):
                raise _reused(admission, job_id)
            case Saturated(scope):
                raise RequestError(
                    f"{'GLOBAL' if scope == 'total' else scope.upper()}_SATURATED",
                    f"the limit of live jobs ({scope}) is reached: try again later",
                    status=429,
                )

    async def _duplicate(self, job_id: str) -> Submitted:
        held = await self.job(job_id)
        state = held.state.value if held is not None else "QUEUED"
        return Submitted(job_id, state, duplicate=True)

    async def _commit(self, job: Job, decision: Decision) -> Job | None:
        """Save and perform. None: someone else moved the job first, so decide again."""
        if not decision.changed:
            self._perform(decision)
            return decision.job
        released, reserved = self._release_at_once(decision)
        try:
            saved = await self.ledger.save(released.job, job.version, released.events)
        except BaseException:
            self.cache.drop(job.job_id)
            raise
        finally:
            for key in reserved:
                self.windows.unreserve(key)
        if not saved:
            await self._overtaken(job)
            return None
        self._committed(job, released)
        return released.job

    def _release_at_once(self, decision: Decision) -> tuple[Decision, list[Key]]:
        """Entries that the window has room for, and for which nobody waits, go out in the same save."""
        reserved: list[Key] = []
        job = decision.job
        if job.plan.routing.lane not in self.lanes:
            return decision, reserved
        for planned, step in zip(job.plan.steps, job.steps, strict=True):
            if step.state is not StepState.DISPATCHING:
                continue
            key = (planned.service, job.plan.routing.lane)
            if not step.ready or self.ready.waits(key) or not self.windows.room(key):
                continue
            release = decide(
                decision.job, EntryReleased(planned.step_id, new_lease_id()), self.now()
            )
            if release.outcome is Outcome.APPLIED:
                self.windows.reserve(key)
                reserved.append(key)
                decision = joined(decision, release)
        return decision, reserved

    def _committed(self, before: Job | None, decision: Decision) -> None:
        """From here on everyone may see it."""
        job = decision.job
        self.cache.put(job)
        if job.plan.routing.lane in self.lanes:
            self._account(before, job)
            if job.due_at is not None and (before is None or before.due_at != job.due_at):
                self.woken(job.due_at)
        if job.job_id in self._watchers:
            _wake(self._watchers, job.job_id)
        if job.terminal and job.job_id in self._enders:
            _wake(self._enders, job.job_id)
        for listener in self.listeners:
            listener(before, decision)
        self._perform(decision)

    def _perform(self, decision: Decision) -> None:
        if decision.job.plan.routing.lane in self.lanes:
            for effect in decision.effects:
                self.perform(decision.job, effect)

    # -- windows -----------------------------------------------------------------------------

    def _account(self, before: Job | None, job: Job) -> None:
        """Keep windows and ready queues in step with what was committed."""
        lane = job.plan.routing.lane
        for index, (planned, step) in enumerate(zip(job.plan.steps, job.steps, strict=True)):
            earlier = before.steps[index] if before is not None else None
            if step is earlier:
                continue
            key = (planned.service, lane)
            if earlier is not None:
                self._close_ended(key, earlier, job, index)
            if step.unacked:
                self.windows.opened(key, step.executions[-1].exec_id)
            if step.ready and not (earlier is not None and earlier.ready):
                self.ready.add(key, job.tenant_id, Waiting(job.job_id, planned.step_id))
                self.pump(key)

    async def _overtaken(self, known: Job) -> None:
        """Someone else moved the job: whatever it ended no longer counts against our windows."""
        self.cache.drop(known.job_id)
        job = await self.ledger.load(known.job_id)
        if job is None or job.plan.routing.lane not in self.lanes:
            return
        for index, (planned, earlier) in enumerate(zip(job.plan.steps, known.steps, strict=True)):
            self._close_ended((planned.service, job.plan.routing.lane), earlier, job, index)

    def _close_ended(self, key: Key, earlier: Step, job: Job, index: int) -> None:
        """The lease that was out before is acknowledged or over by now."""
        step = job.steps[index]
        if not earlier.unacked:
            return
        lease_id = earlier.executions[-1].exec_id
        if not (step.unacked and step.executions[-1].exec_id == lease_id):
            self._closed(key, lease_id, job, index)

    def _closed(self, key: Key, lease_id: str, job: Job, index: int) -> None:
        step = job.steps[index]
        execution = next((e for e in step.executions if e.exec_id == lease_id), None)
        if execution is not None and execution.started_at is not None:
            self.windows.acknowledged(lease_id)
        elif step.state is not StepState.CANCELLED and (
            execution is not None and execution.reason is AbortReason.ACK_TIMEOUT
        ):
            self.windows.timed_out(lease_id)
        else:
            self.windows.withdrawn(lease_id)
        self.pump(key)

    def recovered(self, job: Job) -> None:
        """A job found at the start: what is out counts against the window again."""
        self.observer.took_up(job)
        for planned, step in zip(job.plan.steps, job.steps, strict=True):
            if step.unacked:
                key = (planned.service, job.plan.routing.lane)
                self.windows.opened(key, step.executions[-1].exec_id)

    def pump_all(self) -> None:
        for key in self.ready.lines():
            self.pump(key)

    def pump(self, key: Key) -> None:
        """Release what waits while there is room; one pump a key at a time."""
        if key in self._pumping or not self.ready.waits(key) or not self.windows.room(key):
            return
        self._pumping.add(key)
        self.spawn(self._pump(key))

    async def _pump(self, key: Key) -> None:
        try:
            while self.windows.room(key) and self.ready.waits(key):
                waiting = await persistently(lambda: self.ready.take(key))
                if waiting is None:
                    break
                self.windows.reserve(key)
                self.spawn(self._release(key, waiting))
        finally:
            self._pumping.discard(key)

    async def _release(self, key: Key, waiting: Waiting) -> None:
        try:
            released = EntryReleased(waiting.step_id, new_lease_id())
            await persistently(lambda: self.apply(waiting.job_id, released))
        finally:
            self.windows.unreserve(key)
            self.ready.settle(waiting)
            self.pump(key)

    def spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failed(error)

    def failed(self, error: BaseException) -> None:
        """A background task failed: the job stays due, so the reconciler comes back to it."""
        self.observer.incident(Incident.TASK_FAILED, type(error).__name__)
        asyncio.get_running_loop().call_exception_handler(
            {"message": "a task of the engine failed", "exception": error}
        )

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _reused(admission: Admission, job_id: str) -> RequestError:
    """The claim is held by a job of another request: the client's key, or the right to redrive."""
    old = admission.plan.redrive_of
    if old is not None:
        detail = f"{old} was redriven as {job_id}, with another payload"
        return RequestError("ALREADY_REDRIVEN", detail, status=409)
    detail = "this idempotency key was used with a different request"
    return RequestError("IDEMPOTENCY_KEY_REUSED", detail, status=409)


def joined(first: Decision, second: Decision) -> Decision:
    """Two decisions of one save: the events and effects of both, the outcome of the first."""
    events: tuple[Event, ...] = first.events + second.events
    return Decision(second.job, first.outcome, events, first.effects + second.effects)


async def _woken(waiting: Waiters, job_id: str, seconds: float) -> None:
    """Until `_wake` is called for the job, or so many seconds have passed."""
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()
    timer = loop.call_later(seconds, _resolve, waiter)
    waiting.setdefault(job_id, set()).add(waiter)
    try:
        await waiter
    finally:
        timer.cancel()
        waiters = waiting.get(job_id)
        if waiters is not None:
            waiters.discard(waiter)
            if not waiters:
                del waiting[job_id]


def _wake(waiting: Waiters, job_id: str) -> None:
    for waiter in waiting.pop(job_id, ()):
        _resolve(waiter)


def _resolve(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
