"""What can happen next in a world. Jobs move only through the real `decide`; the rest is the environment."""

from collections.abc import Iterator
from typing import NamedTuple

from lucius.core import retry, wire
from lucius.core.effects import Effect, NotifyClient, Outcome, PublishDirective
from lucius.core.inputs import (
    AckReceived,
    BusRestarted,
    Callback,
    EffectSettled,
    EntryReleased,
    HeartbeatReceived,
    Input,
    LeaseReturned,
    PublishConfirmed,
    PublishRefused,
    ResultReceived,
    ResumeRequested,
    Ticked,
)
from lucius.core.job import Fault, Job
from tests.core.explore.configurations import ENDLESS, Configuration
from tests.core.explore.invariants import Broken, require
from tests.core.explore.judge import Judge, Verdict
from tests.core.explore.trace import Action, short
from tests.core.explore.world import NOW, STALE, Actor, Lease, World, come, deadlines

REFUSED = Fault("REFUSED", "the bus said no")
FAILED = Fault("STEP_FAILED", "no luck")
TICK = Ticked()
PUBLISH_NOW = Ticked(publish_now=True)
WAKING = Ticked(deaf_until=NOW)
LOCAL, REMOTE = "local-1", "remote-1"


class Next(NamedTuple):
    """`helps`: it needs no service, no luck and no client but one that resumes."""

    action: Action
    world: World
    helps: bool = False


