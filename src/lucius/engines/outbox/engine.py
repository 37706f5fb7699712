"""The outbox engine: load, decide, save, then perform. The ledger is the truth; this only delivers.

On a lane that another process owns it loads, decides, saves and tells the owner: nothing else.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import reduce
from itertools import zip_longest
from typing import Any, Final

from lucius.admission.ingress import Admission, Ingress
from lucius.core.decide import decide, submit
from lucius.core.effects import Decision, Event, Outcome
from lucius.core.errors import (
    LedgerError,
    LedgerUnavailableError,
    RequestError,
)
from lucius.core.handover import left_to_owner
from lucius.core.ids import new_job_id
from lucius.core.inputs import AttemptRequested, Callback, Input, RetryRequested
from lucius.core.job import Job
from lucius.core.states import JobState
from lucius.engines.outbox.alarm import Alarm
from lucius.engines.outbox.cache import JobCache
from lucius.engines.outbox.nudges import Nudges
from lucius.engines.outbox.observer import Observer
from lucius.engines.outbox.owed import OwedEffects
from lucius.engines.outbox.pace import Pace
from lucius.engines.outbox.releases import Releases
from lucius.engines.outbox.waits import Waits
from lucius.engines.outbox.windows import Share
from lucius.ports.engine import Applied, BacklogRow, Submitted
from lucius.ports.lanes import Lanes
from lucius.ports.ledger import (
    Created,
    CreateOutcome,
    Duplicate,
    JobPage,
    JobQuery,
    KeyReused,
    Ledger,
    Limits,
    Saturated,
    Sweeps,
    Unfinished,
)

RACES: Final = 20
"""How often a lost compare-and-swap is tried again before the caller is told."""

A_TURN: Final = 16
"""Jobs that are submitted or answered in one turn of the event loop."""

SATURATED: Final = {
    "tenant": "as many jobs of this tenant are live as LUCIUS_MAX_INFLIGHT_PER_TENANT, or the tenant's own"
    " max_inflight, allows: repeat the request when some have ended",
    "total": "as many jobs are live as LUCIUS_MAX_INFLIGHT allows: repeat the request when some have ended",
    "lane": "as many jobs that share a queue with this one are live as LUCIUS_MAX_INFLIGHT_PER_LANE allows:"
    " repeat the request when some have ended",
}
"""The message of the 429, by the limit that is reached."""
Listener = Callable[[Job | None, Decision], None]
"""Told of every committed decision, with the job as it was before."""
ReadBacklog = Callable[[], Awaitable[Sequence[BacklogRow]]]
Admit = Callable[[str, datetime], Admission]
"""Plans the job of a request under that id, as accepted at that moment."""


class OutboxEngine:
    """One per process. It releases, publishes and remembers on its own lanes; it may save any job."""

    def __init__(
        self,
        ledger: Ledger,
        ingress: Ingress,
        releases: Releases,
        owed: OwedEffects,
        alarm: Alarm,
        nudges: Nudges,
        backlog: ReadBacklog,
        *,
        now: Callable[[], datetime],
        limits: Callable[[str], Limits],
        lanes: Lanes,
        pace: Pace,
        observer: Observer,
        listeners: Sequence[Listener],
        cache_bytes: int,
    ) -> None:
        """`observer` and `listeners` are told of what happened; they ask nothing of the engine."""
        self._ledger = ledger
        self._ingress = ingress
        self._releases = releases
        self._owed = owed
        self._alarm = alarm
        self._nudges = nudges
        self._backlog = backlog
        self._now = now
        self._limits = limits
        self._lanes = lanes
        self._pace = pace
        self._observer = observer
        self._listeners = listeners
        self._cache = JobCache(cache_bytes)
        self._waits = Waits(self._is_owned)
        self._unheard: set[str] = set()
        """Jobs of saves that got no answer: they may have landed."""

    # -- the port ----------------------------------------------------------------------------

    async def submit(
        self, envelope: Mapping[str, Any], *, idempotency_key: str | None = None
    ) -> Submitted:
        await self._pace.turn()
        now = self._now()

        def admit(job_id: str, at: datetime) -> Admission:
            return self._ingress.admit(
                envelope, job_id=job_id, now=at, idempotency_key=idempotency_key
            )

        return await self._create(admit, admit(new_job_id(now), now), now)

    async def redrive(
        self,
        job_id: str,
        *,
        payload: Mapping[str, Any] | None = None,
        said: Mapping[str, str] | None = None,
    ) -> Submitted:
        old = await self.job(job_id)
        if old is None:
            raise RequestError("JOB_NOT_FOUND", "there is no such job", status=404)
        now = self._now()

        def admit(job_id: str, at: datetime) -> Admission:
            return self._ingress.admit_redrive(old, job_id=job_id, now=at, payload=payload)

        admission = admit(new_job_id(now), now)
        if payload is None:  # nothing is said of the payload: any redrive before it is the same
            held = await self._ledger.claimed(admission.claim)
            if isinstance(held, Duplicate | KeyReused):
                return await self._duplicate(held.job_id, admission)
        return await self._create(admit, admission, now, said)

    def heard(self, lease_id: str) -> datetime:
        """A service has answered under this lease, now; what it said is applied later."""
        self._releases.heard(lease_id)
        return self._now()

    async def apply(self, job_id: str, received: Input) -> Applied | None:
        applied = await self.apply_all(job_id, (received,))
        return applied[0] if applied is not None else None

    async def apply_all(
        self, job_id: str, inputs: Sequence[Input], heard_at: Sequence[datetime | None] = ()
    ) -> list[Applied] | None:
        """Decide inputs that came together one by one, in order, and save the outcome once.

        `heard_at`: when each of them came, where that was before now.
        """
        for received in inputs:
            if isinstance(received, Callback):
                self._releases.heard(received.lease_id)
        async with self._cache.lock(job_id):
            if any(isinstance(received, RetryRequested) for received in inputs):
                await self._repair(job_id)
            for _ in range(RACES):
                job = await self._read(job_id)
                if job is None:
                    return None
                decisions = decided(job, inputs, self._now(), heard_at)
                told = any(isinstance(received, AttemptRequested) for received in inputs)
                saved = await self._commit(job, reduce(joined, decisions), told=told)
                if saved is not None:
                    return self._answers(saved, inputs, decisions)
        raise LedgerUnavailableError(f"job {job_id} is being moved by others faster than by us")

    def _answers(
        self, job: Job, inputs: Sequence[Input], decisions: Sequence[Decision]
    ) -> list[Applied]:
        for received, decision in zip(inputs, decisions, strict=True):
            self._observer.applied(received, decision.outcome)
        return [Applied(decision.outcome, job, decision.code) for decision in decisions]

    async def job(self, job_id: str) -> Job | None:
        return await self._read(job_id)

    async def _read(self, job_id: str) -> Job | None:
        """The job from memory if its lane is owned here, else from the ledger."""
        kept = self._cache.get(job_id)
        return (
            kept if kept is not None and self._is_owned(kept) else await self._ledger.load(job_id)
        )

    def _is_owned(self, job: Job) -> bool:
        return job.plan.desk in self._lanes.owned

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

    # -- committing --------------------------------------------------------------------------

    async def _create(
        self,
        admit: Admit,
        admission: Admission,
        now: datetime,
        said: Mapping[str, str] | None = None,
    ) -> Submitted:
        outcome = await self._try_to_create(admission, now, said)
        if isinstance(outcome, Unfinished):  # whoever began it did not live to write the job
            begun = admit(outcome.job_id, outcome.accepted_at)
            outcome = await self._try_to_create(begun, now, said)
        match outcome:
            case Submitted():
                return outcome
            case Duplicate(job_id):
                return await self._duplicate(job_id, admission)
            case KeyReused(job_id):
                raise _reused(admission, job_id)
            case Saturated(scope):
                raise RequestError(
                    f"{'GLOBAL' if scope == 'total' else scope.upper()}_SATURATED",
                    SATURATED[scope],
                    status=429,
                )
            case _:
                raise LedgerUnavailableError("the claim of this request is held without its job")

    async def _try_to_create(
        self, admission: Admission, now: datetime, said: Mapping[str, str] | None
    ) -> CreateOutcome | Submitted:
        decision = submit(admission.plan, now, {**(said or {}), **admission.noted} or None)
        owned = self._is_owned(decision.job)
        decision, reserved = self._prepared(None, decision, owned=owned)
        limits = self._limits(admission.plan.tenant_id)
        try:
            outcome = await self._ledger.create(
                admission.claim, decision.job, decision.events, limits
            )
        finally:
            for share in reserved:
                self._releases.unreserve(share)
        if not isinstance(outcome, Created):
            return outcome
        self._committed(None, decision, owned=owned)
        state = decision.job.state.value
        return Submitted(decision.job.job_id, state, duplicate=False, warnings=admission.warnings)

    async def _duplicate(self, job_id: str, admission: Admission) -> Submitted:
        held = await self.job(job_id)
        state = held.state.value if held is not None else "QUEUED"
        return Submitted(job_id, state, duplicate=True, warnings=admission.warnings)

    async def _commit(self, job: Job, decision: Decision, *, told: bool) -> Job | None:
        """Save and perform. None: someone else moved the job first, so decide again.

        `told`: a workflow asked for it, and hears of what goes out in the answer.
        """
        owned = self._is_owned(job)
        if not decision.changed:
            self._perform(decision, owned=owned)
            return decision.job
        decision, reserved = self._prepared(job, decision, owned=owned, told=told)
        try:
            saved = await self._ledger.save(decision.job, job.version, decision.events)
        except BaseException:
            self._cache.drop(job.job_id)
            if owned or self._lanes.renewal is not None:
                self._unheard.add(job.job_id)
            raise
        finally:
            for share in reserved:
                self._releases.unreserve(share)
        if not saved:
            await self._overtaken(job.job_id)
            return None
        self._committed(job, decision, owned=owned)
        return decision.job

    def _prepared(
        self, before: Job | None, decision: Decision, *, owned: bool, told: bool = False
    ) -> tuple[Decision, list[Share]]:
        """The decision as it is saved: the owner releases what has room, others leave it to the owner."""
        if owned:
            return self._release_at_once(decision, told)
        return left_to_owner(before, decision), []

    def _release_at_once(self, decision: Decision, told: bool) -> tuple[Decision, list[Share]]:
        """Release what has room in the same save. The shares are reserved until that save has ended."""
        reserved: list[Share] = []
        for share, released in self._releases.at_once(decision.job, told=told):
            reserved.append(share)
            release = decide(decision.job, released, self._now())
            if release.outcome is Outcome.APPLIED:
                decision = joined(decision, release)
        return decision, reserved

    async def _overtaken(self, job_id: str) -> None:
        """Another process moved the job: read it, and bring windows and queues in step with it."""
        self._cache.drop(job_id)
        job = await self._ledger.load(job_id)
        if job is not None and self._is_owned(job):
            self._releases.overtaken(job)
            self._observer.took_up(job)
        elif job is not None:
            self._releases.ended(job)

    def _committed(self, before: Job | None, decision: Decision, *, owned: bool) -> None:
        """The save is durable: tell everyone in this process who must know."""
        job = decision.job
        if owned:
            self._cache.put(job)
            self._releases.committed(before, job)
            if job.due_at is not None and (before is None or before.due_at != job.due_at):
                self._alarm.due(job.due_at)
        else:
            self._releases.ended(job)
            if decision.events and job.state is not JobState.QUEUED:
                self._nudges.put(job)
        self._waits.moved(job)
        for listener in self._listeners:
            listener(before, decision)
        self._perform(decision, owned=owned)

    def _perform(self, decision: Decision, *, owned: bool) -> None:
        if owned:
            for effect in decision.effects:
                self._owed.put(decision.job, effect)

    # -- what other processes do -------------------------------------------------------------

    async def look(self, job_id: str) -> Job | None:
        """Read a job that another process may have moved, and bring windows and queues in step with it."""
        async with self._cache.lock(job_id):
            await self._overtaken(job_id)
        return await self.job(job_id)

    async def _repair(self, job_id: str) -> None:
        """A job whose rows for due and ready jobs are lost gets them again; its owner looks at it."""
        if not isinstance(self._ledger, Sweeps) or not await self._ledger.repair(job_id):
            return
        self._cache.drop(job_id)
        job = await self._ledger.load(job_id)
        if job is None:
            return
        if self._is_owned(job):
            self._releases.committed(None, job)
            self._alarm.due(job.due_at or self._now())
        else:
            self._nudges.put(job)

    async def look_again(self) -> None:
        """Read the jobs whose saves got no answer, and bring windows and queues in step with them."""
        for job_id in list(self._unheard):
            async with self._cache.lock(job_id):
                self._cache.drop(job_id)
                try:
                    job = await self._ledger.load(job_id)
                except LedgerUnavailableError:
                    raise
                except LedgerError:
                    job = None  # the ledger has named it
                self._unheard.discard(job_id)
                if job is not None and self._is_owned(job):
                    self.found(job)
                elif job is not None:
                    self._releases.ended(job)

    def found(self, job: Job) -> None:
        """A job of a lane that is taken over: what is out counts here from now on."""
        self._observer.took_up(job)
        self._releases.found(job)

    def forget(self, lanes: Collection[int]) -> None:
        """Forget all that is known about these lanes: they were gained or lost."""
        self._cache.forget(lanes)
        self._observer.forgot(lanes)
        for lane in lanes:
            self._releases.forget(lane)
        self._waits.wake()

    def is_stale(self, job_id: str, due_at: datetime) -> bool:
        """Whether the copy in memory is older than the ledger, which says that the job is due then."""
        known = self._cache.get(job_id)
        return known is not None and known.due_at != due_at

    def forget_ended(self) -> None:
        """Forget the jobs that have ended: some of them were deleted."""
        self._cache.forget_ended()


def _reused(admission: Admission, job_id: str) -> RequestError:
    """The claim is held by a job of another request: the client's key, or the right to redrive."""
    old = admission.plan.redrive_of
    if old is not None:
        detail = f"{old} was redriven as {job_id}, with another payload"
        return RequestError("ALREADY_REDRIVEN", detail, status=409)
    detail = "this idempotency key was used with a different request"
    return RequestError("IDEMPOTENCY_KEY_REUSED", detail, status=409)


def decided(
    job: Job, inputs: Sequence[Input], now: datetime, heard_at: Sequence[datetime | None] = ()
) -> list[Decision]:
    """One decision for each input, each from where the one before it has led."""
    decisions: list[Decision] = []
    for received, at in zip_longest(inputs, heard_at):
        decision = decide(job, received, at or now)
        decisions.append(decision)
        job = decision.job
    return decisions


def joined(first: Decision, second: Decision) -> Decision:
    """Two decisions of one save: the events and effects of both, the outcome of the first."""
    events: tuple[Event, ...] = first.events + second.events
    changed = first.changed or second.changed
    return Decision(second.job, first.outcome, events, first.effects + second.effects, changed)
