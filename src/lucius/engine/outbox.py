"""The outbox engine: the ledger is the truth, this only delivers. Its loop does it: see `loop.py`.

On a lane that another process owns it loads, decides, saves and tells the owner: nothing else.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final

from lucius.core.decide import submit
from lucius.core.effects import Committed, Event
from lucius.core.errors import LedgerError, LedgerUnavailableError, RequestError
from lucius.core.ids import new_job_id
from lucius.core.inputs import Callback, Input, RetryRequested
from lucius.core.job import Job
from lucius.core.plan import Plan
from lucius.engine.admission.ingress import Admission, Ingress
from lucius.engine.cache import JobCache
from lucius.engine.inbox import Inbox, NewJob, Request, Submission, TimedInput, answer
from lucius.engine.loop import EngineLoop
from lucius.engine.observer import Observer
from lucius.engine.releases import Releases
from lucius.ports.engine import Applied, BacklogRow, Submitted
from lucius.ports.ledger import (
    Created,
    CreateOutcome,
    Duplicate,
    JobPage,
    JobQuery,
    KeyReused,
    Ledger,
    LimitReached,
    Limits,
    Sweeps,
    Unfinished,
)

# Who waits for a job to move or to end: woken by the commit where it happens in this process.
#
# Where another process commits, one poller for each job reads the ledger, however many wait.

Waiters = dict[str, set[asyncio.Future[None]]]
Read = Callable[[str], Awaitable[Job | None]]

FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 1.0
"""Seconds between two looks at a job that another process moves."""
SLOWER: Final = 1.5


class Waits(Observer):
    def __init__(self, woken: Callable[[Job], bool]) -> None:
        """`woken`: whether the commits of a job happen here."""
        self._wakes = woken
        self._watchers: Waiters = {}
        self._enders: Waiters = {}
        self._pollers: dict[str, asyncio.Task[None]] = {}
        self._over = False

    async def for_move(self, read: Read, job_id: str, version: int, seconds: float) -> Job | None:
        """Wait until the job's version is past that one, and return the job."""
        moved = lambda job: job.version > version or job.terminal  # noqa: E731
        return await self._until(self._watchers, read, job_id, seconds, moved)

    async def for_end(self, read: Read, job_id: str, seconds: float) -> Job | None:
        return await self._until(self._enders, read, job_id, seconds, lambda job: job.terminal)

    def listen(self, commit: Committed) -> None:
        self.took_up(commit.job)

    def took_up(self, job: Job) -> None:
        """Wake whoever waits for this job: it was committed, here or elsewhere."""
        if job.job_id in self._watchers:
            _wake(self._watchers, job.job_id)
        if job.terminal and job.job_id in self._enders:
            _wake(self._enders, job.job_id)

    def wake(self) -> None:
        """Have everyone who waits look again: the process that commits a job may have changed."""
        for waiting in (self._watchers, self._enders):
            for job_id in tuple(waiting):
                _wake(waiting, job_id)

    def end(self) -> None:
        """The process is about to end: whoever waits is answered with the job as it is."""
        self._over = True
        self.wake()

    async def _until(
        self,
        waiting: Waiters,
        read: Read,
        job_id: str,
        seconds: float,
        enough: Callable[[Job], bool],
    ) -> Job | None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while True:
            with _awaited(
                waiting, job_id
            ) as woken:  # before it is read: a commit meanwhile wakes, too
                job = await read(job_id)
                left = deadline - loop.time()
                if job is None or enough(job) or self._over or left <= 0:
                    return job
                if not self._wakes(job):
                    self._poll(read, job)
                timer = loop.call_later(left, _resolve, woken)
                try:
                    await woken
                finally:
                    timer.cancel()

    # -- polling -----------------------------------------------------------------------------

    def _poll(self, read: Read, job: Job) -> None:
        if job.job_id not in self._pollers:
            self._pollers[job.job_id] = asyncio.create_task(self._look(read, job))

    async def _look(self, read: Read, known: Job) -> None:
        """Poll the job until nobody waits for it any more, or its commits happen in this process."""
        job_id, pause = known.job_id, FIRST_PAUSE
        try:
            while self._is_awaited(job_id):
                await asyncio.sleep(pause)
                job = await read(job_id)
                if job is None or job.version != known.version or self._wakes(job):
                    return
                pause = min(pause * SLOWER, LONGEST_PAUSE)
        except LedgerError:
            return  # whoever waits reads it and says so
        finally:
            del self._pollers[job_id]
            _wake(self._watchers, job_id)
            _wake(self._enders, job_id)

    def _is_awaited(self, job_id: str) -> bool:
        return job_id in self._watchers or job_id in self._enders


