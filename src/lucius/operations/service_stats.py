"""What was seen of one service: its workers, its pace, and what failed one after the other. No I/O."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from lucius.core.limits import SLOTS
from lucius.core.text import StepFailure
from lucius.ports.services import MOST_JOBS, RetriedFailures, Streak

MINUTES: Final = 10
"""For so many the pace of a service is remembered."""
JOBS_ALIKE: Final = 3
"""So many different jobs that fail alike, one after the other, are the service's fault."""
JOBS_OF_A_SPELL: Final = 5
"""So many that fail one after the other, each in its own way, are the service's fault too."""
DEGRADED_SHARE: Final = 0.2
"""A service is degraded if more of its attempts fail with one code and are repeated."""
DEGRADED_LEAST: Final = 5
"""Fewer repeated failures say nothing."""
MOST_CODES: Final = 20
"""Error codes that are counted for a minute."""
MOST_TENANTS: Final = 100
"""Tenants of a streak that are remembered."""
MOST_TOOK: Final = 50
"""Steps whose time is remembered: the last that succeeded."""
LEAST_TOOK: Final = 5
"""Fewer do not say how long a step usually takes."""
MOST_WORKERS: Final = 500
"""Of one service; the one that was seen longest ago makes room."""


@dataclass(slots=True)
class WorkerStats:
    """One worker. `slots` and `version` are what it says of itself, if it does."""

    last_seen: datetime
    slots: int | None = None
    version: str | None = None
    running: int = 0
    pulls: bool = False
    """It asks for directives itself, so it is heard of whenever it has a free slot."""


@dataclass(slots=True)
class StreakStats:
    """As `Streak`, while it grows."""

    since: datetime
    group: str
    code: str
    message: str
    jobs: list[str] = field(default_factory=list)
    until: datetime | None = None
    tenants: set[str] = field(default_factory=set)
    retried: bool = False

    def add(self, job_id: str, tenant_id: str, *, retried: bool) -> None:
        self.retried = retried
        if len(self.jobs) < MOST_JOBS and job_id not in self.jobs:
            self.jobs.append(job_id)
        if len(self.tenants) < MOST_TENANTS:
            self.tenants.add(tenant_id)

    def told(self) -> Streak:
        found = (self.since, self.group, self.code, self.message, len(self.jobs), self.until)
        return Streak(*found, frozenset(self.tenants), self.retried)


