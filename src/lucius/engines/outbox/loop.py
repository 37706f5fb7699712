"""The engine's loop: inbox, turn, commit, effects. No task, no lock and no future for each job.

A turn takes what is in the inbox up to a bound, decides each input in the order of its job, and hands the
ledger one batch. When a save has returned, its effects are performed: who listens and who waits is told.
"""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from lucius.core.decide import decide
from lucius.core.effects import Committed, Decision, Effect, Event, Outcome, committed
from lucius.core.errors import LedgerUnavailableError
from lucius.core.handover import left_to_owner
from lucius.core.inputs import AttemptRequested, Input
from lucius.core.job import Job
from lucius.engines.outbox.cache import JobCache
from lucius.engines.outbox.inbox import Inbox, Loaded, Request, Submission
from lucius.engines.outbox.observer import Observer
from lucius.engines.outbox.owed import OwedEffects
from lucius.engines.outbox.releases import Releases
from lucius.engines.outbox.tasks import Tasks
from lucius.engines.outbox.windows import Share
from lucius.ports.engine import Applied
from lucius.ports.lanes import Lanes
from lucius.ports.ledger import (
    Created,
    JobCreate,
    JobSave,
    Ledger,
    Write,
    WriteOutcome,
)

RACES: Final = 20
"""How often a lost compare-and-swap is tried again before the caller is told."""
Listener = Callable[[Committed], None]
"""Told of every commit."""


class _Decided(NamedTuple):
    """One request, its inputs and what was decided about each."""

    request: Request
    inputs: Sequence[Input]
    decisions: Sequence[Decision]


class _Draft:
    """A job as a turn leaves it, from where it was before: all decisions of one save."""

    __slots__ = ("before", "changed", "decided", "effects", "events", "job", "outcome", "reserved")

    def __init__(self, before: Job | None, job: Job) -> None:
        self.before = before
        self.job = job
        self.outcome: Outcome | None = None
        self.events: tuple[Event, ...] = ()
        self.effects: tuple[Effect, ...] = ()
        self.changed = False
        self.reserved: list[Share] = []
        """Room in windows that is taken until the save has ended."""
        self.decided: list[_Decided] = []

    def add(self, decisions: Sequence[Decision]) -> None:
        """The events and effects of all, the outcome of the first, the job of the last."""
        for decision in decisions:
            self.outcome = self.outcome or decision.outcome
            self.job = decision.job
            self.events += decision.events
            self.effects += decision.effects
            self.changed = self.changed or decision.changed

    def decision(self, *, owned: bool) -> Decision:
        """As it is saved: what others than the owner leave is due at once."""
        outcome = self.outcome or Outcome.ALREADY
        decision = Decision(self.job, outcome, self.events, self.effects, self.changed)
        return decision if owned else left_to_owner(self.before, decision)

    @property
    def mail(self) -> list[Request]:
        return [each.request for each in self.decided]


