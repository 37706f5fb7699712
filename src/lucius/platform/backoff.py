"""Waiting a little longer each time, up to a limit."""

import asyncio
from math import inf
from typing import Final

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
