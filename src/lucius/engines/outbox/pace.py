"""So many pieces of work in one turn of the event loop, and no more: the rest waits for the next turn.

A loop that finds two hundred tasks ready runs them all before it looks at its sockets again, and
whoever only wants to read a job waits for all of them.
"""

import asyncio
from collections import deque


class Pace:
    def __init__(self, a_turn: int) -> None:
        self._a_turn = a_turn
        self._left = a_turn
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._armed = False

    async def turn(self) -> None:
        """Wait for the caller's turn. It is at once, while this turn of the event loop has room."""
        loop = asyncio.get_running_loop()
        if not self._armed:
            self._armed = True
            loop.call_soon(self._next, loop)
        if self._left > 0:
            self._left -= 1
            return
        mine = loop.create_future()
        self._waiting.append(mine)
        await mine

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        self._armed = False
        self._left = self._a_turn
        while self._left and self._waiting:
            first = self._waiting.popleft()
            if not first.done():
                first.set_result(None)
                self._left -= 1
        if self._waiting:
            self._armed = True
            loop.call_soon(self._next, loop)
