"""Storage that is away: what it should be told is still owed, so it is told when it is back."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from lucius.core.errors import LedgerUnavailableError
from lucius.engines.outbox.inbox import OUTAGE_PAUSE

log = logging.getLogger("lucius.engine")

T = TypeVar("T")


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
