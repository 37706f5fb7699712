"""A table service in memory that loses answers and requests, and is slow now and then, by a seed."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from random import Random

from lucius.adapters.ledgers.azure.store import Change, Etags, Refused
from lucius.core.errors import LedgerUnavailableError
from tests.memory_tables import MemoryTables

LONGEST = 0.5
"""Seconds that a request takes at most, in virtual time."""


class LossyTables(MemoryTables):
    """A tenth of the requests whose answers are lost gets none at all, however often it is sent."""

    share = 0.0
    """The part of all writes whose answer is lost."""

    def __init__(self, seed: int = 1) -> None:
        super().__init__()
        self.met: Counter[str] = Counter()
        self._random = Random(seed)

    async def _request(self) -> None:
        await super()._request()
        await asyncio.sleep(LONGEST * self._random.random() ** 8)

    async def commit(
        self, table: str, changes: Sequence[Change], *, once: bool = False
    ) -> Etags | Refused:
        lot = self._random.random() / self.share if self.share else 1.0
        if lot < 0.05:
            self.met["never sent"] += 1
            raise LedgerUnavailableError("the request did not arrive")
        made = await super().commit(table, changes, once=once)
        if lot >= 1 or isinstance(made, Refused):
            return made
        if lot < 0.1 or once:
            self.met["landed unheard"] += 1
            raise LedgerUnavailableError("no answer came")
        again = await super().commit(table, changes)
        self.met["landed, then refused" if isinstance(again, Refused) else "landed twice"] += 1
        return again
