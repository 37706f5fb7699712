"""The lease of one attempt as its worker sees it, and the heartbeats that keep it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from math import inf
from typing import Final

from lucius.platform.errors import LeaseExpiredError

# Waiting a little longer each time, up to a limit.

FIRST: Final = 0.1
LONGEST: Final = 5.0


class Backoff:
    """`within`: how many seconds of waiting there may be in all."""

    def __init__(self, within: float = inf) -> None:
        self._next = FIRST
        self._left = within

    def reset(self) -> None:
        self._next = FIRST

    async def wait(self) -> bool:
        """False, at once: there is no time left to wait."""
        if self._left < self._next:
            return False
        self._left -= self._next
        seconds, self._next = self._next, min(self._next * 2, LONGEST)
        await asyncio.sleep(seconds)
        return True


log = logging.getLogger("lucius.platform.lease")
BEATS_PER_LEASE: Final = 3
BEATS_PER_LEASE_IN_OUTAGE: Final = 10
EARLY: Final = 0.002
"""Seconds that a timer of the loop may ring before its time."""


class Lease:
    """Runs on the loop's clock from before the ACK went out: the ledger's begins later, when it came."""

    __slots__ = (
        "_beat",
        "_beats",
        "_expires_at",
        "_lease_timer",
        "_seconds",
        "_sending",
        "began_at",
        "beside",
        "due_at",
    )

    def __init__(
        self,
        seconds: float,
        sent_at: float,
        beat: Callable[[int], Awaitable[None]],
        lease_timer: "LeaseTimer",
    ) -> None:
        self._seconds = seconds
        self._beat = beat
        self._beats = 0
        self._lease_timer = lease_timer
        self._sending: asyncio.Task[None] | None = None
        self._expires_at = sent_at + seconds
        self.began_at = sent_at
        self.beside = 0
        """Heartbeats in a row that another thread has sent."""
        self.due_at = sent_at + seconds / BEATS_PER_LEASE

    def keep(self) -> None:
        """Send heartbeats until `stop`."""
        self._lease_timer.add(self)

    def check(self) -> None:
        """Nothing is committed under a lease that another attempt may have replaced."""
        if not self.stands:
            raise LeaseExpiredError("the lease ran out before the work was committed")

    @property
    def stands(self) -> bool:
        return asyncio.get_running_loop().time() < self._expires_at

    def stop(self) -> None:
        self._lease_timer.leases.pop(self, None)
        if self._sending is not None:
            self._sending.cancel()

    def start(self) -> None:
        """Send a heartbeat. The next one is due when it is known what became of this one."""
        self.due_at = inf
        self.beside = 0
        self._sending = asyncio.get_running_loop().create_task(self._send(self.next_number()))

    def next_number(self) -> int:
        self._beats += 1
        return self._beats

    def extend(self, sent_at: float) -> None:
        """A heartbeat that was sent then has arrived. It may have gone another way, from another thread."""
        self._expires_at = max(self._expires_at, sent_at + self._seconds)
        self.due_at = sent_at + self._seconds / BEATS_PER_LEASE

    def wait_in_outage(self, now: float) -> None:
        self.due_at = now + self._seconds / BEATS_PER_LEASE_IN_OUTAGE

    async def _send(self, number: int) -> None:
        loop = asyncio.get_running_loop()
        sent_at = loop.time()
        try:
            await self._beat(number)
        except Exception as error:
            log.warning("a heartbeat was not sent: %r", error)
            self.wait_in_outage(loop.time())
        else:
            self.extend(sent_at)
        self._lease_timer.add(self)


class LeaseTimer:
    """One timer for all leases of a runner: most attempts end long before their first heartbeat."""

    def __init__(self) -> None:
        self.leases: dict[Lease, None] = {}
        """In the order in which they were added, so that heartbeats go out in the same order each time."""
        self._rings_at = inf
        self._timer: asyncio.TimerHandle | None = None

    def add(self, lease: Lease) -> None:
        self.leases[lease] = None
        if lease.due_at < self._rings_at:
            self._arm(lease.due_at)

    def stop(self) -> None:
        """Leases that are still kept get no more heartbeats."""
        self._arm(inf)

    def _arm(self, rings_at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._rings_at, self._timer = rings_at, None
        if rings_at < inf:
            self._timer = asyncio.get_running_loop().call_at(rings_at, self._ring)

    def _ring(self) -> None:
        now = asyncio.get_running_loop().time() + EARLY
        for lease in self.leases:
            if lease.due_at <= now:
                lease.start()
        self._arm(min((lease.due_at for lease in self.leases), default=inf))
