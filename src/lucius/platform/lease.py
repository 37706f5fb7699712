"""The lease of one attempt as its worker sees it, and the heartbeats that keep it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from lucius.platform.errors import LeaseExpiredError

log = logging.getLogger(__name__)
BEATS_PER_LEASE: Final = 3
BEATS_PER_LEASE_IN_OUTAGE: Final = 10


class Lease:
    """Runs on the loop's clock from before the ACK went out: the ledger's begins later, when it came."""

    def __init__(
        self, seconds: float, sent_at: float, beat: Callable[[int], Awaitable[None]]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._beat = beat
        self._beats = 0
        self._timer: asyncio.TimerHandle | None = None
        self._sending: asyncio.Task[None] | None = None
        self._expires_at = sent_at + seconds

    def keep(self) -> None:
        """Send heartbeats until `stop`."""
        self._again(BEATS_PER_LEASE)

    def check(self) -> None:
        """Nothing is committed under a lease that another attempt may have replaced."""
        if self._loop.time() >= self._expires_at:
            raise LeaseExpiredError("the lease ran out before the work was committed")

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._sending is not None:
            self._sending.cancel()

    def _again(self, parts: int) -> None:
        self._timer = self._loop.call_later(self._seconds / parts, self._start)

    def _start(self) -> None:
        self._beats += 1
        self._sending = self._loop.create_task(self._send(self._beats))

    async def _send(self, number: int) -> None:
        sent_at = self._loop.time()
        try:
            await self._beat(number)
        except Exception as error:
            log.warning("a heartbeat was not sent: %r", error)
            self._again(BEATS_PER_LEASE_IN_OUTAGE)
            return
        self._expires_at = max(self._expires_at, sent_at + self._seconds)
        self._again(BEATS_PER_LEASE)
