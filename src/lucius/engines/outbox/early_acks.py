"""ACKs that wait a moment for their RESULT, so that one save holds both.

A quick step sends its RESULT some milliseconds after its ACK. Saved alone, the ACK costs a commit that tells
nobody anything for longer than that. Whatever else comes about the same job ends the wait.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final

from lucius.ports.bus import Delivery

PATIENCE: Final = timedelta(milliseconds=100)
Due = Callable[[Sequence[Delivery]], None]
"""Called with the ACKs of one job that have waited long enough."""


class EarlyAcks:
    """One timer for all. What waits is still locked on the bus, and comes again if the process dies."""

    def __init__(self, due: Due) -> None:
        self._due = due
        self._waiting: dict[str, tuple[float, Sequence[Delivery]]] = {}
        """By job, in the order in which they came."""
        self._timer: asyncio.TimerHandle | None = None

    def joined(self, job_id: str, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        """What waits about this job, and then these. Nothing about the job waits any more."""
        waiting = self._waiting.pop(job_id, None)
        return deliveries if waiting is None else [*waiting[1], *deliveries]

    def wait(self, job_id: str, acks: Sequence[Delivery]) -> None:
        loop = asyncio.get_running_loop()
        self._waiting[job_id] = (loop.time() + PATIENCE.total_seconds(), acks)
        if self._timer is None:
            self._timer = loop.call_later(PATIENCE.total_seconds(), self._ring)

    def end(self) -> None:
        """Nobody waits any longer."""
        self._ring(all_of_them=True)

    def _ring(self, *, all_of_them: bool = False) -> None:
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting:
            job_id, (until, acks) = next(iter(self._waiting.items()))
            if until > loop.time() and not all_of_them:
                self._timer = loop.call_at(until, self._ring)
                return
            del self._waiting[job_id]
            self._due(acks)