class _Save(NamedTuple):
    """A write that is under way, and what follows from it. `submission`: it is a new job."""

    draft: _Draft
    decision: Decision
    write: Write
    owned: bool
    submission: Submission | None = None


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
        inbox.read_by(self._turn)

    # -- turn --------------------------------------------------------------------------------

    def _turn(self) -> None:
        self._releases.take_turn()
        batch: list[_Save] = []
        for item in self._inbox.take():
            if isinstance(item, Submission):
                self._create(item, batch)
            elif isinstance(item, Loaded):
                self._decide(item.job, item.mail, batch)
            else:
                self._move(item, batch)
        if batch:
            self._tasks.spawn(self._save(batch))

    def _move(self, job_id: str, batch: list[_Save]) -> None:
        """Decide what came for a job that is in memory; read any other first."""
        mail = [request for request in self._inbox.mail_of(job_id) if self._opened(request)]
        if not mail:
            self._inbox.free(job_id)
        elif any(request.fresh for request in mail):
            self._read_again(job_id, mail)
        elif (job := self.known(job_id)) is not None:
            self._decide(job, mail, batch)
        else:
            self._tasks.spawn(self._read(job_id, mail, fresh=False))

    def _opened(self, request: Request) -> bool:
        try:
            return request.open()
        except Exception as error:
            self._fail(request, error)
            return False

    def known(self, job_id: str) -> Job | None:
        """The job from memory, if its lane is owned here."""
        kept = self._cache.get(job_id)
        return kept if kept is not None and self.owns(kept) else None

    def owns(self, job: Job) -> bool:
        return job.plan.desk in self._lanes.owned

    def _read_again(self, job_id: str, mail: list[Request]) -> None:
        self._cache.drop(job_id)
        self._tasks.spawn(self._read(job_id, mail, fresh=True))

    async def _read(self, job_id: str, mail: list[Request], *, fresh: bool) -> None:
        """`fresh`: another process moved it, so windows and queues are brought in step with it."""
        try:
            job = await self._ledger.load(job_id)
        except BaseException as error:
            self._failed(job_id, mail, error)
            if not isinstance(error, Exception):
                raise
            return
        if job is None:
            for request in mail:
                request.answered(None, ())
            self._inbox.free(job_id)
            return
        if fresh and self.owns(job):
            self._releases.overtaken(job)
            self._observer.took_up(job)
        self._inbox.put(Loaded(job, mail))

    # -- deciding ----------------------------------------------------------------------------

    def _decide(self, job: Job, mail: list[Request], batch: list[_Save]) -> None:
        draft, owned, now = _Draft(job, job), self.owns(job), self._now()
        for request in mail:
            try:
                self._add(draft, request, now, owned=owned)
            except Exception as error:
                self._fail(request, error)
        if not draft.changed:
            self._perform(draft.job, draft.effects, owned=owned)
            self._answer(draft, draft.job)
            return
        try:
            decision = draft.decision(owned=owned)
        except Exception as error:
            self._failed(job.job_id, draft.mail, error)
            return
        write = JobSave(decision.job, job.version, decision.events)
        batch.append(_Save(draft, decision, write, owned))

    def _add(self, draft: _Draft, request: Request, now: datetime, *, owned: bool) -> None:
        """Decide the inputs of one request one by one, each from where the one before it has led."""
        given, job = request.inputs(draft.job), draft.job
        decisions: list[Decision] = []
        for received, at in given:
            decision = decide(job, received, at or now)
            decisions.append(decision)
            job = decision.job
        inputs = [received for received, _ in given]
        releases: Sequence[Decision] = ()
        if owned and any(decision.changed for decision in decisions):
            told = any(isinstance(received, AttemptRequested) for received in inputs)
            releases = self._released_at_once(draft, job, told=told)
        draft.add(decisions)
        draft.add(releases)
        draft.decided.append(_Decided(request, inputs, decisions))

    def _released_at_once(self, draft: _Draft, job: Job, *, told: bool) -> list[Decision]:
        """Release what has room in the same save. The shares are reserved until that save has ended.

        `told`: a workflow asked for it, and hears of what goes out in the answer.
        """
        releases: list[Decision] = []
        for share, released in self._releases.at_once(job, told=told):
            draft.reserved.append(share)
            release = decide(job, released, self._now())
            if release.outcome is Outcome.APPLIED:
                releases.append(release)
                job = release.job
        return releases

    def _create(self, submission: Submission, batch: list[_Save]) -> None:
        if submission.answer.done():
            return
        try:
            new = submission.planned(self._now())
            draft, owned = _Draft(None, new.decision.job), self.owns(new.decision.job)
            draft.add([new.decision])
            if owned:
                draft.add(self._released_at_once(draft, draft.job, told=False))
            decision = draft.decision(owned=owned)
        except Exception as error:
            submission.failed(error)
            return
        write = JobCreate(new.admission.claim, decision.job, decision.events, new.limits)
        batch.append(_Save(draft, decision, write, owned, submission))

    # -- commit ------------------------------------------------------------------------------

    async def _save(self, batch: list[_Save]) -> None:
        saves = {id(save.write): save for save in batch}

        def answered(writes: Sequence[tuple[Write, WriteOutcome]]) -> None:
            for write, outcome in writes:
                self._saved(saves.pop(id(write)), outcome)

        try:
            await self._ledger.save_all([save.write for save in batch], answered)
        except BaseException as error:
            for save in saves.values():
                self._saved(save, error)
            if not isinstance(error, Exception):
                raise

    def _saved(self, save: _Save, outcome: WriteOutcome | BaseException) -> None:
        draft, job = save.draft, save.decision.job
        for share in draft.reserved:
            self._releases.unreserve(share)
        if outcome is True or isinstance(outcome, Created):
            try:
                self._committed(save)
            except Exception as error:  # it is saved, and somebody was not told
                outcome = error
        if save.submission is not None:
            save.submission.settled(save.decision, outcome)
        elif outcome is True:
            self._answer(draft, job)
        elif outcome is False:
            self._overtaken(job.job_id, draft)
        else:
            assert isinstance(outcome, BaseException), f"{outcome!r} is no answer to a save"
            self._failed(job.job_id, draft.mail, outcome)

    def _overtaken(self, job_id: str, draft: _Draft) -> None:
        """Another process saved the job first: read it and decide again, unless that goes on and on."""
        for request in draft.mail:
            request.races += 1
            if request.races == RACES:
                said = f"job {job_id} is being moved by others faster than by us"
                self._fail(request, LedgerUnavailableError(said))
        self._read_again(job_id, [request for request in draft.mail if request.races < RACES])

    def _failed(self, job_id: str, mail: Sequence[Request], error: BaseException) -> None:
        """Nobody knows what is stored, so the next one reads it."""
        self._cache.drop(job_id)
        for request in mail:
            self._fail(request, error)
        self._inbox.free(job_id)

    def _fail(self, request: Request, error: BaseException) -> None:
        try:
            if request.failed(error):
                self._inbox.post_later(request)
        except BaseException as unheard:
            self._tasks.report(unheard)

    # -- effects -----------------------------------------------------------------------------

    def _committed(self, save: _Save) -> None:
        """The save is durable: tell everyone in this process who must know."""
        commit = committed(save.draft.before, save.decision, owned=save.owned)
        if save.owned:
            self._cache.put(commit.job)
        for listener in self._listeners:
            listener(commit)
        self._perform(commit.job, save.decision.effects, owned=save.owned)

    def _perform(self, job: Job, effects: Sequence[Effect], *, owned: bool) -> None:
        if owned:
            for effect in effects:
                self._owed.put(job, effect)

    def _answer(self, draft: _Draft, job: Job) -> None:
        """`job`: as it is saved. It is free for what came meanwhile, whatever the answers lead to."""
        for request, inputs, decisions in draft.decided:
            applied = [Applied(one.outcome, job, one.code) for one in decisions]
            try:
                for received, one in zip(inputs, decisions, strict=True):
                    self._observer.applied(received, one.outcome)
                request.answered(job, applied)
            except Exception as error:
                self._tasks.report(error)
        self._inbox.free(job.job_id)

    # -- what other processes do -------------------------------------------------------------

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
