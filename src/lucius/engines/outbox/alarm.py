"""The alarm: when the next job is due. Commits set it, the reconciler waits for it."""

import asyncio
from datetime import datetime

from lucius.core.effects import Committed


class Alarm:
    def __init__(self) -> None:
        self._at: datetime | None = None
        self._earlier = asyncio.Event()

    @property
    def at(self) -> datetime | None:
        return self._at

    def listen(self, commit: Committed) -> None:
        before, at = commit.before, commit.job.due_at
        if commit.owned and at is not None and (before is None or before.due_at != at):
            self.due(at)

    def due(self, at: datetime) -> None:
        """A job was committed that is due then."""
        if self._at is None or at < self._at:
            self._at = at
            self._earlier.set()

    def forget(self) -> None:
        """The ledger is about to be asked. What is committed from now on counts besides its answer."""
        self._at = None
        self._earlier.clear()

    def found(self, at: datetime | None) -> None:
        """The ledger was asked, and named this as the earliest moment at which a job is due."""
        if at is not None and (self._at is None or at < self._at):
            self._at = at

    async def wait(self, seconds: float) -> bool:
        """Wait so many seconds. True: something has become due earlier than was known, so ask again."""
        try:
            async with asyncio.timeout(seconds):
                return await self._earlier.wait()
        except TimeoutError:
            return False
