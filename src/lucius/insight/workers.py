"""Who is at work: workers by service, as their pulls, ACKs, heartbeats and results tell.

It listens to commits and to the engine, and asks nothing. What it knows is in memory; `sightings.py`
writes it down now and then, for other processes and for the next start.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from lucius.core.effects import Decision, Outcome
from lucius.core.fingerprint import StepFailure, failure_of
from lucius.core.inputs import AckReceived, Input
from lucius.core.job import Execution, Job, Step
from lucius.core.states import AbortReason, StepState
from lucius.ports.lanes import Lanes
from lucius.ports.services import Streak

MINUTES: Final = 10
"""For so many the pace of a service is remembered."""
MOST_JOBS: Final = 10
"""Jobs of a streak that are told apart: more make no difference."""
_SILENCE: Final = ("ACK_TIMEOUT", "LEASE_EXPIRED")
"""Faults of an attempt whose worker said nothing: they have causes of their own."""
MOST_WORKERS: Final = 500
"""Of one service; the one that was seen longest ago makes room."""
_NO_ATTEMPT: Final = (AbortReason.CANCELLED, AbortReason.RETURNED, AbortReason.PUBLISH_REFUSED)
"""Ends of a lease that say nothing about the service."""
_SPOKEN: Final = (None, AbortReason.RESULT_FAILED, AbortReason.RETURNED)
"""What a lease is, or ends, by the word of its worker."""
UNNAMED: Final = "(unnamed)"
"""Workers that do not say who they are."""


@dataclass(slots=True)
class WorkerSight:
    """One worker. `slots` and `version` are what it says of itself, if it does."""

    last_seen: datetime
    slots: int | None = None
    version: str | None = None
    running: int = 0


@dataclass(slots=True)
class StreakSight:
    """As `Streak`, while it grows."""

    since: datetime
    group: str
    code: str
    message: str
    jobs: list[str] = field(default_factory=list)


@dataclass(slots=True)
class ServiceSight:
    """One service: its workers, and for each of the last minutes the attempts that ended and failed."""

    first_seen: datetime
    last_seen: datetime
    workers: dict[str, WorkerSight] = field(default_factory=dict)
    minutes: dict[int, list[int]] = field(default_factory=dict)
    last_success: datetime | None = None
    streak: "StreakSight | None" = None

    def see(self, worker_id: str, at: datetime) -> WorkerSight:
        self.last_seen = max(self.last_seen, at)
        sight = self.workers.get(worker_id)
        if sight is None:
            if len(self.workers) >= MOST_WORKERS:
                del self.workers[min(self.workers, key=lambda w: self.workers[w].last_seen)]
            sight = self.workers[worker_id] = WorkerSight(at)
        elif at > sight.last_seen:
            sight.last_seen = at
        return sight

    def succeeded(self, at: datetime) -> None:
        self.last_success, self.streak = at, None

    def failed(self, at: datetime, failure: StepFailure, job_id: str) -> None:
        if self.streak is None or self.streak.group != failure.group:
            self.streak = StreakSight(at, failure.group, failure.code, failure.message)
        if len(self.streak.jobs) < MOST_JOBS and job_id not in self.streak.jobs:
            self.streak.jobs.append(job_id)

    @property
    def failing(self) -> Streak | None:
        """None where a success came after it, also one that another process saw."""
        found, success = self.streak, self.last_success
        if found is None or (success is not None and success > found.since):
            return None
        return Streak(found.since, found.group, found.code, found.message, len(found.jobs))

    def ended(self, at: datetime, *, failed: bool) -> None:
        minute = int(at.timestamp()) // 60
        count = self.minutes.get(minute)
        if count is None:
            count = self.minutes[minute] = [0, 0]
            for old in [each for each in self.minutes if each <= minute - MINUTES]:
                del self.minutes[old]
        count[0] += 1
        count[1] += failed

    def add(self, other: "ServiceSight") -> None:
        """What another process, or an earlier one, has seen of the same service."""
        self.first_seen = min(self.first_seen, other.first_seen)
        self.last_seen = max(self.last_seen, other.last_seen)
        if other.last_success is not None:
            self.last_success = max(self.last_success or other.last_success, other.last_success)
        if other.streak is not None and len(other.streak.jobs) > self._streak_length():
            self.streak = replace(other.streak, jobs=list(other.streak.jobs))
        for worker_id, sight in other.workers.items():
            known = self.see(worker_id, sight.last_seen)
            known.slots = known.slots or sight.slots
            known.version = known.version or sight.version
            known.running += sight.running
        for minute, (ended, failed) in other.minutes.items():
            count = self.minutes.setdefault(minute, [0, 0])
            count[0] += ended
            count[1] += failed

    def _streak_length(self) -> int:
        return len(self.streak.jobs) if self.streak is not None else 0


class Workers:
    """Of this process: `listen` to its commits; `took_up`, `forgot` and `applied` come from the engine."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self.services: dict[str, ServiceSight] = {}
        self.changed = False
        """Since `sightings` last wrote it down."""
        self._running: dict[str, tuple[str, str, int]] = {}
        """Leases at work on the owned lanes: service, worker and lane."""
        self._said: dict[str, tuple[int | None, str | None]] = {}

    # -- what is heard -----------------------------------------------------------------------

    def listen(self, before: Job | None, decision: Decision) -> None:
        """Of every commit: it does nothing where no attempt began, went on or ended."""
        if before is None:
            return
        job, earlier = decision.job, before.steps
        for index, step in enumerate(job.steps):
            if step is not earlier[index] and step.executions is not earlier[index].executions:
                self._moved(job, index, earlier[index], step)

    def _moved(self, job: Job, index: int, earlier: Step, step: Step) -> None:
        for run in step.executions:
            if run.started_at is None and run.finished_at is None:
                continue
            was = None
            for known in earlier.executions:
                if known.exec_id == run.exec_id:
                    was = known
            if was is not run:
                self._heard(job, index, step, run, was)

    def _heard(
        self, job: Job, index: int, step: Step, run: Execution, was: Execution | None
    ) -> None:
        service, at = job.plan.steps[index].service, job.updated_at
        if run.started_at is not None and run.reason in _SPOKEN:
            self._seen(service, run.lease_owner or UNNAMED, at)
        self._follow(job, service, step, run)
        if run.finished_at is not None and (was is None or was.finished_at is None):
            seen = self.services.get(service)
            if seen is not None and run.reason not in _NO_ATTEMPT:
                seen.ended(at, failed=run.reason is not None)
                self._streak(seen, job, index, step, failed=run.reason is not None)

    def _streak(
        self, seen: ServiceSight, job: Job, index: int, step: Step, *, failed: bool
    ) -> None:
        if not failed:
            seen.succeeded(job.updated_at)
        elif step.fault is not None and step.fault.code not in _SILENCE:
            planned = job.plan.steps[index]
            failure = failure_of(planned.step_id, planned.service, step.fault)
            seen.failed(job.updated_at, failure, job.job_id)

    def pulled(
        self, service: str, worker_id: str, at: datetime, slots: int | None, version: str | None
    ) -> None:
        """A worker asked for directives, whether or not there were any."""
        sight = self._seen(service, worker_id, at)
        sight.slots, sight.version = slots or sight.slots, version or sight.version

    def applied(self, received: Input, outcome: Outcome) -> None:
        """What a worker says of itself with its ACK."""
        if type(received) is AckReceived and received.slots is not None and received.worker_id:
            if len(self._said) > MOST_WORKERS * 20:
                self._said.clear()
            self._said[received.worker_id] = (received.slots, received.version)

    def took_up(self, job: Job) -> None:
        """An owned job as it was found: its leases are at work, or are no more."""
        for planned, step in zip(job.plan.steps, job.steps, strict=True):
            run = step.execution
            if run is not None:
                self._follow(job, planned.service, step, run)
                if run.started_at is not None and run.lease_owner is not None:
                    self._seen(planned.service, run.lease_owner, run.started_at)

    def forgot(self, lanes: Collection[int]) -> None:
        """Other processes follow what is at work there."""
        for lease_id in [lease for lease, (_, _, lane) in self._running.items() if lane in lanes]:
            del self._running[lease_id]

    def _seen(self, service: str, worker_id: str, at: datetime) -> WorkerSight:
        self.changed = True
        seen = self.services.get(service)
        if seen is None:
            seen = self.services[service] = ServiceSight(at, at)
        sight = seen.workers.get(worker_id)
        if sight is None or at < sight.last_seen:
            return seen.see(worker_id, at)
        sight.last_seen = seen.last_seen = at
        return sight

    def _follow(self, job: Job, service: str, step: Step, run: Execution) -> None:
        lane = job.plan.routing.lane
        if step.state is not StepState.IN_PROGRESS or run is not step.executions[-1]:
            self._running.pop(run.exec_id, None)
        elif run.exec_id not in self._running and lane in self._lanes.owned:
            self._running[run.exec_id] = (service, run.lease_owner or UNNAMED, lane)

    # -- what is known -----------------------------------------------------------------------

    def recall(self, note: Mapping[str, Any]) -> None:
        """What an earlier process of this installation has seen."""
        for service, seen in read_note(note).items():
            for sight in seen.workers.values():
                sight.running = 0
            self.services.setdefault(service, seen)

    def note(self) -> dict[str, Any]:
        """All of it as JSON data, for others to read."""
        return {
            service: {
                "first": _seconds(seen.first_seen),
                "last": _seconds(seen.last_seen),
                "workers": {
                    worker_id: [
                        _seconds(sight.last_seen),
                        sight.slots,
                        sight.version,
                        sight.running,
                    ]
                    for worker_id, sight in seen.workers.items()
                },
                "minutes": [[minute, *count] for minute, count in seen.minutes.items()],
                "success": _seconds(seen.last_success) if seen.last_success else None,
                "streak": _streak_note(seen.streak) if seen.streak else None,
            }
            for service, seen in self.known().items()
        }

    def known(self) -> dict[str, ServiceSight]:
        """With what is at work now, and what workers said of themselves."""
        for seen in self.services.values():
            for worker_id, sight in seen.workers.items():
                sight.running = 0
                if worker_id in self._said:
                    sight.slots, sight.version = self._said[worker_id]
        for service, worker_id, _ in self._running.values():
            if (known := self.services.get(service)) is not None:
                known.see(worker_id, known.first_seen).running += 1
        return self.services


