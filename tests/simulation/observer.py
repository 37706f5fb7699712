"""What must hold at every moment of a run: judged by what becomes durable and by what goes over the bus.

It knows nothing of the engine: it sees the ledger's writes, the bus's messages and the answers to callers.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Final, cast

from lucius.core.audit import audit
from lucius.core.effects import Event
from lucius.core.errors import IllegalMoveError
from lucius.core.inputs import Kind
from lucius.core.job import RUNNING_JOB, AbortReason, Execution, ExecutionState, Job, JobState, Step
from lucius.core.table import check_move
from lucius.ports.bus import Delivery, Message
from lucius.ports.ledger import Created
from tests.core.explore.fold import Machines, machines_of
from tests.core.explore.invariants import Broken, check_job
from tests.simulation.loop import PROCESS, SimLoop

RESULTS: Final = ("success", "failure_retryable", "failure_final")
LATE: Final = timedelta(seconds=4)
"""How much later than it was due a job may be moved in a run that gives no reason for more."""


class Violation(AssertionError):
    """Something does not hold that must."""


@dataclass
class Trace:
    """The run, event by event."""

    loop: SimLoop
    lines: list[str] = field(default_factory=list)

    def add(self, text: str) -> None:
        process = PROCESS.get(self.loop.world)
        self.lines.append(f"{self.loop.time():10.4f} {process.name:<12} {text}")

    @property
    def digest(self) -> str:
        return sha256("\n".join(self.lines).encode()).hexdigest()


def short(job_id: object) -> str:
    return str(job_id)[-6:]


class Observer:
    """`jobs`: the newest version of each that is known to be durable.

    `punctual`: nothing in this run explains that a job is moved much later than it was due.
    `attentive`: nor that the lease of a dead worker is left to run out.
    """

    def __init__(
        self, trace: Trace, now: Callable[[], datetime], *, punctual: bool, attentive: bool
    ) -> None:
        self.trace = trace
        self.jobs: dict[str, Job] = {}
        self.seen: Counter[str] = Counter()
        self.broken: str | None = None
        self.ended_at: dict[str, float] = {}
        """When the end of a job became durable, by the loop's time."""
        self._now = now
        self._punctual = punctual
        self._attentive = attentive
        self._dead: dict[str, float] = {}
        """When workers died, by what their ids begin with."""
        self._leases: set[str] = set()
        self._unpublished: dict[str, float] = {}
        """Leases whose directive has not gone out, by the loop's time at which they became durable."""
        self._results: set[str] = set()
        """Leases with a RESULT that was accepted."""
        self._queues = Queues()

    def fail(self, text: str) -> None:
        """The first one counts: the run stops there."""
        if self.broken is None:
            self.broken = text
            self.trace.loop.stopped = True
            self.trace.add(f"BROKEN {text}")

    def require(self, holds: bool, text: str) -> None:
        if not holds:
            self.fail(text)

    # -- the ledger --------------------------------------------------------------------------

    def stored(self, operation: str, args: tuple[Any, ...], answer: Any) -> None:
        if operation == "create" and isinstance(answer, Created):
            self._created(args[1], args[2])
        elif operation == "save" and answer is True:
            self._saved(args[0], args[2])
        elif operation == "save":
            self.seen["lost compare-and-swap"] += 1

    def _created(self, job: Job, events: Sequence[Event]) -> None:
        self.require(job.job_id not in self.jobs, f"{short(job.job_id)} is created twice")
        fresh = Machines("QUEUED")
        for planned in job.plan.steps:
            carried = planned.step_id in job.plan.carried
            fresh.steps[planned.step_id] = "SUCCEEDED" if carried else "PENDING"
            fresh.entries[planned.step_id] = None
            fresh.executions[planned.step_id] = []
        self._follow(job, fresh, 0, events)
        self._note(job, events)

    def _saved(self, job: Job, events: Sequence[Event]) -> None:
        known = self.jobs.get(job.job_id)
        if known is None or job.version <= known.version:
            self.fail(f"{short(job.job_id)} goes back to version {job.version}")
            return
        if known.terminal:
            same = (job.state, job.steps) == (known.state, known.steps)
            self.require(same, f"1: {short(job.job_id)} had ended as {known.state}, and changes")
        self.require(job.plan.routing == known.plan.routing, "5: the routing of a job changes")
        self._check_due(known)
        self._check_dead(known, job)
        self._follow(job, machines_of(known), known.seq, events)
        self._note(job, events)

    def _check_due(self, known: Job) -> None:
        """Nothing that is due waits for long, unless the run explains it."""
        if self._punctual and known.due_at is not None and not known.terminal:
            late = self._now() - known.due_at
            self.require(late < LATE, f"{short(known.job_id)} was due {late} before it was moved")

    def worker_died(self, worker_ids: str) -> None:
        self._dead[worker_ids] = self.trace.loop.time()

    def _check_dead(self, known: Job, job: Job) -> None:
        """A lease that died with its worker ends when that is known, and does not run out."""
        if not self._attentive:
            return
        long_dead = [name for name, at in self._dead.items() if at < self.trace.loop.time() - 15]
        for before, step in zip(known.steps, job.steps, strict=True):
            last = step.execution
            if before.out and last is not None and last.reason is AbortReason.LEASE_EXPIRED:
                owner = last.lease_owner or ""
                dead = any(owner.startswith(name) for name in long_dead)
                self.require(not dead, f"the lease of {owner} ran out, and it was long dead")

    def _follow(self, job: Job, machines: Machines, seq: int, events: Sequence[Event]) -> None:
        """The events alone tell how the job got from where it was to where it is."""
        name = short(job.job_id)
        numbers = [event.seq for event in events]
        wanted = list(range(seq + 1, job.seq + 1))
        self.require(numbers == wanted, f"7: events {numbers} of {name}, not {wanted}")
        for event in events:
            self._check_event(name, machines, event)
            try:
                machines.apply(event)
            except (AssertionError, KeyError, IndexError) as error:
                self.fail(f"7: the events of {name} tell another story: {error}")
        told = machines_of(job)
        self.require(machines == told, f"7: {name} is {told}, its events say {machines}")

    def _check_event(self, name: str, machines: Machines, event: Event) -> None:
        for move in event.moves:
            machine, *_, arrow = move.split()
            source, target = arrow.split("->")
            try:
                check_move(machine, cast(Any, source), Kind(event.type), cast(Any, target))
            except IllegalMoveError as error:
                self.fail(f"{name}: {error}")
            if machine == "entry" and target == "RELEASED":
                running = machines.job in [state.value for state in RUNNING_JOB]
                self.require(running, f"4: a step of {name} is released while it is {machines.job}")
        if event.type in RESULTS and event.moves and event.lease_id is not None:
            fresh = event.lease_id not in self._results
            self.require(fresh, f"2: a second RESULT of lease {event.lease_id} counts")
            self._results.add(event.lease_id)

    def _note(self, job: Job, events: Sequence[Event]) -> None:
        said = ", ".join(f"{e.type} {' '.join(e.moves)}".strip() for e in events)
        self.trace.add(f"stored {short(job.job_id)} v{job.version} {job.state.value}: {said}")
        for step in job.steps:
            if step.execution is not None and step.execution.exec_id not in self._leases:
                self._leases.add(step.execution.exec_id)
                self._unpublished[step.execution.exec_id] = self.trace.loop.time()
        self.jobs[job.job_id] = job
        waited = self._queues.moved(job, self.trace.loop.time())
        prompt = waited < LATE.total_seconds() or not self._punctual
        self.require(prompt, f"{short(job.job_id)} waited {waited:.1f} s where nothing was out")
        for kind, detail in audit(job):
            self.fail(f"{short(job.job_id)}: {kind}: {detail}")
        try:
            check_job(job)
        except Broken as error:
            self.fail(f"{short(job.job_id)}: {error}")
        if job.terminal and job.job_id not in self.ended_at:
            self.ended_at[job.job_id] = self.trace.loop.time()
            self.seen[f"job.{job.state.value}"] += 1
        for event in events:
            self.seen[f"event.{event.type}"] += 1
            if event.data and "outcome" in event.data:
                self.seen[f"outcome.{event.data['outcome']}"] += 1

    def found(self, job: Job) -> None:
        """A process that began anew has found it so: what became durable without an answer counts."""
        known = self.jobs.get(job.job_id)
        if known is None or job.version > known.version:
            self._note(job, ())
        else:
            lost = f"1: {short(job.job_id)} is at version {job.version}, and was at {known.version}"
            self.require(job.version == known.version, lost)

    # -- the bus -----------------------------------------------------------------------------

    def publishes(self, topic: str, messages: Sequence[Message]) -> None:
        for message in messages:
            body = message.body
            kind = str(body.get("type"))
            self.seen[f"message.{kind}"] += 1
            self.trace.add(
                f"publishes {kind} {short(body.get('jobId'))} {body.get('stepId', '')}"
                f" {body.get('attempt_no', '')} {short(body.get('lease_id', ''))}"
            )
            if kind == "DIRECTIVE":
                self._check_directive(topic, body)

    def _check_directive(self, topic: str, body: Mapping[str, Any]) -> None:
        job = self.jobs.get(body["jobId"])
        name = short(body["jobId"])
        if job is None:
            self.fail(f"a directive of {name} goes out, and no such job is durable")
            return
        attempt = _attempt(job, body)
        what = f"a directive of {name} goes out under a lease that is not durable"
        self.require(attempt is not None and attempt[1].attempt_no == body["attempt_no"], what)
        late = self.trace.loop.time() - self._unpublished.pop(
            body["lease_id"], self.trace.loop.time()
        )
        prompt = late < LATE.total_seconds() or not self._punctual
        self.require(prompt, f"a directive of {name} goes out {late:.1f} s after it was released")
        self.require(body["tenant_id"] == job.tenant_id, f"8: {name} goes out for another tenant")
        pinned = (job.plan.routing.topic, job.plan.routing.lane)
        self.require((topic, body["lane"]) == pinned, f"5: {name} goes out on {topic}")

    def settles(self, delivery: Delivery) -> None:
        """Whoever settles a reply has saved it: otherwise it could be lost."""
        body = delivery.message.body
        job = self.jobs.get(str(body.get("jobId")))
        if body.get("type") not in ("ACK", "RESULT", "RELEASE") or job is None:
            return
        attempt = _attempt(job, body)
        if attempt is None or body.get("tenant_id", job.tenant_id) != job.tenant_id:
            return
        step, execution = attempt
        waits = execution is step.execution and step.out
        if body["type"] == "ACK":
            waits = waits and execution.state is ExecutionState.LEASED
        self.require(not waits, f"a {body['type']} of {short(job.job_id)} is settled and not saved")

    # -- answers -----------------------------------------------------------------------------

    def answered(self, job_id: str, version: int | None, what: str) -> None:
        """What a caller was told is durable."""
        known = self.jobs.get(job_id)
        if known is None:
            self.fail(f"1: {what} of {short(job_id)} was answered, and no such job is durable")
        elif version is not None:
            durable = version <= known.version
            self.require(durable, f"{what} of {short(job_id)} was answered before it was durable")

    def quiet(self) -> bool:
        return all(job.terminal and not job.owed for job in self.jobs.values())

    def aborted(self) -> Counter[AbortReason]:
        """Why attempts ended without a result."""
        return Counter(
            execution.reason
            for job in self.jobs.values()
            for step in job.steps
            for execution in step.executions
            if execution.reason is not None
        )

    def paused(self) -> list[str]:
        waiting = (JobState.PAUSED, JobState.PAUSING)
        return [job.job_id for job in self.jobs.values() if job.state in waiting]


