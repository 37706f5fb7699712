"""The engine's loop: inbox, turn, commit, effects. No task, no lock and no future for each job.

A turn takes what is in the inbox up to a bound, decides each input in the order of its job, and hands the
ledger one batch. When a save has returned, its effects are performed: who listens and who waits is told.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from itertools import islice
from typing import Final, NamedTuple

from lucius.core.decide import decide
from lucius.core.effects import (
    Committed,
    Decision,
    Effect,
    Event,
    Outcome,
    PublishDirective,
    committed,
)
from lucius.core.errors import LedgerUnavailableError
from lucius.core.inputs import AttemptRequested
from lucius.core.job import Job
from lucius.engine.cache import JobCache, left_to_owner
from lucius.engine.clock import Tasks
from lucius.engine.inbox import (
    Inbox,
    InboxItem,
    Loaded,
    NewJob,
    Request,
    Submission,
    TimedInput,
    answer,
)
from lucius.engine.observer import Observer
from lucius.engine.releases import Releases
from lucius.engine.windows import TenantQueue
from lucius.ports.engine import Applied
from lucius.ports.lanes import Lanes
from lucius.ports.ledger import Created, JobCreate, JobSave, Ledger, Write, WriteOutcome

OwedDirective = tuple[Job, PublishDirective]


class OwedEffects:
    """Directives by lease, in order: one that is asked for again while it waits is published once."""

    def __init__(self) -> None:
        self._directives: dict[str, OwedDirective] = {}
        self._others: deque[tuple[Job, Effect]] = deque()
        self._directive = asyncio.Event()
        self._other = asyncio.Event()

    def put(self, job: Job, effect: Effect) -> None:
        if isinstance(effect, PublishDirective):
            self._directives[effect.lease_id] = (job, effect)
            self._directive.set()
        else:
            self._others.append((job, effect))
            self._other.set()

    def put_back(self, directives: list[OwedDirective]) -> None:
        """Put directives first again: they could not be published."""
        again = {effect.lease_id: (job, effect) for job, effect in directives}
        self._directives = again | self._directives
        self._directive.set()

    def directives(self, most: int) -> list[OwedDirective]:
        return [self._directives.pop(lease_id) for lease_id in list(islice(self._directives, most))]

    async def directive_came(self) -> None:
        """Wait until another directive is put here."""
        self._directive.clear()
        await self._directive.wait()

    @property
    def has_directives(self) -> bool:
        return bool(self._directives)

    async def others(self) -> list[tuple[Job, Effect]]:
        """Wait for effects other than directives, and take all of them."""
        while not self._others:
            self._other.clear()
            await self._other.wait()
        found = list(self._others)
        self._others.clear()
        return found


RACES: Final = 20
"""How often a lost compare-and-swap is tried again before the caller is told."""
Listener = Callable[[Committed], None]
"""Told of every commit."""


class _Save:
    """A job as a turn leaves it: all decisions of one save, and who is told of them."""

    __slots__ = (
        "before",
        "changed",
        "decided",
        "decision",
        "effects",
        "events",
        "job",
        "new",
        "outcome",
        "owned",
        "reserved",
        "submission",
        "term",
    )

    def __init__(self, before: Job | None, job: Job, *, owned: bool, term: int) -> None:
        """`term`: how often the job's lane had been gained or lost when this was decided."""
        self.before = before
        self.job = job
        self.owned = owned
        self.term = term
        self.outcome: Outcome | None = None
        self.events: tuple[Event, ...] = ()
        self.effects: tuple[Effect, ...] = ()
        self.changed = False
        self.reserved: list[TenantQueue] = []
        """Room in windows that is taken until the save has ended."""
        self.decided: list[tuple[Request, Sequence[TimedInput], Sequence[Decision]]] = []
        self.submission: Submission | None = None
        self.new: NewJob | None = None

    def add(self, decisions: Sequence[Decision]) -> None:
        """The events and effects of all, the outcome of the first, the job of the last."""
        for decision in decisions:
            self.outcome = self.outcome or decision.outcome
            self.job = decision.job
            self.events += decision.events
            self.effects += decision.effects
            self.changed = self.changed or decision.changed

    def sealed(self) -> Decision:
        """As it is saved: what others than the owner leave to do is due at once."""
        outcome = self.outcome or Outcome.ALREADY
        decision = Decision(self.job, outcome, self.events, self.effects, self.changed)
        self.decision = decision if self.owned else left_to_owner(self.before, decision)
        return self.decision

    @property
    def mail(self) -> list[Request]:
        return [request for request, _, _ in self.decided]


