"""Transactions that several callers share. Whoever comes while one is under way goes with the next one.

Each caller has an answer of its own: what is refused to one concerns nobody else.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from lucius.core.errors import LedgerError, LedgerUnavailableError
from lucius.ledgers.azure.store import (
    MOST_CHANGES,
    PARTITION,
    ROW,
    Change,
    Etags,
    Refused,
    Row,
    Store,
)

MOST_CHARACTERS: Final = 1_000_000
"""Of one transaction that is shared: Azure takes 4 MiB, and a character may need four bytes."""


@dataclass(eq=False)
class _Wanted:
    changes: Sequence[Change]
    answer: "asyncio.Future[Etags | Refused]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    @property
    def keys(self) -> set[str]:
        return {change.row[ROW] for change in self.changes}


@dataclass(eq=False)
class _Queue:
    waiting: list[_Wanted] = field(default_factory=list)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    callers: int = 0


class Together:
    """Of one table."""

    def __init__(self, store: Store, table: str) -> None:
        self._store = store
        self._table = table
        self._queues: dict[str, _Queue] = {}

    async def commit(self, changes: Sequence[Change]) -> Etags | Refused:
        """As the store does it. The changes of one caller hold together."""
        partition = changes[0].row[PARTITION]
        queue = self._queues.setdefault(partition, _Queue())
        queue.callers += 1
        try:
            return await self._answered(queue, _Wanted(changes))
        finally:
            queue.callers -= 1
            if not queue.callers:
                del self._queues[partition]

    async def _answered(self, queue: _Queue, mine: _Wanted) -> Etags | Refused:
        queue.waiting.append(mine)
        try:
            async with queue.turn:
                while not mine.answer.done():
                    going = asyncio.ensure_future(self._performed(_next(queue)))
                    await asyncio.shield(going)  # others wait for it, though its caller may go
        except BaseException:
            if mine in queue.waiting:
                queue.waiting.remove(mine)  # it gave up before its turn
            raise
        return await mine.answer

    async def _performed(self, batch: list[_Wanted]) -> None:
        try:
            while batch:
                batch = await self._tried(batch)
        except LedgerUnavailableError as error:
            _failed(batch, error)
        except LedgerError as error:
            await self._one_by_one(batch, error)
        except BaseException:
            _failed(batch, LedgerUnavailableError("nobody knows: the request was given up"))
            raise

    async def _tried(self, batch: list[_Wanted]) -> list[_Wanted]:
        """Those that have no answer yet, because something of another was refused."""
        changes = [change for each in batch for change in each.changes]
        made = await self._store.commit(self._table, changes)
        at = 0
        for each in batch:
            end = at + len(each.changes)
            if not isinstance(made, Refused):
                each.answer.set_result(made[at:end])
            elif at <= made.index < end:
                each.answer.set_result(Refused(made.index - at, made.status))
            at = end
        return [each for each in batch if not each.answer.done()]

    async def _one_by_one(self, batch: list[_Wanted], error: LedgerError) -> None:
        """Something in it cannot be stored: that is said to whose it is."""
        if len(batch) == 1:
            _failed(batch, error)
            return
        for each in batch:
            await self._performed([each])


def _next(queue: _Queue) -> list[_Wanted]:
    """In the order in which they came, as many as fit; no row twice."""
    batch, keys, rows, size = list[_Wanted](), set[str](), 0, 0
    while queue.waiting:
        each = queue.waiting[0]
        rows += len(each.changes)
        size += sum(_characters(change.row) for change in each.changes)
        if batch and (rows > MOST_CHANGES or size > MOST_CHARACTERS or keys & each.keys):
            break
        keys |= each.keys
        batch.append(queue.waiting.pop(0))
    return batch


def _characters(row: Row) -> int:
    return sum(len(value) if isinstance(value, str) else 8 for value in row.values())


def _failed(batch: Sequence[_Wanted], error: LedgerError) -> None:
    for each in batch:
        if not each.answer.done():
            each.answer.set_exception(error)
            each.answer.exception()  # it may be that nobody asks
