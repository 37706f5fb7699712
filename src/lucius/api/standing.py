"""Callers that wait: whoever loses its key or its token meanwhile is answered 401, and gets nothing more.

Requests that do not wait are not slowed down by this. Those that do are looked at once a second.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from lucius.api.problems import Problem

LOOK_SECONDS: Final = 1.0
Stands = Callable[[], bool]
"""Whether a caller may call still."""


class CallerWatch:
    """Ends the waits of callers that may call no longer."""

    def __init__(self) -> None:
        self._waits: dict[asyncio.Timeout, Stands] = {}

    def look(self) -> None:
        """Now: every wait of a caller that was revoked, or has expired, is over."""
        lost = [wait for wait, stands in self._waits.items() if not stands()]
        for wait in lost:
            if not wait.expired():
                wait.reschedule(asyncio.get_running_loop().time())

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look()

    @asynccontextmanager
    async def while_it(self, stands: Stands) -> AsyncIterator[None]:
        """What is awaited inside is for a caller, as long as it may call. Raises the 401."""
        wait = asyncio.timeout(None)
        try:
            async with wait:
                self._waits[wait] = stands
                yield
        except TimeoutError:
            if not wait.expired():
                raise
        finally:
            self._waits.pop(wait, None)
        check(stands)


def check(stands: Stands) -> None:
    """Asked once more before anything is handed out."""
    if not stands():
        raise Problem(
            "UNAUTHENTICATED",
            "the key or token of this request was revoked or has expired while it waited",
            headers={"www-authenticate": "Bearer"},
        )
