"""The alarm: when the next job is due. Commits set it, the reconciler waits for it."""

import asyncio
from datetime import datetime


class Alarm:
    def __init__(self) -> None:
        self._at: datetime | None = None
        self._earlier = asyncio.Event()

    @property
    def at(self) -> datetime | None:
        return self._at

    def due(self, at: datetime) -> None:
        """A job was committed that is due then."""
        if self._at is None or at < self._at:
            self._at = at
            self._earlier.set()

    def set(self, at: datetime | None) -> None:
        """As the ledger says: nothing is due before."""
        self._at = at
        self._earlier.clear()

    async def wait(self, seconds: float) -> None:
        """So long, or until something is due earlier than was known."""
        try:
            async with asyncio.timeout(seconds):
                await self._earlier.wait()
        except TimeoutError:
            pass
