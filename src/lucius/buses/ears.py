"""An ear: what was told to one address of a bus and has not been heard yet."""

import asyncio
from collections import deque
from datetime import timedelta
from typing import Final

from lucius.ports.bus import Message

KEPT: Final = 1000
"""Messages that wait to be heard; the oldest are dropped."""


class Ear:
    def __init__(self) -> None:
        self._told: deque[Message] = deque(maxlen=KEPT)
        self._some = asyncio.Event()

    def tell(self, message: Message) -> None:
        self._told.append(message)
        self._some.set()

    async def wait(self) -> None:
        """Return when there is something to hear."""
        while not self._told:
            self._some.clear()
            await self._some.wait()

    def heard(self) -> list[Message]:
        found = list(self._told)
        self._told.clear()
        return found

    async def within(self, wait: timedelta) -> list[Message]:
        try:
            async with asyncio.timeout(wait.total_seconds()):
                await self.wait()
        except TimeoutError:
            pass
        return self.heard()
