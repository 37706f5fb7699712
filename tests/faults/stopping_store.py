"""A table service whose client stops between two requests: for good, or to wake up late."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum

from lucius.ledgers.azure.store import Change, Etags, Refused, Row, Store


class Fate(StrEnum):
    """What happens to the writer at one of its requests."""

    UNSENT = "dies before it"
    UNHEARD = "dies after it, before the answer"
    LATE = "sleeps before it, and wakes up when others have gone on"


class DeadError(BaseException):
    """The process is gone: nothing may catch this."""


class StoppingStore:
    """The request number `at`, from 0 on, or the first write to the table `at`, meets its fate."""

    def __init__(self, store: Store, at: int | str, fate: Fate) -> None:
        self._store = store
        self._at: int | str | None = at
        self._fate = fate
        self._made = 0
        self._dead = False
        self.dated = store.dated
        self.reached = asyncio.Event()
        self.wake_up = asyncio.Event()

    async def _before(self, writes_to: str = "") -> bool:
        """Whether the process dies once this request is performed."""
        number, self._made = self._made, self._made + 1
        if self._dead:
            raise DeadError
        if self._at not in (number, writes_to):
            return False
        self._at, self._dead = None, self._fate is not Fate.LATE
        self.reached.set()
        if self._fate is Fate.UNSENT:
            raise DeadError
        if self._fate is Fate.LATE:
            await self.wake_up.wait()
        return self._fate is Fate.UNHEARD

    async def get(
        self, table: str, partition: str, row: str, columns: Sequence[str] | None = None
    ) -> Row | None:
        dies = await self._before()
        found = await self._store.get(table, partition, row, columns)
        if dies:
            raise DeadError
        return found

    async def scan(
        self,
        table: str,
        partition: str | None,
        first: str = "",
        end: str | None = None,
        *,
        equal: Mapping[str, str | bool] | None = None,
        columns: Sequence[str] | None = None,
        page: int = 1000,
    ) -> AsyncIterator[Row]:
        dies = await self._before()
        found = self._store.scan(
            table, partition, first, end, equal=equal, columns=columns, page=page
        )
        rows = [row async for row in found]
        if dies:
            raise DeadError
        for row in rows:
            yield row

    async def commit(
        self, table: str, changes: Sequence[Change], *, once: bool = False
    ) -> Etags | Refused:
        dies = await self._before(table)
        made = await self._store.commit(table, changes, once=once)
        if dies:
            raise DeadError
        return made

    async def close(self) -> None:
        """What it stands on is closed by the test."""


class Clock:
    def __init__(self, now: datetime) -> None:
        self.moment = now

    def __call__(self) -> datetime:
        return self.moment