class _Batch(NamedTuple):
    """What a turn hands to the ledger: a save for each write, at the same place."""

    saves: list[_Save]
    writes: list[Write]

    def add(self, save: _Save, write: Write) -> None:
        self.saves.append(save)
        self.writes.append(write)


class EngineLoop:
    """One per process. It releases, publishes and remembers on its own lanes; it may save any job."""

    def __init__(
        self,
        inbox: Inbox,
        ledger: Ledger,
        cache: JobCache,
        releases: Releases,
        owed: OwedEffects,
        tasks: Tasks,
        *,
        lanes: Lanes,
        now: Callable[[], datetime],
        observer: Observer,
        listeners: Sequence[Listener],
    ) -> None:
        """`observer` and `listeners` are told of what happened; they ask nothing of the engine."""
        self._inbox = inbox
        self._ledger = ledger
        self._cache = cache
        self._releases = releases
        self._owed = owed
        self._tasks = tasks
        self._lanes = lanes
        self._now = now
        self._observer = observer
        self._listeners = listeners
        self._doubtful: set[str] = set()
        """Jobs whose last write may or may not be stored: the ledger did not say."""
        self._terms: Counter[int] = Counter()
        """How often each lane was gained or lost: what was counted before counts no more."""
        inbox.read_by(self._turn)

    # -- turn --------------------------------------------------------------------------------

    def _turn(self, items: list[InboxItem]) -> None:
        self._releases.take_turn()
        batch = _Batch([], [])
        for item in items:
            if isinstance(item, Submission):
                self._create(item, batch)
            elif isinstance(item, Loaded):
                self._decide(item.job, item.mail, batch)
            else:
                self._move(item, batch)
        if batch.saves:
            self._tasks.spawn(self._save(batch))

    def _move(self, job_id: str, batch: _Batch) -> None:
        """Decide what came for a job that is in memory; read any other first."""
        mail, fresh = list[Request](), False
        for request in self._inbox.mail_of(job_id):
            try:
                if request.open():
                    mail.append(request)
                    fresh = fresh or request.fresh
            except Exception as error:
                self._fail(request, error)
        if not mail:
            self._inbox.free(job_id)
        elif fresh:
            self._read_again(job_id, mail)
        elif (job := self.known(job_id)) is not None:
            self._decide(job, mail, batch)
        else:
            self._tasks.spawn(self._read(job_id, mail, fresh=False))

    def known(self, job_id: str) -> Job | None:
        """The job from memory, if its lane is owned here."""
        kept = self._cache.get(job_id)
        return kept if kept is not None and kept.plan.shard in self._lanes.owned else None

    def _read_again(self, job_id: str, mail: list[Request]) -> None:
        self._cache.drop(job_id)
        self._tasks.spawn(self._read(job_id, mail, fresh=True))

    async def _read(self, job_id: str, mail: list[Request], *, fresh: bool) -> None:
        """`fresh`: another process moved it, so windows and queues are brought in step with it."""
        try:
            job = await self._ledger.load(job_id)
        except BaseException as error:
            self._failed(job_id, mail, error)
            if isinstance(error, Exception):
                return
            raise
        if job is None:
            self._answer(job_id, None, [(request, (), ()) for request in mail])
            return
        if fresh and job.plan.shard in self._lanes.owned:
            if job_id in self._doubtful:
                self._releases.caught_up(job)
            self._releases.overtaken(job)
            self._observer.took_up(job)
        elif fresh:
            self._releases.ended(job)
        self._inbox.put(Loaded(job, mail))

    # -- deciding ----------------------------------------------------------------------------

    def _decide(self, job: Job, mail: list[Request], batch: _Batch) -> None:
        save, now = self._begun(job, job), self._now()
        for request in mail:
            try:
                self._add(save, request, now)
            except Exception as error:
                self._fail(request, error)
        if not save.changed:
            self._unreserve(save)
            for effect in save.effects if save.owned else ():
                self._owed.put(save.job, effect)
            self._answer(job.job_id, save.job, save.decided)
            return
        try:
            decision = save.sealed()
        except Exception as error:
            self._unreserve(save)
            self._failed(job.job_id, save.mail, error)
            return
        batch.add(save, JobSave(decision.job, job.version, decision.events))

    def _begun(self, before: Job | None, job: Job) -> _Save:
        lane = job.plan.shard
        owned = lane in self._lanes.owned
        return _Save(before, job, owned=owned, term=self._terms[lane])

    def _add(self, save: _Save, request: Request, now: datetime) -> None:
        """Decide the inputs of one request one by one, each from where the one before it has led."""
        given, job = request.inputs(save.job), save.job
        decisions, changed, told = list[Decision](), False, False
        for received, at in given:
            decision = decide(job, received, at or now)
            decisions.append(decision)
            job, changed = decision.job, changed or decision.changed
            told = told or isinstance(received, AttemptRequested)
        releases: Sequence[Decision] = ()
        if save.owned and changed:
            releases = self._released_at_once(save, job, told=told)
        save.add(decisions)
        save.add(releases)
        save.decided.append((request, given, decisions))

    def _released_at_once(self, save: _Save, job: Job, *, told: bool) -> list[Decision]:
        """Release what has room in the same save. The shares are reserved until that save has ended.

        `told`: a workflow asked for it, and hears of what goes out in the answer.
        """
        releases: list[Decision] = []
        for tenant_queue, released in self._releases.at_once(job, told=told):
            save.reserved.append(tenant_queue)
            release = decide(job, released, self._now())
            if release.outcome is Outcome.APPLIED:
                releases.append(release)
                job = release.job
        return releases

    def _create(self, submission: Submission, batch: _Batch) -> None:
        if submission.answer.done():
            return
        try:
            new = submission.plan(self._now())
        except Exception as error:
            answer(submission.answer, error)
            return
        save = self._begun(None, new.decision.job)
        try:
            save.add([new.decision])
            if save.owned:
                save.add(self._released_at_once(save, save.job, told=False))
            decision = save.sealed()
        except Exception as error:
            self._unreserve(save)
            answer(submission.answer, error)
            return
        save.submission, save.new = submission, new._replace(decision=decision)
        claim, limits = new.admission.claim, new.limits
        batch.add(save, JobCreate(claim, decision.job, decision.events, limits))

    # -- commit ------------------------------------------------------------------------------

    async def _save(self, batch: _Batch) -> None:
        left = dict(enumerate(batch.saves))

        def answered(outcomes: Sequence[tuple[int, WriteOutcome]]) -> None:
            for place, outcome in outcomes:
                self._saved(left.pop(place), outcome)

        try:
            await self._ledger.save_all(batch.writes, answered)
        except BaseException as error:
            for save in left.values():
                self._saved(save, error)
            if not isinstance(error, Exception):
                raise

    def _saved(self, save: _Save, outcome: WriteOutcome | BaseException) -> None:
        job = save.decision.job
        self._unreserve(save)
        if isinstance(outcome, Exception) and (save.owned or self._lanes.renewal is not None):
            self._doubt(job.job_id)
        if outcome is True or isinstance(outcome, Created):
            try:
                self._committed(save)
            except Exception as error:  # it is saved, and somebody was not told
                outcome = error
        if save.submission is not None:
            failed = isinstance(outcome, BaseException)
            answer(save.submission.answer, outcome if failed else (save.new, outcome))
        elif outcome is True:
            self._answer(job.job_id, job, save.decided)
        elif outcome is False:
            self._overtaken(job.job_id, save.mail)
        else:
            assert isinstance(outcome, BaseException), f"{outcome!r} is no answer to a save"
            self._failed(job.job_id, save.mail, outcome)

    def _unreserve(self, save: _Save) -> None:
        for tenant_queue in save.reserved:
            self._releases.unreserve(tenant_queue)

    def _doubt(self, job_id: str) -> None:
        """Nobody knows whether the write is stored. What is held or out by then counts once it is read.

        It is what was read that counts, not what other mail of the same turn makes of it.

        A process that owns no lanes counts nothing.
        """
        if job_id in self._doubtful:
            return
        self._doubtful.add(job_id)

        def failed(error: BaseException) -> bool:
            if isinstance(error, LedgerUnavailableError):
                return True
            self._doubtful.discard(job_id)
            raise error

        known = lambda job, applied: self._doubtful.discard(job_id)  # noqa: E731
        self._inbox.post(Request(job_id, lambda job: (), known, failed, fresh=True))

    def _overtaken(self, job_id: str, mail: list[Request]) -> None:
        """Another process saved the job first: read it and decide again, unless that goes on and on."""
        for request in mail:
            request.races += 1
            if request.races == RACES:
                said = f"job {job_id} is being moved by others faster than by us"
                self._fail(request, LedgerUnavailableError(said))
        self._read_again(job_id, [request for request in mail if request.races < RACES])

    def _failed(self, job_id: str, mail: Sequence[Request], error: BaseException) -> None:
        """Nobody knows what is stored, so the next one reads it."""
        self._cache.drop(job_id)
        for request in mail:
            self._fail(request, error)
        self._inbox.free(job_id)

    def _fail(self, request: Request, error: BaseException) -> None:
        trace = error.__traceback__
        try:
            if request.failed(error):
                self._inbox.post_later(request)
        except BaseException as unheard:
            self._tasks.report(unheard)
        finally:
            error.__traceback__ = (
                trace  # one error fails many requests, and each that raises it adds to it
            )

    # -- effects -----------------------------------------------------------------------------

    def _committed(self, save: _Save) -> None:
        """The save is durable: tell everyone in this process who must know."""
        still_owned = save.owned and save.term == self._terms[save.job.plan.shard]
        commit = committed(save.before, save.decision, owned=still_owned)
        if still_owned:
            self._cache.put(commit.job)
        else:  # a lease that has lapsed may be trusted again without a takeover
            self._cache.drop(commit.job.job_id)
        if (
            save.owned and not still_owned
        ):  # whoever took the lane over may have read the job before
            self._doubt(commit.job.job_id)
        for listener in self._listeners:
            listener(commit)
        if save.owned:
            for effect in save.decision.effects:
                self._owed.put(commit.job, effect)

    def _answer(
        self,
        job_id: str,
        job: Job | None,
        decided: Sequence[tuple[Request, Sequence[TimedInput], Sequence[Decision]]],
    ) -> None:
        """Tell who asked. The job is free for what came meanwhile, whatever the answers lead to."""
        for request, given, decisions in decided:
            try:
                for (received, _), one in zip(given, decisions, strict=True):
                    self._observer.applied(received, one.outcome)
                applied = [Applied(one.outcome, job, one.code) for one in decisions] if job else ()
                request.answered(job, applied)
            except Exception as error:
                self._tasks.report(error)
        self._inbox.free(job_id)

    # -- what other processes do -------------------------------------------------------------

    def found(self, job: Job) -> None:
        """A job of a lane that is taken over: what is out counts here from now on."""
        self._observer.took_up(job)
        self._releases.found(job)

    def repaired(self, job: Job) -> None:
        """Its rows in the ledger were lost and are back: what is ready of it waits here again."""
        if job.plan.shard in self._lanes.owned:
            self._releases.caught_up(job)

    def forget(self, lanes: Collection[int]) -> None:
        """Forget all that is known about these lanes: they were gained or lost."""
        self._cache.forget(lanes)
        self._terms.update(lanes)
        self._observer.forgot(lanes)
        for lane in lanes:
            self._releases.forget(lane)