class Queues:
    """What is ready to go out, and since when nothing of its service was out and not acknowledged."""

    def __init__(self) -> None:
        self._ready: dict[tuple[str, int], float] = {}
        self._out: defaultdict[str, set[tuple[str, int]]] = defaultdict(set)
        self._vacant: defaultdict[str, float] = defaultdict(float)

    def moved(self, job: Job, now: float) -> float:
        """For how long something waited that goes out now, though there was room for it."""
        longest = 0.0
        for index, (planned, step) in enumerate(zip(job.plan.steps, job.steps, strict=True)):
            place, service = (job.job_id, index), planned.service
            out = self._out[service]
            if step.ready and job.state in RUNNING_JOB:
                self._ready.setdefault(place, now)
            elif (since := self._ready.pop(place, None)) is not None and step.out and not out:
                longest = max(longest, now - max(since, self._vacant[service]))
            if step.unacked:
                out.add(place)
            elif place in out:
                out.remove(place)
                self._vacant[service] = now
        return longest


def _attempt(job: Job, body: Mapping[str, Any]) -> tuple[Step, Execution] | None:
    """The attempt that a message speaks of."""
    index = job.plan.index_of(str(body.get("stepId")))
    if index is None:
        return None
    step = job.steps[index]
    for execution in step.executions:
        if execution.exec_id == body.get("lease_id"):
            return step, execution
    return None
