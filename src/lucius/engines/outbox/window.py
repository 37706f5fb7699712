"""The dispatch window: how many directives per service, mode and lane may be out and not yet acknowledged.

It follows the ACK delay against its recent minimum, as TCP Vegas follows the round trip: while the
delay stays near the minimum nothing queues and the window grows; once it rises, directives wait on
the bus instead of in the ledger, and the window shrinks. An ACK means that a slot was taken, so a
busy service closes the window long before any ACK could time out.

Tenants share a window: each has a flow through it. A flow below its share is let out beyond a full
window, and silence is held against the flow, never against the window.
"""

from collections import OrderedDict
from dataclasses import dataclass
from math import sqrt
from typing import Final

FLOOR_DELAY: Final = 0.1
"""Seconds. Delays below it are the cost of batching and commits, not of a queue."""
MEMORY: Final = 30.0
"""Seconds after which a minimum is forgotten (it is kept for one to two such periods)."""
FIRST: Final = 4.0
"""The first size. Small, because a slow service gets the first window of every lane at once."""
LARGEST: Final = 4096.0
NEWCOMERS: Final = 256
"""Places beyond twice the window, for tenants that have less than their share."""
PASSES: Final = 64
"""How many directives of others (and two more for each tenant) may be taken before the oldest is passed."""
MOST_SILENT: Final = 1024
"""Silent tenants that a window remembers."""


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


class Flow:
    """What one tenant has out in a window."""

    __slots__ = ("acked", "out", "passed", "waiting")

    def __init__(self) -> None:
        self.out = 0
        self.waiting = 0
        """Of those, how many have not been handed to a worker."""
        self.passed = 0
        """Of those, how many are passed: directives of others are taken, and they are not."""
        self.acked = 0
        """The latest place in the queue that was acknowledged."""


class Window:
    """The window of one line on one lane.

    `queue`: leases whose directives wait on the bus, the oldest first. One that is passed is in it
    no more, though it still counts in its flow.
    """

    __slots__ = (
        "flows",
        "limit",
        "minimum",
        "open",
        "passes",
        "places",
        "queue",
        "reserved",
        "running",
        "settling",
        "silent",
    )

    def __init__(self) -> None:
        self.flows: dict[str, Flow] = {}
        """By tenant; only those that have something out."""
        self.silent: dict[str, None] = {}
        """Tenants whose last directive timed out, the latest last."""
        self.queue: OrderedDict[str, Flow] = OrderedDict()
        self.places = 0
        self.passes = 0
        """How many of other tenants were taken since the oldest was last heard of."""
        self.running = 0
        self.limit = FIRST
        self.minimum = Minimum()
        self.open = 0
        self.reserved = 0
        self.settling = False

    # -- who may have more out ---------------------------------------------------------------

    def room(self, tenant_id: str) -> bool:
        """Whether this tenant may have one more out.

        The rest of the window is everyone's. What a tenant lacks to its share it gets beyond a full
        window, which bounds what is out by two windows and one more for each tenant.
        """
        flow = self.flows.get(tenant_id)
        size, queued = int(self.limit), len(self.queue) + self.reserved
        if self.silent and tenant_id in self.silent:
            return flow is None
        if flow is None or not flow.waiting:
            return queued < 2 * size + NEWCOMERS
        if flow.passed:
            return False
        if flow.waiting < size // len(self.flows):
            return queued < 2 * size + NEWCOMERS
        return queued < size and flow.waiting < size

    def out(self, tenant_id: str) -> int:
        flow = self.flows.get(tenant_id)
        return flow.out if flow is not None else 0

    def take(self, tenant_id: str) -> Flow:
        flow = self.flows.get(tenant_id)
        if flow is None:
            flow = self.flows[tenant_id] = Flow()
        flow.out += 1
        flow.waiting += 1
        return flow

    def leave(self, tenant_id: str, flow: Flow) -> None:
        flow.out -= 1
        if not flow.out:
            del self.flows[tenant_id]

    # -- the queue on the bus ----------------------------------------------------------------

    def enqueue(self, lease_id: str, flow: Flow) -> int:
        """Add a lease to the end of the queue, and return its place."""
        self.places += 1
        self.queue[lease_id] = flow
        return self.places

    def dequeue(self, lease_id: str, flow: Flow) -> None:
        if self.queue.pop(lease_id, None) is None:
            flow.passed -= 1

    def heard(self, flow: Flow) -> None:
        """One of this flow was taken. Where that happens again and again, the oldest is passed."""
        oldest = next(iter(self.queue.values()), flow)
        if oldest is flow:
            self.passes = 0
            return
        self.passes += 1
        while self.passes > PASSES + 2 * len(self.flows):
            self.queue.popitem(last=False)
            oldest.passed += 1
            if next(iter(self.queue.values()), flow) is not oldest:
                self.passes = 0

    # -- its size ----------------------------------------------------------------------------

    def acknowledged(self, flow: Flow, delay: float, at: float) -> None:
        """Grow while there is no queue, shrink by what queues beyond a small allowance.

        A queue that never drains would pass for the minimum in the end, so a window that has met
        one is halved at the start of each period: the queue drains, and the true minimum shows.
        """
        if self.minimum.note(delay, at) and self.settling:
            self.limit = max(1.0, self.limit / 2)
            return
        base = self.minimum.value
        queued = (len(self.queue) + 1) * (1 - base / max(delay, base))
        if queued > max(2.0, sqrt(self.limit)):
            self.settling = True
            self.limit = max(1.0, self.limit - 1.0)
        else:
            self.widen(flow)

    def widen(self, flow: Flow) -> None:
        """Grow, if this flow fills its part: what others leave lying needs no larger window."""
        if (flow.waiting + 1) * max(1, len(self.flows)) >= self.limit * 0.75:
            step = 2.0 / self.limit if self.settling else 1.0
            self.limit = min(LARGEST, self.limit + step)

    def timed_out(self, tenant_id: str) -> None:
        """An ACK timed out: let one directive of this tenant out at a time, until it is heard again."""
        self.silent.pop(tenant_id, None)
        self.silent[tenant_id] = None
        if len(self.silent) > MOST_SILENT:
            del self.silent[next(iter(self.silent))]
