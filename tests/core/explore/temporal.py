"""The world of a job on Temporal: its workflow asks, invokers answer, and anything between them is lost.

The core is the real one, and so is what a workflow reads from a job (`next_attempts`) and what an invoker
checks before it publishes. A workflow has the snapshot of a job, kept as the number of that job. One that is
on its way to it, or to be sent, is the newest: those before it are lost, as any may be, and would be passed
over for their versions. A workflow that is replayed is where it was, so the walk needs no move for it.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from lucius.core.decide import next_attempts
from lucius.core.effects import Effect, Outcome, SignalWorkflow, StartWorkflow
from lucius.core.inputs import (
    AckReceived,
    AttemptRequested,
    Callback,
    EffectSettled,
    EntryReleased,
    Input,
    LeaseReturned,
    PublishConfirmed,
    PublishRefused,
    ResultReceived,
    ResumeRequested,
    Ticked,
)
from lucius.core.job import Job, Step, StepState
from lucius.engine.temporal import invoker
from tests.core.explore.configurations import Configuration
from tests.core.explore.invariants import require
from tests.core.explore.judge import Judge, Verdict
from tests.core.explore.rules import FAILED, REFUSED
from tests.core.explore.trace import Action
from tests.core.explore.world import Lease, deadlines

ASKED: Final = Ticked(asked=True, told=True)
WAITING: Final = (StepState.AWAITING_ACK, StepState.IN_PROGRESS)
OLD: Final = -2
"""A snapshot that is older than what the workflow has."""
NEW_RUN: Final = -1
"""What a workflow has that goes on in a new history: nothing, until it has asked."""


class TemporalWorld(NamedTuple):
    """`flow`: the job as the workflow has it; none before it is started. `asks`: of activities that run.

    `todo` are effects that a process has saved and not performed, with the job as it was then.
    """

    job: int
    flow: int | None = None
    asks: frozenset[AttemptRequested | Ticked] = frozenset()
    coming: int | None = None
    todo: frozenset[tuple[Effect, int]] = frozenset()
    sent: frozenset[Lease] = frozenset()
    accepted: frozenset[str] = frozenset()


class TemporalNext(NamedTuple):
    """`helps`: it needs no service, no luck and no client but one that resumes."""

    action: Action
    world: TemporalWorld
    helps: bool = False


class TemporalRules:
    """The successors of a world."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.judge = Judge()
        self.jobs = self.judge.catalogue.jobs
        self.attempted = Action("the job is accepted")

    def start(self) -> TemporalWorld:
        verdict = self.judge.submitted(self.configuration.plan)
        return TemporalWorld(verdict.job, todo=_todo(verdict))

    def job(self, world: TemporalWorld) -> Job:
        return self.jobs[world.job]

    def ended(self, world: TemporalWorld) -> bool:
        """The workflow has ended with its job, or nobody will start one."""
        job, flow = self.job(world), self._flow(world)
        if not job.terminal or job.owed:
            return False
        unborn = world.flow is None and not world.todo
        return unborn or (flow is not None and flow.terminal)

    def _flow(self, world: TemporalWorld) -> Job | None:
        return self.jobs[world.flow] if world.flow not in (None, NEW_RUN) else None

    def after(self, world: TemporalWorld) -> Iterator[TemporalNext]:
        if self.ended(world):
            return
        for control in self.configuration.controls:
            helps = isinstance(control, ResumeRequested)
            yield self._act(world, "the client asks", control, helps=helps)
        for reply in self._replies(world):
            yield self._act(world, "the invoker receives", reply)
        yield from self._invoker(world)
        for asked in world.asks:
            yield from self._answer(world, asked)
        yield from self._workflow(world)

    # -- the environment -------------------------------------------------------------------------

    def _replies(self, world: TemporalWorld) -> Iterator[Callback]:
        """Anything that anyone could say to what was sent, again and again."""
        for lease in world.sent:
            yield AckReceived(*lease, worker_id="w")
            for status in self.configuration.results:
                yield ResultReceived(*lease, status, f"result of {lease.step_id}", FAILED, "w")
            leases = sum(each.step_id == lease.step_id for each in world.sent)
            if leases <= self.configuration.leases:
                yield LeaseReturned(*lease, worker_id="w")

    # -- the invoker by itself -------------------------------------------------------------------

    def _invoker(self, world: TemporalWorld) -> Iterator[TemporalNext]:
        if world.todo:
            yield TemporalNext(Action("the invoker dies"), world._replace(todo=frozenset()))
        for each in world.todo:
            yield from self._perform(world, *each)
        job = self.job(world)
        for planned, step in zip(job.plan.steps, job.steps, strict=True):
            if step.ready:
                released = EntryReleased(planned.step_id, "unused")
                yield self._act(world, "the invoker has room again", released, helps=True)
        if job.owed:
            yield self._act(world, "the invoker finds due", Ticked(), deadline="owed", helps=True)

    def _perform(self, world: TemporalWorld, effect: Effect, number: int) -> Iterator[TemporalNext]:
        done = world._replace(todo=world.todo - {(effect, number)})
        if isinstance(effect, StartWorkflow):
            flow = number if world.flow is None else world.flow
            yield TemporalNext(
                Action("the invoker starts it", effect), done._replace(flow=flow), True
            )
        elif isinstance(effect, SignalWorkflow):
            yield from self._signalled(done, effect, number)

    def _signalled(
        self, world: TemporalWorld, effect: SignalWorkflow, number: int
    ) -> Iterator[TemporalNext]:
        """Told first, and settled then: who dies between the two tells it again."""
        told = self._sent(world, number)
        yield TemporalNext(Action("the invoker signals, and dies", effect), told)
        settled = EffectSettled(effect.owed_id, performed=True)
        yield self._act(told, "the invoker signals", settled, helps=True)

    def _sent(self, world: TemporalWorld, number: int) -> TemporalWorld:
        """To a workflow that was never started, or has ended, nothing is sent."""
        flow = self._flow(world)
        if number == OLD or world.flow is None or (flow is not None and flow.terminal):
            return world
        return world._replace(coming=number)

    # -- the invoker is asked ----------------------------------------------------------------------

    def _answer(
        self, world: TemporalWorld, asked: AttemptRequested | Ticked
    ) -> Iterator[TemporalNext]:
        """It dies at any point, or its answer is lost: then the same is asked again."""
        self.attempted = Action("the invoker is asked", asked)
        if isinstance(asked, Ticked):
            for moved in self._ticked(world):
                yield TemporalNext(Action("the invoker is told of a timer, and dies", asked), moved)
                yield self._answered(moved, asked, "the invoker is told of a timer")
            return
        due = asked.step_id if asked.step_id in deadlines(self.job(world), sla=False) else None
        held = self._saved(world, asked, due)
        yield TemporalNext(Action("the invoker holds it, and dies", asked), held)
        yield self._answered(held, asked, "the invoker holds it")
        step = self._step(held, asked)
        let_out = held
        if step.ready:
            let_out = self._saved(held, EntryReleased(asked.step_id, "unused", told=True))
            yield TemporalNext(Action("the invoker lets it out, and dies", asked), let_out)
        yield from self._published(let_out, asked)

    def _ticked(self, world: TemporalWorld) -> Iterator[TemporalWorld]:
        """Whichever lease has run out; or none, where the timer was early."""
        yield self._saved(world, ASKED)
        job = self.job(world)
        for planned, step in zip(job.plan.steps, job.steps, strict=True):
            if step.state in WAITING:
                yield self._saved(world, ASKED, planned.step_id)

    def _published(self, world: TemporalWorld, asked: AttemptRequested) -> Iterator[TemporalNext]:
        if not invoker._unsent(self._step(world, asked), asked):
            yield self._answered(world, asked, "the invoker finds it out")
            return
        lease = Lease(asked.step_id, asked.attempt_no, asked.lease_id)
        last = self._step(world, asked).execution
        current = last is not None and (last.attempt_no, last.exec_id) == lease[1:]
        self.attempted = Action("the invoker publishes", asked)
        require(current, "4: only what is out is published")
        taken = world._replace(sent=world.sent | {lease})
        yield TemporalNext(Action("the invoker publishes, and dies", asked), taken)
        confirmed = self._saved(taken, PublishConfirmed(*lease))
        yield self._answered(confirmed, asked, "the invoker publishes")
        if self.configuration.refusals:
            refused = self._saved(world, PublishRefused(*lease, REFUSED))
            yield self._answered(refused, asked, "the bus refuses")

    def _step(self, world: TemporalWorld, asked: AttemptRequested) -> Step:
        index = self.job(world).plan.index_of(asked.step_id)
        assert index is not None
        return self.job(world).steps[index]

    def _answered(
        self, world: TemporalWorld, asked: AttemptRequested | Ticked, what: str
    ) -> TemporalNext:
        """Nothing is newer than an answer: what is still to be sent, or on its way, is passed over."""
        todo = frozenset((effect, OLD) for effect, _ in world.todo)
        asks = world.asks - {asked}
        taken = world._replace(asks=asks, flow=world.job, coming=None, todo=todo)
        return TemporalNext(Action(what, asked), taken, helps=True)

    # -- the workflow ------------------------------------------------------------------------------

    def _workflow(self, world: TemporalWorld) -> Iterator[TemporalNext]:
        if world.coming is not None:
            heard = world._replace(flow=world.coming, coming=None)
            yield TemporalNext(Action("the workflow hears of it"), heard, helps=True)
        if world.flow is None or world.asks:
            return
        flow = self._flow(world)
        if flow is None:
            asks: list[AttemptRequested | Ticked] = [ASKED]
        elif flow.terminal:
            return
        else:
            asks = self._asks(flow)
            yield TemporalNext(
                Action("the workflow goes on in a new run"), world._replace(flow=NEW_RUN)
            )
        for ask in asks:
            asking = world._replace(asks=world.asks | {ask})
            yield TemporalNext(Action("the workflow asks", ask), asking, helps=True)

    def _asks(self, flow: Job) -> list[AttemptRequested | Ticked]:
        """What the snapshot says: attempts, publishes that are owed, and the timers of leases."""
        found: list[AttemptRequested | Ticked] = []
        for following in next_attempts(flow):
            index = flow.plan.index_of(following.step_id)
            leases = len(flow.steps[index].executions) if index is not None else 0
            lease_id = f"{following.step_id}{leases + 1}"
            found.append(AttemptRequested(following.step_id, following.attempt_no, lease_id))
        for planned, step in zip(flow.plan.steps, flow.steps, strict=True):
            if step.out and step.state is StepState.DISPATCHING:
                last = step.executions[-1]
                found.append(AttemptRequested(planned.step_id, last.attempt_no, last.exec_id))
        if any(step.state in WAITING for step in flow.steps):
            found.append(ASKED)
        return found

    # -- read, decide, save --------------------------------------------------------------------------

    def _act(
        self,
        world: TemporalWorld,
        what: str,
        received: Input,
        *,
        deadline: str | None = None,
        helps: bool = False,
    ) -> TemporalNext:
        self.attempted = Action(what, received)
        return TemporalNext(self.attempted, self._saved(world, received, deadline), helps)

    def _saved(
        self, world: TemporalWorld, received: Input, deadline: str | None = None
    ) -> TemporalWorld:
        verdict = self.judge.decided(world.job, received, deadline)
        accepted = world.accepted
        if isinstance(received, ResultReceived) and verdict.outcome is Outcome.APPLIED:
            once = received.lease_id not in accepted
            require(once, f"2: one accepted RESULT for the lease {received.lease_id}")
            accepted |= {received.lease_id}
        todo = _todo(verdict) or world.todo
        after = world._replace(job=verdict.job, todo=todo, accepted=accepted)
        if not self.jobs[verdict.job].terminal:
            return after
        return after._replace(sent=frozenset(), accepted=frozenset())


def _todo(verdict: Verdict) -> frozenset[tuple[Effect, int]]:
    return frozenset((effect, verdict.job) for effect in verdict.effects)