class Rules:
    """The successors of a world."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.judge = Judge()
        self.jobs = self.judge.catalogue.jobs
        self._rendered: dict[Lease, dict[str, object]] = {}
        self._closed: set[tuple[int, frozenset[Lease], frozenset[Callback]]] = set()
        self.attempted = Action("the job is accepted")

    def start(self) -> World:
        verdict = self.judge.submitted(self.configuration.plan, left=self.configuration.guests > 0)
        first, *others = (Actor() for _ in range(self.configuration.reconcilers))
        job = self.jobs[verdict.job]
        unseen = frozenset(
            planned.step_id
            for planned, step in zip(job.plan.steps, job.steps, strict=True)
            if self.configuration.guests and step.ready
        )
        actors = (first._replace(todo=verdict.effects), *others)
        return World(verdict.job, actors, unseen=unseen)

    def job(self, world: World) -> Job:
        return self.jobs[world.job]

    def ended(self, world: World) -> bool:
        job = self.job(world)
        return job.terminal and not job.owed

    def after(self, world: World) -> Iterator[Next]:
        if self.ended(world):
            return
        yield from self._services(world)
        yield from self._clients(world)
        yield from self._restarts(world)
        for number in range(len(world.actors)):
            yield from self._reconciler(world, number)

    # -- the environment ---------------------------------------------------------------------

    def _services(self, world: World) -> Iterator[Next]:
        """An honest service takes a directive, and gives one answer to it. It never knows the ledger."""
        if not self.configuration.honest:
            return
        for lease in world.sent:
            said = sum(reply.lease_id == lease.lease_id for reply in world.said)
            for reply in (self._ack(lease),) if not said else self._answers(world, lease):
                if said < 2:
                    action = Action("the service says", reply)
                    yield Next(action, world._replace(said=world.said | {reply}))

    def _replies(self, world: World) -> Iterator[Callback]:
        """What may arrive now: all that was said, or all that anyone could say to what was sent."""
        if self.configuration.honest:
            yield from world.said
            for reply in world.said:
                if isinstance(reply, AckReceived):
                    yield HeartbeatReceived(*_lease(reply), worker_id=reply.worker_id)
            return
        for lease in world.sent:
            yield self._ack(lease)
            yield HeartbeatReceived(*lease, worker_id=self._worker(lease))
            yield from self._answers(world, lease)

    def _ack(self, lease: Lease) -> AckReceived:
        return AckReceived(*lease, worker_id=self._worker(lease))

    def _answers(self, world: World, lease: Lease) -> Iterator[Callback]:
        worker, result = self._worker(lease), f"result of {lease.step_id}"
        for status in self.configuration.results:
            yield ResultReceived(*lease, status, result, FAILED, worker)
        if self._leases(world, lease.step_id) < self.configuration.leases:
            yield LeaseReturned(*lease, worker_id=worker)

    def _worker(self, lease: Lease) -> str:
        return REMOTE if lease.step_id in self.configuration.remote else LOCAL

    def _leases(self, world: World, step_id: str) -> int:
        job = self.job(world)
        index = job.plan.index_of(step_id)
        assert index is not None
        return len(job.steps[index].executions)

    def _clients(self, world: World) -> Iterator[Next]:
        """Where there is a process without lanes, it is the one that clients speak to."""
        number = len(world.actors) - 1 if self.configuration.guests else 0
        for control in self.configuration.controls:
            helps = isinstance(control, ResumeRequested)
            yield self._act(world, "the client asks", control, number, helps=helps)

    def _is_guest(self, number: int) -> bool:
        return number >= self.configuration.reconcilers - self.configuration.guests

    def _restarts(self, world: World) -> Iterator[Next]:
        """The bus and everything in its process is gone: messages, local services, what was to do."""
        if world.restarts >= self.configuration.restarts:
            return
        bare = world._replace(
            actors=tuple(Actor() for _ in world.actors),
            sent=frozenset(lease for lease in world.sent if self._worker(lease) == REMOTE),
            said=frozenset(reply for reply in world.said if reply.worker_id == REMOTE),
            restarts=world.restarts + (self.configuration.restarts != ENDLESS),
        )
        yield self._act(bare, "the bus restarts", BusRestarted("local"))

    # -- a reconciler ------------------------------------------------------------------------

    def _reconciler(self, world: World, number: int) -> Iterator[Next]:
        actor = world.actors[number]
        if actor != Actor():
            after = world if self._is_guest(number) else world._replace(unseen=frozenset())
            yield Next(Action("crashes", actor=number), _with(after, number, Actor()))
        for effect in actor.todo:
            yield from self._perform(world, number, effect)
        if self.configuration.racing:
            if actor.copy != world.job:
                read = _with(world, number, actor._replace(copy=world.job))
                yield Next(Action("reads the job", actor=number), read, True)
            if actor.copy is None:
                return
            if actor.copy == STALE:
                lost = _with(world, number, actor._replace(copy=None))
                yield Next(Action("loses the race to save", actor=number), lost, True)
                return
        yield from self._inputs(world, number)

    def _inputs(self, world: World, number: int) -> Iterator[Next]:
        """What a reconciler may find to do with the copy of the job that it has."""
        seen = world.actors[number].copy
        job = self.jobs[seen if seen is not None else world.job]
        if self._is_guest(number):
            for reply in self._replies(world):
                yield self._act(world, "receives", reply, number)
            if not job.terminal:
                yield self._act(world, "is told to publish now", PUBLISH_NOW, number)
            return
        if sum(step.unacked for step in job.steps) < self.configuration.window:
            for planned, step in zip(job.plan.steps, job.steps, strict=True):
                if step.ready and planned.step_id not in world.unseen:
                    lease_id = f"{planned.step_id}{len(step.executions) + 1}"
                    released = EntryReleased(planned.step_id, lease_id)
                    yield self._act(world, "releases", released, number, helps=True)
        for reply in self._replies(world):
            yield self._act(world, "receives", reply, number)
        for deadline in deadlines(job, sla=self.configuration.sla):
            due = retry.due_at(come(job, deadline))
            if due is not None and due <= NOW:
                yield self._act(world, "finds due", TICK, number, deadline=deadline, helps=True)
                yield from self._finds_busy(world, job, number, deadline)
                yield from self._wakes(world, job, number, deadline)
        if not job.terminal:
            yield self._act(world, "is told to publish now", PUBLISH_NOW, number)

    def _finds_busy(self, world: World, job: Job, number: int, deadline: str) -> Iterator[Next]:
        queued = frozenset(step.executions[-1].exec_id for step in job.steps if step.unacked)
        if queued:
            tick = Ticked(queued=queued)
            yield self._act(world, "finds due behind others", tick, number, deadline=deadline)

    def _wakes(self, world: World, job: Job, number: int, deadline: str) -> Iterator[Next]:
        """It stood still until now: what ran out meanwhile has proved nothing."""
        if any(step.out and step.executions[-1].lease_expires_at is not None for step in job.steps):
            yield self._act(world, "wakes up and finds due", WAKING, number, deadline=deadline)

    def _perform(self, world: World, number: int, effect: Effect) -> Iterator[Next]:
        actor = world.actors[number]
        done = _with(world, number, actor._replace(todo=actor.todo - {effect}))
        if isinstance(effect, PublishDirective):
            lease = Lease(effect.step_id, effect.attempt_no, effect.lease_id)
            taken = done._replace(sent=done.sent | {lease})
            self.attempted = Action("publishes, outcome unknown", effect, number)
            self._check_routing(self.job(world), lease)
            yield Next(self.attempted, taken)
            confirmed = PublishConfirmed(*lease)
            yield self._act(taken, "publishes, confirmed", confirmed, number, helps=True)
            if self.configuration.refusals:
                refused = PublishRefused(*lease, REFUSED)
                yield self._act(done, "publishes, refused", refused, number)
        elif isinstance(effect, NotifyClient):
            settled = EffectSettled(effect.owed_id, performed=True)
            yield self._act(done, "tells the client", settled, number, helps=True)
            failed = EffectSettled(effect.owed_id, performed=False)
            yield self._act(done, "cannot tell the client", failed, number)

    def _check_routing(self, job: Job, lease: Lease) -> None:
        """A directive is the same each time it is rendered, and carries the pinned routing."""
        rendered = wire.directive(job, *lease)
        pinned = job.plan.routing
        first = self._rendered.setdefault(lease, rendered)
        require(rendered == first, "5: a directive is rendered the same each time")
        require(
            (rendered["lane"], rendered["routing_key_used"], rendered["mode"])
            == (pinned.lane, pinned.routing_key_used, pinned.resolved_mode),
            "5: routing is pinned",
        )

    # -- read, decide, save ------------------------------------------------------------------

    def _act(
        self,
        world: World,
        what: str,
        received: Input,
        number: int = 0,
        *,
        deadline: str | None = None,
        helps: bool = False,
    ) -> Next:
        self.attempted = Action(what, deadline or received, number)
        return Next(self.attempted, self._save(world, number, received, deadline), helps)

    def _save(
        self, world: World, number: int, received: Input, deadline: str | None = None
    ) -> World:
        """Compare and swap: a copy that was overtaken is not saved, and its effects never happen."""
        actor = world.actors[number]
        base = actor.copy if self.configuration.racing else world.job
        if base is None or base == STALE:
            return _with(world, number, actor._replace(copy=None))
        if self._is_guest(number):
            verdict = self.judge.left(base, received)
        else:
            verdict = self.judge.decided(base, received, deadline)
        before, after = self.job(world), self.jobs[verdict.job]
        require(not before.terminal or after.state is before.state, "1: a closed job came back")
        accepted = self._accepted(world, received, verdict)
        racing = self.configuration.racing
        same = verdict.job == world.job and accepted is world.accepted
        if same and not racing and not verdict.effects:
            return world
        actors = tuple(
            Actor(verdict.job if racing else None, each.todo | verdict.effects)
            if index == number
            else _overtaken(each, verdict.changed)
            for index, each in enumerate(world.actors)
        )
        unseen = self._unseen(world, after, guest=self._is_guest(number))
        return self._settled(
            world._replace(job=verdict.job, actors=actors, accepted=accepted, unseen=unseen)
        )

    def _unseen(self, world: World, after: Job, *, guest: bool) -> frozenset[str]:
        """Nobody's queue has what became ready elsewhere, until a new owner reads them all."""
        ready = {
            planned.step_id
            for planned, step in zip(after.plan.steps, after.steps, strict=True)
            if step.ready
        }
        before = self.job(world)
        fresh = (
            planned.step_id
            for planned, was in zip(before.plan.steps, before.steps, strict=True)
            if guest and not was.ready
        )
        return (world.unseen | frozenset(fresh)) & ready

    def _accepted(self, world: World, received: Input, verdict: Verdict) -> frozenset[str]:
        if not isinstance(received, ResultReceived) or verdict.outcome is not Outcome.APPLIED:
            return world.accepted
        once = received.lease_id not in world.accepted
        require(once, f"2: one accepted RESULT for the lease {received.lease_id}")
        return world.accepted | {received.lease_id}

    def _settled(self, world: World) -> World:
        """Once a job is closed, whatever still arrives changes nothing: so the bus may be forgotten."""
        if not self.job(world).terminal:
            return world
        self._check_closed(world)
        actors = tuple(
            each._replace(
                todo=frozenset(e for e in each.todo if not isinstance(e, PublishDirective))
            )
            for each in world.actors
        )
        nothing: frozenset[Callback] = frozenset()
        return world._replace(actors=actors, sent=frozenset(), said=nothing, accepted=frozenset())

    def _check_closed(self, world: World) -> None:
        key = (world.job, world.sent, world.said)
        if key in self._closed:
            return
        self._closed.add(key)
        for reply in (*self._replies(world), *self.configuration.controls):
            try:
                self.judge.decided(world.job, reply)
            except Broken as broken:
                raise Broken(f"{broken}; it does when next comes {short(reply)}") from broken


def _with(world: World, number: int, actor: Actor) -> World:
    actors = world.actors
    return world._replace(actors=(*actors[:number], actor, *actors[number + 1 :]))


def _overtaken(actor: Actor, changed: bool) -> Actor:
    if changed and actor.copy is not None:
        return actor._replace(copy=STALE)
    return actor


def _lease(reply: Callback) -> Lease:
    return Lease(reply.step_id, reply.attempt_no, reply.lease_id)