@dataclass(slots=True)
class ServiceStats:
    """One service: its workers, and for each of the last minutes the attempts that ended and failed."""

    first_seen: datetime
    last_seen: datetime
    workers: dict[str, WorkerStats] = field(default_factory=dict)
    minutes: dict[int, list[int]] = field(default_factory=dict)
    retried: dict[int, Counter[str]] = field(default_factory=dict)
    """For each of the last minutes, by error code, the attempts that failed and were repeated."""
    took: list[float] = field(default_factory=list)
    """Seconds, of the last steps that succeeded."""
    last_success: datetime | None = None
    streak: StreakStats | None = None
    """Jobs that failed alike, since the last success or since something else failed."""
    spell: StreakStats | None = None
    """All that failed since the last success, alike or not."""
    past: StreakStats | None = None
    """The last streak or spell that was long enough to be the fault of the service, and is over."""

    def see(self, worker_id: str, at: datetime) -> WorkerStats:
        self.last_seen = max(self.last_seen, at)
        stats = self.workers.get(worker_id)
        if stats is None:
            if len(self.workers) >= MOST_WORKERS:
                del self.workers[min(self.workers, key=lambda w: self.workers[w].last_seen)]
            stats = self.workers[worker_id] = WorkerStats(at)
        elif at > stats.last_seen:
            stats.last_seen = at
        return stats

    def succeeded(self, at: datetime) -> None:
        failing = self._failing_spell() or self._failing()
        if failing is not None and failing.since < at:
            failing.until, self.past = at, failing
        self.last_success, self.streak, self.spell = at, None, None

    def failed(
        self, at: datetime, failure: StepFailure, job_id: str, tenant_id: str, *, retried: bool
    ) -> None:
        """`retried`: there is another attempt."""
        if retried:
            self._repeats(at, failure.code)
        if self.streak is None or self.streak.group != failure.group:
            self.streak = StreakStats(at, failure.group, failure.code, failure.message)
        if self.spell is None:
            self.spell = StreakStats(at, "", failure.code, failure.message)
        self.spell.code, self.spell.message = failure.code, failure.message
        self.streak.add(job_id, tenant_id, retried=retried)
        self.spell.add(job_id, tenant_id, retried=retried)

    def _failing(self) -> StreakStats | None:
        """What is too much to be the fault of the jobs."""
        if self.streak is not None and len(self.streak.jobs) >= JOBS_ALIKE:
            return self.streak
        return self._failing_spell()

    def _failing_spell(self) -> StreakStats | None:
        """The same, where they did not all fail alike."""
        spell, streak = self.spell, self.streak
        if spell is None or len(spell.jobs) < JOBS_OF_A_SPELL:
            return None
        return spell if streak is None or spell.since < streak.since else None

    @property
    def failing(self) -> Streak | None:
        """None where a success came after it, also one that another process saw."""
        return self._told(self._failing())

    @property
    def failing_before(self) -> Streak | None:
        """Where something else fails by now: all that failed since the last success."""
        return self._told(self._failing_spell())

    def _told(self, found: StreakStats | None) -> Streak | None:
        return found.told() if found is not None and not self._is_over(found) else None

    @property
    def failed_until(self) -> Streak | None:
        """The last time that it failed every job, if that is over."""
        found = self._failing_spell() or self._failing()
        if found is not None and self._is_over(found):
            return replace(found, until=self.last_success).told()
        return self.past.told() if self.past is not None else None

    def _is_over(self, streak: StreakStats) -> bool:
        return self.last_success is not None and self.last_success > streak.since

    @property
    def usual(self) -> tuple[float, float] | None:
        """Seconds that a step takes: the median, and what 95 of 100 stay below. None: too few are known."""
        if len(self.took) < LEAST_TOOK:
            return None
        ordered = sorted(self.took)
        return ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, len(ordered) * 95 // 100)]

    def ended(self, at: datetime, *, failed: bool, took: float | None) -> None:
        if took is not None and not failed:
            self.took = [*self.took[1 - MOST_TOOK :], took]
        minute = int(at.timestamp()) // 60
        count = self.minutes.get(minute)
        if count is None:
            count = self.minutes[minute] = [0, 0]
            for old in [each for each in self.minutes if each <= minute - MINUTES]:
                del self.minutes[old]
                self.retried.pop(old, None)
        count[0] += 1
        count[1] += failed

    def _repeats(self, at: datetime, code: str) -> None:
        codes = self.retried.setdefault(int(at.timestamp()) // 60, Counter())
        if code in codes or len(codes) < MOST_CODES:
            codes[code] += 1

    def add(self, other: "ServiceStats") -> None:
        """What another process, or an earlier one, has seen of the same service."""
        self.first_seen = min(self.first_seen, other.first_seen)
        self.last_seen = max(self.last_seen, other.last_seen)
        if other.last_success is not None:
            self.last_success = max(self.last_success or other.last_success, other.last_success)
        self.streak = _longer(self.streak, other.streak)
        self.spell = _longer(self.spell, other.spell)
        self.past = _later(self.past, other.past)
        for worker_id, stats in other.workers.items():
            known = self.see(worker_id, stats.last_seen)
            known.slots = known.slots or stats.slots
            known.version = known.version or stats.version
            known.running += stats.running
            known.pulls = known.pulls or stats.pulls
        self.took = [*self.took, *other.took][-MOST_TOOK:]
        for minute, (ended, failed) in other.minutes.items():
            count = self.minutes.setdefault(minute, [0, 0])
            count[0] += ended
            count[1] += failed
        for minute, codes in other.retried.items():
            self.retried.setdefault(minute, Counter()).update(codes)


def _longer(one: StreakStats | None, other: StreakStats | None) -> StreakStats | None:
    if one is not None and other is not None and one.group == other.group:
        one.tenants |= other.tenants
        other = replace(other, tenants=set(one.tenants))
    if other is None or (one is not None and len(one.jobs) >= len(other.jobs)):
        return one
    return replace(other, jobs=list(other.jobs), tenants=set(other.tenants))


def _later(one: StreakStats | None, other: StreakStats | None) -> StreakStats | None:
    if other is None or other.until is None:
        return one
    return one if one is not None and one.until is not None and one.until >= other.until else other


def record_of(seen: ServiceStats, workers: Collection[str]) -> dict[str, Any]:
    """As JSON data, with these of its workers."""
    return {
        "first": seconds_of(seen.first_seen),
        "last": seconds_of(seen.last_seen),
        "workers": {
            name: [
                *(seconds_of(stats.last_seen), stats.slots, stats.version, stats.running),
                stats.pulls,
            ]
            for name, stats in seen.workers.items()
            if name in workers
        },
        "minutes": [[minute, *count] for minute, count in seen.minutes.items()],
        "retried": [[minute, dict(codes)] for minute, codes in seen.retried.items()],
        "took": [round(each, 3) for each in seen.took],
        "success": seconds_of(seen.last_success) if seen.last_success else None,
        "streak": streak_record(seen.streak),
        "spell": streak_record(seen.spell),
        "past": streak_record(seen.past),
    }


def read_record(record: Mapping[str, Any]) -> dict[str, ServiceStats]:
    return {service: _read(each) for service, each in record.items()}


def _read(record: Mapping[str, Any]) -> ServiceStats:
    seen = ServiceStats(instant_of(record["first"]), instant_of(record["last"]))
    for worker_id, (last, slots, version, running, *later) in record["workers"].items():
        said = (SLOTS.read(slots), version, running, *later)
        seen.workers[worker_id] = WorkerStats(instant_of(last), *said)
    seen.took = [float(each) for each in record.get("took", ())]
    seen.last_success = instant_of(record["success"]) if record["success"] is not None else None
    seen.streak, seen.spell, seen.past = (
        read_streak(record.get(name)) for name in ("streak", "spell", "past")
    )
    seen.minutes = {minute: [ended, failed] for minute, ended, failed in record["minutes"]}
    seen.retried = {minute: Counter(codes) for minute, codes in record.get("retried", ())}
    return seen


def merged(several: Collection[Mapping[str, ServiceStats]]) -> dict[str, ServiceStats]:
    """By service, what all of them have seen."""
    found: dict[str, ServiceStats] = {}
    for by_service in several:
        for service, seen in by_service.items():
            into = found.setdefault(service, ServiceStats(seen.first_seen, seen.last_seen))
            into.add(seen)
    return found


def pace(seen: ServiceStats, now: Callable[[], datetime]) -> tuple[float, float]:
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


def degraded(seen: ServiceStats, now: Callable[[], datetime]) -> RetriedFailures | None:
    """The code that most attempts of the last minutes failed with, if those were many."""
    this = int(now().timestamp()) // 60
    recent = range(this - MINUTES + 1, this + 1)
    total: Counter[str] = Counter()
    for minute in recent:
        total.update(seen.retried.get(minute, {}))
    if not total:
        return None
    code, failed = total.most_common(1)[0]
    ended = sum(seen.minutes.get(minute, (0, 0))[0] for minute in recent)
    if failed < DEGRADED_LEAST or failed < DEGRADED_SHARE * ended:
        return None
    first = min(minute for minute in recent if code in seen.retried.get(minute, {}))
    return RetriedFailures(code, failed, ended, this - first + 1, instant_of(first * 60.0))


def streak_record(streak: StreakStats | None) -> list[Any] | None:
    if streak is None:
        return None
    until = seconds_of(streak.until) if streak.until is not None else None
    words = [streak.group, streak.code, streak.message]
    later = [until, sorted(streak.tenants), streak.retried]
    return [seconds_of(streak.since), *words, streak.jobs, *later]


def read_streak(record: list[Any] | None) -> StreakStats | None:
    if record is None:
        return None
    since, group, code, message, jobs, *later = record  # notes of earlier releases end here
    until, tenants, retried = [*later, None, None, False][:3]
    ended = instant_of(until) if until is not None else None
    found = (instant_of(since), group, code, message, list(jobs), ended)
    return StreakStats(*found, set(tenants or ()), retried)


def seconds_of(at: datetime) -> float:
    return round(at.timestamp(), 3)


def instant_of(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
