"""How many directives may wait at a service, and which of them are not overdue though they wait long.

As many may wait as the service took in about two round trips, and at least two. Tenants of whom it takes some
share that, and every tenant may have one. An ACK says that a slot was free, so a busy service closes its
window long before any ACK could time out, and nobody need say how many slots there are.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from itertools import chain
from math import inf
from typing import Final

from lucius.core.plan import service_of
from lucius.engine.pull_times import Visits

Key = tuple[str, int]
"""Line (a service in one mode) and lane."""
TenantQueue = tuple[Key, str]
"""A queue and lane, and a tenant whose directives wait there."""

LEAST: Final = 2
"""Directives that may wait at a service of which nothing is known. Few, because it may be slow."""
SHORTEST: Final = 0.1
LONGEST: Final = 2.0
"""Seconds of a period, whatever the round trip takes."""
NEWCOMERS: Final = 256
"""Beyond the window, places for tenants of whom nothing was taken lately."""
PASSES: Final = 64
"""How many more may be taken before a directive than were sent before it, while it waits behind others."""
MOST_SILENT: Final = 1024
"""Silent tenants of a service that are remembered."""
JUST_ANSWERED: Final = 1.0
"""Seconds in which what a service said is saved, unless the ledger is away."""
SILENCE: Final = 60.0
"""Seconds without an ACK, or after the end of a lease, until a job is read again."""


class RoundTrip:
    """How long this process, its ledger and the bus take for a directive and its ACK, without the service."""

    def __init__(self) -> None:
        self._seconds: float | None = None
        self.period = SHORTEST
        """Seconds. What was taken in the period that runs and the one before counts as taken lately."""

    def took(self, seconds: float) -> None:
        seconds = min(seconds, LONGEST)
        known = self._seconds if self._seconds is not None else seconds
        self._seconds = known + (seconds - known) / 16
        self.period = min(max(2 * self._seconds, SHORTEST), LONGEST)


@dataclass(slots=True)
class Lately:
    """How many were counted in the period that runs and the one before."""

    trip: RoundTrip
    before: int = 0
    now: int = 0
    began: float = 0.0

    def add(self, at: float) -> None:
        self.count(at)
        self.now += 1

    def count(self, at: float) -> int:
        passed, period = at - self.began, self.trip.period
        if passed >= period:
            self.before = self.now if passed < 2 * period else 0
            self.now, self.began = 0, at
        return self.before + self.now


@dataclass(slots=True)
class TenantShare:
    """What one tenant has at a service. `waiting`: what is out and was not handed to a worker.

    `last_taken`: by queue and lane, the number of the latest directive that was taken.
    """

    tenant_id: str
    taken: Lately
    out: int = 0
    waiting: int = 0
    running: int = 0
    last_taken: dict[Key, int] = field(default_factory=dict)

    def idle(self, at: float) -> bool:
        return not (self.out or self.running or self.taken.count(at))


@dataclass(slots=True)
class Window:
    """Of those who take the directives of one service, on whatever lane.

    `shares`: by tenant, what is out, at work, or was taken lately. `silent`: tenants whose last directive
    timed out, the latest last. `sent` and `total`: how many were ever sent, and taken. `rested`: when a
    worker last ended something: its next ACK may be on the way. `movers`: tenants of whom some was taken.
    """

    taken: Lately
    shares: dict[str, TenantShare] = field(default_factory=dict)
    silent: dict[str, None] = field(default_factory=dict)
    waiting: int = 0
    running: int = 0
    sent: int = 0
    total: int = 0
    rested: float = -inf
    movers: int = 1
    swept: float = 0.0

    def size(self, at: float) -> int:
        return max(LEAST, self.taken.count(at))

    def has_capacity(self, tenant_id: str, at: float) -> bool:
        """Whether this tenant may have one more out.

        The rest of the window is everyone's, but of a tenant of whom nothing is taken only two wait in it.
        What a tenant lacks to its share it gets beyond a full window, if that much is taken of it.
        """
        size, share = self.size(at), self.shares.get(tenant_id)
        if tenant_id in self.silent:
            return share is None or not share.out
        if share is None or not share.waiting:
            return self.waiting < size + NEWCOMERS
        taken = share.taken.count(at)
        if self.waiting < size:
            return bool(taken) or share.waiting < LEAST
        return share.waiting < min(taken, size // max(1, self.movers))

    def limited(self, tenant_id: str) -> bool:
        """Whether the tenant may have one directive out at a time, and has it: its last timed out."""
        share = self.shares.get(tenant_id)
        return tenant_id in self.silent and share is not None and share.out > 0

    def share(self, tenant_id: str) -> TenantShare:
        share = self.shares.get(tenant_id)
        if share is None:
            share = self.shares[tenant_id] = TenantShare(tenant_id, Lately(self.taken.trip))
        return share

    def take(self, tenant_id: str) -> TenantShare:
        share = self.share(tenant_id)
        share.out += 1
        share.waiting += 1
        self.waiting += 1
        return share

    def leave(self, share: TenantShare, at: float, *, waited: bool) -> None:
        """`waited`: in the window; else with a worker that it was handed to."""
        share.out -= 1
        if waited:
            share.waiting -= 1
            self.waiting -= 1
        self.forget_idle(share, at)

    def forget_idle(self, share: TenantShare, at: float) -> None:
        if share.idle(at):
            self.shares.pop(share.tenant_id, None)

    def acknowledged(self, share: TenantShare, at: float) -> None:
        share.taken.add(at)
        self.taken.add(at)
        self.total += 1
        if at - self.swept > self.taken.trip.period:
            self.swept = at
            self.shares = {t: each for t, each in self.shares.items() if not each.idle(at)}
            self.movers = sum(each.taken.count(at) > 0 for each in self.shares.values())

    def timed_out(self, tenant_id: str) -> None:
        """Let one directive of this tenant out at a time, until it is heard again."""
        self.silent.pop(tenant_id, None)
        self.silent[tenant_id] = None
        if len(self.silent) > MOST_SILENT:
            del self.silent[next(iter(self.silent))]


@dataclass(slots=True)
class _Counted:
    """An attempt that is out or in progress. `look_at`: see `Windows.silent_jobs`."""

    key: Key
    share: TenantShare
    job_id: str
    look_at: float


@dataclass(slots=True)
class _Open(_Counted):
    """`at`: it went out. `since`: published, or handed to a worker. `answered_at`: that worker answered.

    `number` orders what was sent; `passed_at` is how many the service may have taken before this one passes
    for lost. `until`: so long may the worker be silent that it was handed to.
    """

    at: float
    since: float
    number: int = 0
    passed_at: int = 0
    on_bus: bool = False
    answered_at: float | None = None
    until: float | None = None


class Windows:
    """While the broker is down, or the process ends, all are closed: nothing has room."""

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        by_mode: bool,
        elsewhere: Callable[[str], bool],
    ) -> None:
        """`by_mode`: a worker serves one mode alone. Otherwise work in one mode keeps the other waiting.

        `elsewhere`: whether work of a queue is in progress on lanes that other processes own.
        """
        self._clock = clock
        self._by_mode = by_mode
        self._elsewhere = elsewhere
        self._trip = RoundTrip()
        self._windows: dict[str, Window] = {}
        self._open: dict[str, _Open] = {}
        self._running: dict[str, _Counted] = {}
        self._reserved: Counter[Key] = Counter()
        self.visits = Visits(clock)
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Nothing is released until `reopen`; what is out stays out."""
        self._closed = True

    def reopen(self) -> None:
        self._closed = False

    def workers(self, queue_name: str) -> str:
        """Names those who take the directives of a queue: a service, or a service in one mode."""
        return queue_name if self._by_mode else service_of(queue_name)

    def of(self, queue_name: str) -> Window:
        name = self.workers(queue_name)
        window = self._windows.get(name)
        if window is None:
            window = self._windows[name] = Window(Lately(self._trip))
        return window

    def has_capacity(self, queue_name: str, tenant_id: str) -> bool:
        return not self._closed and self.of(queue_name).has_capacity(tenant_id, self._clock())

    def trusts(self, queue_name: str, tenant_id: str) -> bool:
        """Whether a worker that pulls may be given what it has room for; of a silent tenant, one."""
        return not self._closed and not self.limited(queue_name, tenant_id)

    def limited(self, queue_name: str, tenant_id: str) -> bool:
        return self.of(queue_name).limited(tenant_id)

    def reserve(self, tenant_queue: TenantQueue) -> None:
        (queue_name, _), tenant_id = tenant_queue
        self.of(queue_name).take(tenant_id)
        self._reserved[tenant_queue[0]] += 1

    def unreserve(self, tenant_queue: TenantQueue) -> None:
        (queue_name, _), tenant_id = tenant_queue
        window = self.of(queue_name)
        window.leave(window.shares[tenant_id], self._clock(), waited=True)
        self._reserved[tenant_queue[0]] -= 1
        if not self._reserved[tenant_queue[0]]:
            del self._reserved[tenant_queue[0]]

    # -- what is out -------------------------------------------------------------------------

    def opened(self, key: Key, tenant_id: str, lease_id: str, job_id: str) -> None:
        if lease_id not in self._open:
            now = self._clock()
            share = self.of(key[0]).take(tenant_id)
            self._open[lease_id] = entry = _Open(key, share, job_id, now + SILENCE, now, now)
            self._sent(entry)

    def _sent(self, entry: _Open) -> None:
        """It is behind all that wait now."""
        window = self.of(entry.key[0])
        window.sent += 1
        entry.number = window.sent
        entry.passed_at = window.total + 2 * window.waiting + PASSES

    def published(self, lease_id: str) -> None:
        """The bus has taken it: the delay counts from here. What is published again queues again."""
        entry = self._open.get(lease_id)
        if entry is None:
            return
        entry.since = self._clock()
        if entry.on_bus:
            if entry.until is not None:
                entry.until = None
                entry.share.waiting += 1
                self.of(entry.key[0]).waiting += 1
            self._sent(entry)
        entry.on_bus = True

    def handed_out(self, lease_id: str, seconds: float) -> Key | None:
        """It waits in no queue any more: whoever has it must speak within so many seconds."""
        entry = self._open.get(lease_id)
        if entry is None:
            return None
        window = self.of(entry.key[0])
        window.total += 1
        if entry.until is None:
            entry.share.waiting -= 1
            window.waiting -= 1
        entry.since = self._clock()
        entry.until = entry.since + seconds
        return entry.key

    def runs(
        self, key: Key, tenant_id: str, lease_id: str, job_id: str, lease_seconds: float
    ) -> None:
        """Count an attempt that is in progress, under a lease of so many seconds from now on."""
        look_at = self._clock() + lease_seconds + SILENCE
        known = self._running.get(lease_id)
        if known is not None:
            known.look_at = look_at
            return
        window = self.of(key[0])
        share = window.share(tenant_id)
        self._running[lease_id] = _Counted(key, share, job_id, look_at)
        share.running += 1
        window.running += 1

    def rests(self, lease_id: str, *, freed: bool = False) -> None:
        """Count it no more: it has ended. `freed`: its worker ended it, and has a slot for the next one."""
        known = self._running.pop(lease_id, None)
        if known is not None:
            share = known.share
            window, now = self.of(known.key[0]), self._clock()
            share.running -= 1
            window.running -= 1
            if freed:
                window.rested = now
            window.forget_idle(share, now)

    def queued(self, lease_id: str) -> bool:
        """Whether an ACK that is missing is not overdue all the same: its service is busy, not silent.

        What was handed out is not overdue until its own time is over. What waits on the bus is not while its
        service is at work, here or on lanes of other processes, unless what came later of its tenant was
        taken before it, or many more of others than were before it. Nor is what the next pull will take, and
        what was just heard and is being saved.
        """
        entry, now = self._open.get(lease_id), self._clock()
        if entry is None:
            return False
        if entry.answered_at is not None and now - entry.answered_at < JUST_ANSWERED:
            return True
        if entry.until is not None:
            return now < entry.until
        queue_name, share = entry.key[0], entry.share
        if entry.number < share.last_taken.get(entry.key, 0):
            return False
        window = self.of(queue_name)
        if share.running or now - window.rested < JUST_ANSWERED:
            return True
        if window.total <= entry.passed_at and (window.running or self._elsewhere(queue_name)):
            return True
        return self.visits.awaited(service_of(queue_name), share.tenant_id, entry.since)

    # -- how it ends -------------------------------------------------------------------------

    def mark_answered(self, lease_id: str) -> None:
        """Note when its service answered, though the answer is yet to be saved."""
        entry = self._open.get(lease_id)
        if entry is not None and entry.answered_at is None:
            entry.answered_at = self._clock()

    def is_open(self, lease_id: str) -> bool:
        return lease_id in self._open

    def acknowledged(self, lease_id: str) -> Key | None:
        """A worker has taken it. What it was handed says nothing about a queue: it asked for that."""
        entry = self._open.get(lease_id)
        if entry is None:
            return None
        window, share, now = self.of(entry.key[0]), entry.share, self._clock()
        window.silent.pop(share.tenant_id, None)
        if entry.until is None:
            share.last_taken[entry.key] = max(share.last_taken.get(entry.key, 0), entry.number)
            window.acknowledged(share, now)
            if entry.answered_at is not None:
                self._trip.took(now - entry.at - max(0.0, entry.answered_at - entry.since))
        return self._close(lease_id)

    def timed_out(self, lease_id: str) -> Key | None:
        entry = self._open.get(lease_id)
        if entry is not None:
            self.of(entry.key[0]).timed_out(entry.share.tenant_id)
        return self._close(lease_id)

    def withdrawn(self, lease_id: str) -> Key | None:
        """It ended without telling anything about the service: refused, cancelled."""
        return self._close(lease_id)

    def _close(self, lease_id: str) -> Key | None:
        entry = self._open.pop(lease_id, None)
        if entry is None:
            return None
        waited = entry.until is None
        self.of(entry.key[0]).leave(entry.share, self._clock(), waited=waited)
        return entry.key

    def forget(self, lane: int) -> None:
        """Another process owns it now. What is reserved there is given back by whoever reserved it."""
        for lease_id in [lease for lease, entry in self._open.items() if entry.key[1] == lane]:
            self._close(lease_id)
        for lease_id in [lease for lease, each in self._running.items() if each.key[1] == lane]:
            self.rests(lease_id)

    # -- what is known -----------------------------------------------------------------------

    def silent_jobs(self) -> Collection[str]:
        """Jobs to read again: another process may have ended what is counted of them, and told nobody.

        A job is named again after a while, as long as it counts.
        """
        now, found = self._clock(), dict[str, None]()
        counted: Iterator[_Counted] = chain(self._open.values(), self._running.values())
        for entry in counted:
            if entry.look_at <= now:
                entry.look_at = now + SILENCE
                found[entry.job_id] = None
        return found

    def size(self, queue_name: str) -> int:
        """How many directives may wait at the service of this queue now."""
        return 0 if self._closed else self.of(queue_name).size(self._clock())

    def sizes(self) -> dict[str, int]:
        """The same by service."""
        found: Counter[str] = Counter()
        for workers in self._windows:
            found[service_of(workers)] += self.size(workers)
        return found

    def oldest(self) -> dict[Key, float]:
        """Per queue and lane: for how many seconds the longest of its directives has waited for its ACK."""
        found: dict[Key, float] = {}
        now = self._clock()
        for entry in self._open.values():
            found[entry.key] = max(found.get(entry.key, 0.0), now - entry.since)
        return found

    def snapshot(self) -> dict[Key, tuple[int, int]]:
        """Per queue and lane, if any: what is out and not acknowledged, what is in progress."""
        out = Counter(self._reserved)
        out.update(entry.key for entry in self._open.values())
        running = Counter(entry.key for entry in self._running.values())
        return {key: (out[key], running[key]) for key in out.keys() | running.keys()}