@contextmanager
def _awaited(waiting: Waiters, job_id: str) -> "Iterator[asyncio.Future[None]]":
    """A future that `_wake` resolves from here on."""
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting.setdefault(job_id, set()).add(waiter)
    try:
        yield waiter
    finally:
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


SATURATED: Final = {
    "tenant": "{tenant} has {limit} live jobs, and may have {limit} (LUCIUS_MAX_INFLIGHT_PER_TENANT, or the"
    " tenant's own max_inflight): repeat the request when some have ended",
    "total": "{limit} jobs are live, and there may be {limit} (LUCIUS_MAX_INFLIGHT): repeat the request when"
    " some have ended",
    "lane": "{limit} jobs that share a queue with this one are live, and there may be {limit}"
    " (LUCIUS_MAX_INFLIGHT_PER_LANE, in mode BURST LUCIUS_MAX_INFLIGHT_PER_LANE_BURST): repeat the request"
    " when some have ended",
}
"""The message of the 429, by the limit that is reached."""
ReadBacklog = Callable[[], Awaitable[Sequence[BacklogRow]]]
Admit = Callable[[str, datetime], Admission]
"""Plans the job of a request under that id, as accepted at that moment."""


class OutboxEngine:
    """What the rest of the process asks of the loop: thin awaitables over its inbox, and reads."""

    def __init__(
        self,
        inbox: Inbox,
        loop: EngineLoop,
        ledger: Ledger,
        ingress: Ingress,
        cache: JobCache,
        releases: Releases,
        waits: Waits,
        backlog: ReadBacklog,
        *,
        now: Callable[[], datetime],
        limits: Callable[[str], Limits],
    ) -> None:
        self._inbox = inbox
        self._loop = loop
        self._ledger = ledger
        self._ingress = ingress
        self._cache = cache
        self._releases = releases
        self._waits = waits
        self._backlog = backlog
        self._now = now
        self._limits = limits

    # -- the port ----------------------------------------------------------------------------

    async def submit(
        self, envelope: Mapping[str, Any], *, idempotency_key: str | None = None
    ) -> Submitted:
        def admit(job_id: str, at: datetime) -> Admission:
            return self._ingress.admit(
                envelope, job_id=job_id, now=at, idempotency_key=idempotency_key
            )

        return await self._create(admit)

    async def redrive(
        self,
        job_id: str,
        *,
        payload: Mapping[str, Any] | None = None,
        output_ref: Any = None,
        audit: Mapping[str, str] | None = None,
    ) -> Submitted:
        old = await self.job(job_id)
        if old is None:
            raise RequestError(
                "JOB_NOT_FOUND", "job not found, or you have no access to it", status=404
            )

        def admit(job_id: str, at: datetime) -> Admission:
            return self._ingress.admit_redrive(
                old, job_id=job_id, now=at, payload=payload, output_ref=output_ref
            )

        if payload is None and output_ref is None:  # any redrive before it is the same
            now = self._now()
            admission = admit(new_job_id(now), now)
            held = await self._ledger.claimed(admission.claim)
            if isinstance(held, Duplicate | KeyReused):
                return await self._duplicate(held.job_id, admission)
        return await self._create(admit, audit)

    def mark_answered(self, lease_id: str) -> datetime:
        """A service has answered under this lease, now; what it said is applied later."""
        self._releases.mark_answered(lease_id)
        return self._now()

    async def apply(self, job_id: str, received: Input) -> Applied | None:
        if isinstance(received, Callback):
            self._releases.mark_answered(received.lease_id)
        if isinstance(received, RetryRequested):
            await self._repair(job_id)
        _, applied = await self.ask(job_id, lambda job: ((received, None),))
        return applied[0] if applied else None

    async def ask(
        self, job_id: str, inputs: Callable[[Job], Sequence[TimedInput]], *, fresh: bool = False
    ) -> tuple[Job | None, Sequence[Applied]]:
        """Decide inputs that depend on how the job stands by then, and wait until that is durable.

        `fresh`: read the job from the ledger first.
        """
        asked: asyncio.Future[tuple[Job | None, Sequence[Applied]]]
        asked = asyncio.get_running_loop().create_future()

        def failed(error: BaseException) -> bool:
            answer(asked, error)
            return False

        self._inbox.post(
            Request(
                job_id,
                inputs,
                lambda job, applied: answer(asked, (job, applied)),
                failed,
                open=lambda: not asked.done(),  # who has given up waiting is not served
                fresh=fresh,
            )
        )
        return await asked

    def post(self, request: Request) -> None:
        """Have it decided in one of the next turns. Whoever asked hears of it by the request itself."""
        self._inbox.post(request)

    async def job(self, job_id: str) -> Job | None:
        """From memory if its lane is owned here, else from the ledger."""
        return self._loop.known(job_id) or await self._ledger.load(job_id)

    async def wait(self, job_id: str, version: int, seconds: float) -> Job | None:
        return await self._waits.for_move(self.job, job_id, version, seconds)

    async def ended(self, job_id: str, seconds: float) -> Job | None:
        return await self._waits.for_end(self.job, job_id, seconds)

    async def events(self, job_id: str, after: int, limit: int) -> Sequence[Event]:
        return await self._ledger.events(job_id, after, limit)

    async def jobs(self, query: JobQuery) -> JobPage:
        return await self._ledger.list(query)

    async def count(self, query: JobQuery) -> int:
        return await self._ledger.count(query)

    async def backlog(self) -> Sequence[BacklogRow]:
        return await self._backlog()

    async def unreadable(self) -> int:
        return await self._ledger.unreadable()

    def end_waits(self) -> None:
        self._waits.end()

    # -- new jobs ----------------------------------------------------------------------------

    async def _create(self, admit: Admit, audit: Mapping[str, str] | None = None) -> Submitted:
        new, outcome = await self._submitted(admit, audit)
        if isinstance(outcome, Unfinished):  # whoever began it did not live to write the job
            begun = outcome
            new, outcome = await self._submitted(
                lambda job_id, at: admit(begun.job_id, begun.accepted_at), audit
            )
        admission, job = new.admission, new.decision.job
        match outcome:
            case Created():
                warnings = admission.warnings
                return Submitted(job.job_id, job.state.value, duplicate=False, warnings=warnings)
            case Duplicate(job_id):
                return await self._duplicate(job_id, admission)
            case KeyReused(job_id):
                raise _reused(admission, job_id)
            case LimitReached(scope):
                raise _saturated(scope, new.limits, admission.plan)
            case _:
                raise LedgerUnavailableError("the claim of this request is held without its job")

    async def _submitted(
        self, admit: Admit, audit: Mapping[str, str] | None
    ) -> tuple[NewJob, CreateOutcome]:
        def plan(now: datetime) -> NewJob:
            admission = admit(new_job_id(now), now)
            decision = submit(admission.plan, now, {**(audit or {}), **admission.noted} or None)
            return NewJob(admission, decision, self._limits(admission.plan.tenant_id))

        submission = Submission(plan)
        self._inbox.put(submission)
        return await submission.answer

    async def _duplicate(self, job_id: str, admission: Admission) -> Submitted:
        held = await self.job(job_id)
        state = held.state.value if held is not None else "QUEUED"
        return Submitted(job_id, state, duplicate=True, warnings=admission.warnings)

    # -- what other processes do -------------------------------------------------------------

    async def look(self, job_id: str) -> Job | None:
        """Read a job that another process may have moved, and bring windows and queues in step with it."""
        return (await self.ask(job_id, lambda job: (), fresh=True))[0]

    async def _repair(self, job_id: str) -> None:
        """A job whose rows for due and ready jobs are lost gets them again; its owner looks at it."""
        if isinstance(self._ledger, Sweeps) and await self._ledger.repair(job_id):
            job = await self.look(job_id)
            if job is not None:
                self._loop.repaired(job)

    def found(self, job: Job) -> None:
        """A job of a lane that is taken over: what is out counts here from now on."""
        self._loop.found(job)

    def forget(self, lanes: Collection[int]) -> None:
        """Forget all that is known about these lanes: they were gained or lost."""
        self._loop.forget(lanes)
        self._waits.wake()

    def is_stale(self, job_id: str, due_at: datetime) -> bool:
        """Whether the copy in memory is older than the ledger, which says that the job is due then."""
        known = self._cache.get(job_id)
        return known is not None and known.due_at != due_at

    def forget_ended(self) -> None:
        """Forget the jobs that have ended: some of them were deleted."""
        self._cache.forget_ended()


def _saturated(scope: str, limits: Limits, plan: Plan) -> RequestError:
    of_lane = limits.of_lane(plan.routing.resolved_mode)
    limit = {"tenant": limits.tenant, "total": limits.total, "lane": of_lane}[scope]
    code = f"{'GLOBAL' if scope == 'total' else scope.upper()}_SATURATED"
    detail = SATURATED[scope].format(tenant=plan.tenant_id, limit=limit)
    return RequestError(code, detail, status=429)


def _reused(admission: Admission, job_id: str) -> RequestError:
    """The claim is held by a job of another request: the client's key, or the right to redrive."""
    old = admission.plan.redrive_of
    if old is not None:
        detail = f"{old} was redriven as {job_id}, with another payload or output"
        return RequestError("ALREADY_REDRIVEN", detail, status=409)
    detail = "this idempotency key was used with a different request"
    return RequestError("IDEMPOTENCY_KEY_REUSED", detail, status=409)
