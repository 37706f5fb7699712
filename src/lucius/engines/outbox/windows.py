"""All windows, and which leases are open in them: what a lease's ACK, silence or hand-out tells them."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Final

from lucius.core.plan import service_of
from lucius.engines.outbox.visits import Visits
from lucius.engines.outbox.window import Flow, Window

Key = tuple[str, int]
"""Line (a service in one mode) and lane."""
Share = tuple[Key, str]
"""One tenant's part of a window."""


JUST_HEARD: Final = 1.0
"""Seconds in which what a service said is saved, unless the ledger is away."""


@dataclass(slots=True)
class _Open:
    """`since` is when it was published, or handed to a worker; `heard` when its service answered.

    `place` orders the queue of a line and lane on the bus; none for one that was handed out. That
    one's worker may be silent `until` then, and `spare` says that it could have taken more.
    """

    key: Key
    tenant_id: str
    flow: Flow
    since: float
    place: int | None
    on_bus: bool = False
    heard: float | None = None
    until: float = 0.0
    spare: bool = False


class Windows:
    """While the broker is down, or the process ends, all are closed: nothing has room."""

    def __init__(self, clock: Callable[[], float], *, by_mode: bool) -> None:
        """`by_mode`: a worker serves one mode alone. Otherwise work in one mode keeps the other waiting."""
        self._clock = clock
        self._by_mode = by_mode
        self._windows: dict[Key, Window] = {}
        self._open: dict[str, _Open] = {}
        self._running: dict[str, Share] = {}
        self._rested: dict[str, float] = {}
        """When the workers of a line last ended something: the next ACK may be on its way."""
        self._busy: dict[str, dict[str, int]] = {}
        """How much is in progress on all lanes with the workers of a line, by tenant."""
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

    def of(self, key: Key) -> Window:
        window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = Window()
        return window

    def room(self, key: Key, tenant_id: str) -> bool:
        return not self._closed and self.of(key).room(tenant_id)

    def trusts(self, key: Key, tenant_id: str) -> bool:
        """Whether a worker that pulls may be given what it has room for; of a silent tenant, one."""
        window = self.of(key)
        return not self._closed and (tenant_id not in window.silent or window.out(tenant_id) == 0)

    def reserve(self, share: Share) -> None:
        key, tenant_id = share
        window = self.of(key)
        window.take(tenant_id)
        window.reserved += 1

    def unreserve(self, share: Share) -> None:
        key, tenant_id = share
        window = self.of(key)
        window.reserved -= 1
        flow = window.flows[tenant_id]
        flow.waiting -= 1
        window.leave(tenant_id, flow)

    # -- what is out -------------------------------------------------------------------------

    def opened(self, key: Key, tenant_id: str, lease_id: str) -> None:
        if lease_id not in self._open:
            window = self.of(key)
            window.open += 1
            flow = window.take(tenant_id)
            place = window.enqueue(lease_id, flow)
            self._open[lease_id] = _Open(key, tenant_id, flow, self._clock(), place)

    def published(self, lease_id: str) -> None:
        """The bus has taken it: the delay counts from here. What is published again queues again."""
        entry = self._open.get(lease_id)
        if entry is None:
            return
        entry.since = self._clock()
        if not entry.on_bus:
            entry.on_bus = True
            return
        window = self.of(entry.key)
        if entry.place is None:
            entry.flow.waiting += 1
        else:
            window.dequeue(lease_id, entry.flow)
        entry.place = window.enqueue(lease_id, entry.flow)

    def handed_out(self, lease_id: str, seconds: float, *, spare: bool) -> Key | None:
        """It waits in no queue any more: whoever has it must speak within so many seconds."""
        entry = self._open.get(lease_id)
        if entry is None:
            return None
        if entry.place is not None:
            window = self.of(entry.key)
            window.heard(entry.flow)
            window.dequeue(lease_id, entry.flow)
            entry.flow.waiting -= 1
        entry.since, entry.place, entry.spare = self._clock(), None, spare
        entry.until = entry.since + seconds
        return entry.key

    def runs(self, key: Key, tenant_id: str, lease_id: str) -> None:
        """Count an attempt that is in progress."""
        if lease_id not in self._running:
            self._running[lease_id] = (key, tenant_id)
            self.of(key).running += 1
            busy = self._busy.setdefault(self._workers(key[0]), {})
            busy[tenant_id] = busy.get(tenant_id, 0) + 1

    def rests(self, lease_id: str, *, freed: bool = False) -> None:
        """Count it no more: it has ended. `freed`: its worker ended it, and has a slot for the next one."""
        share = self._running.pop(lease_id, None)
        if share is None:
            return
        key, tenant_id = share
        self.of(key).running -= 1
        workers = self._workers(key[0])
        if freed:
            self._rested[workers] = self._clock()
        busy = self._busy[workers]
        busy[tenant_id] -= 1
        if not busy[tenant_id]:
            del busy[tenant_id]

    def _workers(self, line: str) -> str:
        """Names those who take the directives of a line: a service, or a service in one mode."""
        return line if self._by_mode else service_of(line)

    def queued(self, lease_id: str) -> bool:
        """Whether an ACK that is missing is not overdue all the same.

        A directive that was handed out is not overdue until its own time is over. One on the bus is
        not, if none of its tenant was taken before it and its service is at work on others, or if
        workers pull it and none came since. Nor is one whose service was just heard: that is being saved.
        """
        entry = self._open.get(lease_id)
        if entry is None:
            return False
        if entry.heard is not None and self._clock() - entry.heard < JUST_HEARD:
            return True
        if entry.place is None:
            return self._clock() < entry.until
        window, line, tenant_id = self.of(entry.key), entry.key[0], entry.tenant_id
        if entry.place < entry.flow.acked:
            return False
        workers = self._workers(line)
        if self._clock() - self._rested.get(workers, -inf) < JUST_HEARD:
            return True
        busy = self._busy.get(workers, {})
        if tenant_id in busy or (busy and lease_id in window.queue):
            return True
        return self.visits.awaited(service_of(line), tenant_id, entry.since)

    # -- how it ends -------------------------------------------------------------------------

    def heard(self, lease_id: str) -> None:
        """Note when its service answered: the ACK delay ends here, though the answer is yet to be saved."""
        entry = self._open.get(lease_id)
        if entry is not None and entry.heard is None:
            entry.heard = self._clock()

    def is_open(self, lease_id: str) -> bool:
        return lease_id in self._open

    def acknowledged(self, lease_id: str) -> Key | None:
        """What a worker took by itself tells how long it queued; what it was handed, that it had room."""
        entry = self._open.get(lease_id)
        if entry is None:
            return None
        window, flow, place = self.of(entry.key), entry.flow, entry.place
        if place is not None and len(window.flows) > 1:
            window.heard(flow)
        self._close(lease_id)
        if window.silent:
            window.silent.pop(entry.tenant_id, None)
        if place is not None:
            flow.acked = max(flow.acked, place)
            now = entry.heard if entry.heard is not None else self._clock()
            window.acknowledged(flow, max(0.0, now - entry.since), now)
        elif entry.spare:
            window.widen(flow)
        return entry.key

    def timed_out(self, lease_id: str) -> Key | None:
        entry = self._close(lease_id)
        if entry is None:
            return None
        self.of(entry.key).timed_out(entry.tenant_id)
        return entry.key

    def withdrawn(self, lease_id: str) -> Key | None:
        """It ended without telling anything about the service: refused, cancelled."""
        entry = self._close(lease_id)
        return entry.key if entry is not None else None

    def _close(self, lease_id: str) -> _Open | None:
        entry = self._open.pop(lease_id, None)
        if entry is not None:
            window = self.of(entry.key)
            window.open -= 1
            if entry.place is not None:
                window.dequeue(lease_id, entry.flow)
                entry.flow.waiting -= 1
            window.leave(entry.tenant_id, entry.flow)
        return entry

    def forget(self, lane: int) -> None:
        """Another process owns it now. What is reserved there is given back by whoever reserved it."""
        for lease_id in [lease for lease, entry in self._open.items() if entry.key[1] == lane]:
            self._close(lease_id)
        for lease_id in [lease for lease, share in self._running.items() if share[0][1] == lane]:
            self.rests(lease_id)
        for key in [key for key in self._windows if key[1] == lane]:
            if not self._windows[key].reserved:
                del self._windows[key]

    def limited(self, line: str, lane: int, tenant_id: str) -> bool:
        """Whether the tenant may have one directive out at a time there, and has it: its last timed out."""
        window = self._windows.get((line, lane))
        return window is not None and tenant_id in window.silent and window.out(tenant_id) > 0

    def oldest(self) -> dict[Key, float]:
        """Per line and lane: for how many seconds the longest of its directives has waited for its ACK."""
        found: dict[Key, float] = {}
        now = self._clock()
        for entry in self._open.values():
            found[entry.key] = max(found.get(entry.key, 0.0), now - entry.since)
        return found

    def snapshot(self) -> dict[Key, tuple[int, int, int]]:
        """Per line and lane: what is out and not acknowledged, what is in progress, the window's size."""
        return {
            key: (window.open + window.reserved, window.running, int(window.limit))
            for key, window in self._windows.items()
        }
