"""A table service whose client stops between two requests: for good, or to wake up late."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum

from lucius.adapters.ledgers.azure.store import Change, Etags, Refused, Row, Store
from lucius.core.errors import LedgerUnavailableError


class Fate(StrEnum):
    """What happens to the writer at one of its requests."""

    UNSENT = "dies before it"
    UNHEARD = "dies after it, before the answer"
    LATE = "sleeps before it, and wakes up when others have gone on"
    RESENT = "loses the answer, others go on, and the same request is sent again"
    UNKNOWN = "loses every answer, and goes on without knowing that the request has landed"

    @property
    def deadly(self) -> bool:
        return self in (Fate.UNSENT, Fate.UNHEARD)

    @property
    def answered(self) -> bool:
        """Whether the writer hears in the end if its request has landed."""
        return self in (Fate.LATE, Fate.RESENT)


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
        """Whether the answer of this request meets the fate as well."""
        number, self._made = self._made, self._made + 1
        if self._dead:
            raise DeadError
        if self._at not in (number, writes_to):
            return False
        self._at, self._dead = None, self._fate.deadly
        if self._fate is not Fate.RESENT:
            self.reached.set()
        if self._fate is Fate.UNSENT:
            raise DeadError
        if self._fate is Fate.LATE:
            await self.wake_up.wait()
        return True

    async def _lost(self) -> None:
        """The answer of a request that has landed is lost. Return: the same request is sent again."""
        if self._fate is Fate.UNHEARD:
            raise DeadError
        if self._fate is Fate.UNKNOWN:
            raise LedgerUnavailableError("no answer came")
        self.reached.set()
        await self.wake_up.wait()

    async def get(
        self, table: str, partition: str, row: str, columns: Sequence[str] | None = None
    ) -> Row | None:
        fated = await self._before()
        found = await self._store.get(table, partition, row, columns)
        if fated and self._fate is not Fate.LATE:
            await self._lost()
            found = await self._store.get(table, partition, row, columns)
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
        fated = await self._before()

        def scan() -> AsyncIterator[Row]:
            return self._store.scan(
                table, partition, first, end, equal=equal, columns=columns, page=page
            )

        rows = [row async for row in scan()]
        if fated and self._fate is not Fate.LATE:
            await self._lost()
            rows = [row async for row in scan()]
        for row in rows:
            yield row

    async def commit(
        self, table: str, changes: Sequence[Change], *, once: bool = False
    ) -> Etags | Refused:
        fated = await self._before(table)
        made = await self._store.commit(table, changes, once=once)
        if fated and self._fate is not Fate.LATE:
            await self._lost()
            if once:
                raise LedgerUnavailableError("no answer came, and it is not sent again")
            made = await self._store.commit(table, changes)
        return made

    async def close(self) -> None:
        """What it stands on is closed by the test."""


class Clock:
    def __init__(self, now: datetime) -> None:
        self.moment = now

    def __call__(self) -> datetime:
        return self.moment