def read_note(note: Mapping[str, Any]) -> dict[str, ServiceSight]:
    return {service: _read(each) for service, each in note.items()}


def _read(note: Mapping[str, Any]) -> ServiceSight:
    seen = ServiceSight(_instant(note["first"]), _instant(note["last"]))
    for worker_id, (last, slots, version, running) in note["workers"].items():
        seen.workers[worker_id] = WorkerSight(_instant(last), slots, version, running)
    seen.last_success = _instant(note["success"]) if note["success"] is not None else None
    if note["streak"] is not None:
        since, group, code, message, jobs = note["streak"]
        seen.streak = StreakSight(_instant(since), group, code, message, list(jobs))
    seen.minutes = {minute: [ended, failed] for minute, ended, failed in note["minutes"]}
    return seen


def merged(several: Collection[Mapping[str, ServiceSight]]) -> dict[str, ServiceSight]:
    """By service, what all of them have seen."""
    found: dict[str, ServiceSight] = {}
    for sights in several:
        for service, seen in sights.items():
            into = found.setdefault(service, ServiceSight(seen.first_seen, seen.last_seen))
            into.add(seen)
    return found


def pace(seen: ServiceSight, now: Callable[[], datetime]) -> tuple[float, float]:
    """Attempts that ended in a minute, and the part of them that failed, over the last minutes.

    The minutes before the first attempt do not count: a service that began a minute ago is not slow.
    """
    this = int(now().timestamp()) // 60
    recent = {m: c for m, c in seen.minutes.items() if this - MINUTES < m <= this}
    if not recent:
        return 0.0, 0.0
    ended, failed = (sum(counts) for counts in zip(*recent.values(), strict=True))
    spent = now().timestamp() / 60 - min(recent)
    return ended / max(spent, 1.0), failed / ended if ended else 0.0


def _streak_note(streak: StreakSight) -> list[Any]:
    return [_seconds(streak.since), streak.group, streak.code, streak.message, streak.jobs]


def _seconds(at: datetime) -> float:
    return round(at.timestamp(), 3)


def _instant(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
