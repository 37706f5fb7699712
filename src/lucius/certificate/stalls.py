"""How long this process stood still: a machine that is too busy proves nothing about a service."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from lucius.certificate.exam import now

BEAT: Final = 0.1
LONG: Final = 0.25
"""Seconds that a beat may be late before whoever failed meanwhile is looked at again."""


class Stalls:
    """Beats ten times a second, and remembers when it was late."""

    def __init__(self) -> None:
        self._beat_at = 0.0
        self._late_at = float("-inf")

    @contextmanager
    def watching(self) -> Iterator[None]:
        self._beat_at = now()
        beating = asyncio.ensure_future(self._beat())
        try:
            yield
        finally:
            beating.cancel()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT)
            self._note()
            self._beat_at = now()

    def _note(self) -> None:
        if now() - self._beat_at > BEAT + LONG:
            self._late_at = now()

    def since(self, begun: float) -> bool:
        """Whether there was one since then."""
        self._note()
        return self._late_at >= begun
