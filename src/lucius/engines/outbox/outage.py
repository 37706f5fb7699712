"""Storage that is away: what it should be told is still owed, so it is told when it is back."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import Final, TypeVar

from lucius.core.errors import LedgerUnavailableError

log = logging.getLogger("lucius.engine")

OUTAGE_PAUSE: Final = timedelta(seconds=1)
T = TypeVar("T")


async def all_of(work: Iterable[Awaitable[T]]) -> list[T]:
    """Their answers, once all have ended; then the first error. None goes on while it is tried again."""
    found = await asyncio.gather(*work, return_exceptions=True)
    answers: list[T] = []
    for each in found:
        if isinstance(each, BaseException):
            raise each
        answers.append(each)
    return answers


async def persistently(act: Callable[[], Awaitable[T]]) -> T:
    """Repeat until the ledger answers."""
    failures = 0
    while True:
        try:
            return await act()
        except LedgerUnavailableError as error:
            if not failures:
                log.warning("the ledger is unavailable: %s", error)
            failures += 1
        await asyncio.sleep(OUTAGE_PAUSE.total_seconds())
