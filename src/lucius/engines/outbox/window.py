"""The dispatch window: how many directives per service, mode and lane may be out and not yet acknowledged.

It follows the ACK delay against its recent minimum, as TCP Vegas follows the round trip: while the
delay stays near the minimum nothing queues and the window grows; once it rises, directives wait on
the bus instead of in the ledger, and the window shrinks. An ACK means that a slot was taken, so a
busy service closes the window long before any ACK could time out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from math import sqrt
from typing import Final

Key = tuple[str, int]
"""Line (a service in one mode) and lane."""

FLOOR_DELAY: Final = 0.1
"""Seconds. Delays below it are the cost of batching and commits, not of a queue."""
MEMORY: Final = 30.0
"""Seconds after which a minimum is forgotten (it is kept for one to two such periods)."""
FIRST: Final = 4.0
"""Small: each lane has a window, and a slow service has to take all of the first ones."""
LARGEST: Final = 4096.0


@dataclass(slots=True)
class Minimum:
    """The smallest delay of the last one to two periods."""

    current: float = float("inf")
    previous: float = float("inf")
    since: float | None = None

    def note(self, delay: float, at: float) -> bool:
        """True if a new period begins with this delay."""
        begins = self.since is not None and at - self.since > MEMORY
        if begins:
            self.previous, self.current = self.current, float("inf")
        if begins or self.since is None:
            self.since = at
        self.current = min(self.current, delay)
        return begins

    @property
    def value(self) -> float:
        return max(min(self.current, self.previous), FLOOR_DELAY)


class Window:
    """The window of one line on one lane."""

    __slots__ = ("acked", "limit", "minimum", "open", "reserved", "running", "settling")

    def __init__(self) -> None:
        self.acked = 0
        """The latest place in the queue that was acknowledged."""
        self.running = 0
        self.limit = FIRST
        self.minimum = Minimum()
        self.open = 0
        self.reserved = 0
        self.settling = False

    @property
    def room(self) -> bool:
        return self.open + self.reserved < int(self.limit)

    def acknowledged(self, delay: float, at: float) -> None:
        """Grow while there is no queue, shrink by what queues beyond a small allowance.

        A queue that never drains would pass for the minimum in the end, so a window that has met
        one is halved at the start of each period: the queue drains, and the true minimum shows.
        """
        if self.minimum.note(delay, at) and self.settling:
            self.limit = max(1.0, self.limit / 2)
            return
        base = self.minimum.value
        queued = (self.open + 1) * (1 - base / max(delay, base))
        if queued > max(2.0, sqrt(self.limit)):
            self.settling = True
            self.limit = max(1.0, self.limit - 1.0)
        elif self.open + 1 >= self.limit * 0.75:
            step = 2.0 / self.limit if self.settling else 1.0
            self.limit = min(LARGEST, self.limit + step)

    def timed_out(self) -> None:
        """Silence: let little out until the service is heard again."""
        self.settling = True
        self.limit = max(1.0, self.limit / 2)


@dataclass(slots=True)
class _Open:
    """`since` is when it was published, `heard` when its service answered: our own commits lie outside.

    `place` counts what was published, so it orders the queue of a line and lane on the bus; none for
    one that was handed to a worker.
    """

    key: Key
    since: float
    place: int | None
    heard: float | None = None


class Windows:
    """All windows, and which leases are open in them. While the broker is down all are closed."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._windows: dict[Key, Window] = {}
        self._open: dict[str, _Open] = {}
        self._places = count(1)
        self._busy: dict[str, int] = {}
        """How much of each line is in progress, on all lanes."""
        self.closed = False

    def of(self, key: Key) -> Window:
        window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = Window()
        return window

    def room(self, key: Key) -> bool:
        return not self.closed and self.of(key).room

    def reserve(self, key: Key) -> None:
        self.of(key).reserved += 1

    def unreserve(self, key: Key) -> None:
        self.of(key).reserved -= 1

    def opened(self, key: Key, lease_id: str) -> None:
        if lease_id not in self._open:
            self._open[lease_id] = _Open(key, self._clock(), next(self._places))
            self.of(key).open += 1

    def published(self, lease_id: str) -> None:
        """The bus has taken it: the delay counts from here."""
        entry = self._open.get(lease_id)
        if entry is not None:
            entry.since, entry.place = self._clock(), next(self._places)

    def handed_out(self, lease_id: str) -> None:
        """It waits in no queue any more: whoever has it must speak."""
        entry = self._open.get(lease_id)
        if entry is not None:
            entry.place = None

    def queued(self, lease_id: str) -> bool:
        """Its service is busy, and nothing that was published after it has been taken before it."""
        entry = self._open.get(lease_id)
        return (
            entry is not None
            and entry.place is not None
            and entry.place > self.of(entry.key).acked
            and self._busy.get(entry.key[0], 0) > 0
        )

    def ran(self, key: Key, change: int) -> None:
        """So many more, or fewer, are in progress."""
        window, line = self.of(key), key[0]
        window.running = max(0, window.running + change)
        self._busy[line] = max(0, self._busy.get(line, 0) + change)

    def heard(self, lease_id: str) -> None:
        """Its service has answered: the delay counts to here, though the answer is yet to be saved."""
        entry = self._open.get(lease_id)
        if entry is not None and entry.heard is None:
            entry.heard = self._clock()

    def is_open(self, lease_id: str) -> bool:
        return lease_id in self._open

    def acknowledged(self, lease_id: str) -> Key | None:
        entry = self._close(lease_id)
        if entry is None:
            return None
        now = entry.heard if entry.heard is not None else self._clock()
        window = self.of(entry.key)
        window.acknowledged(max(0.0, now - entry.since), now)
        if entry.place is not None and entry.place > window.acked:
            window.acked = entry.place
        return entry.key

    def timed_out(self, lease_id: str) -> Key | None:
        entry = self._close(lease_id)
        if entry is None:
            return None
        self.of(entry.key).timed_out()
        return entry.key

    def withdrawn(self, lease_id: str) -> Key | None:
        """It ended without telling anything about the service: refused, cancelled."""
        entry = self._close(lease_id)
        return entry.key if entry is not None else None

    def _close(self, lease_id: str) -> _Open | None:
        entry = self._open.pop(lease_id, None)
        if entry is not None:
            self.of(entry.key).open -= 1
        return entry

    def snapshot(self) -> dict[Key, tuple[int, int, int]]:
        """Per line and lane: what is out and not acknowledged, what is in progress, the window's size."""
        return {
            key: (window.open + window.reserved, window.running, int(window.limit))
            for key, window in self._windows.items()
        }
