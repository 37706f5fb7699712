"""What the ledger asks of a table service: point reads, scans of a range, and transactions in one partition.

Everything above this speaks in these words; everything below is the SDK. So a double can stand between.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from time import monotonic
from typing import Any, Final, Protocol, TypeVar

from lucius.core.errors import LedgerError, LedgerUnavailableError
from lucius.core.record import record

log = logging.getLogger("lucius.ledger")
T = TypeVar("T")

Row = dict[str, Any]
"""Columns by name, with `PartitionKey` and `RowKey`. What was read has `etag` as well."""

PARTITION: Final = "PartitionKey"
ROW: Final = "RowKey"
ETAG: Final = "etag"
MOST_CHANGES: Final = 100
"""In one transaction."""

CUT: Final = timedelta(seconds=1)
"""What the service's date leaves out."""

MISSING: Final = 404
EXISTS: Final = 409
MOVED: Final = 412


class Act(StrEnum):
    INSERT = "create"
    REPLACE = "update"
    MERGE = "merge"
    """Replace some columns of a row that is there."""
    UPSERT = "upsert"
    """Insert it, or else as MERGE: columns of a newer version stay."""
    DELETE = "delete"


@record
class Change:
    act: Act
    row: Row
    etag: str | None = None
    """The row must still have it. None: whatever is stored."""


@record
class Refused:
    """A transaction that was not made, because of its change `index`: 404, 409 or 412."""

    index: int
    status: int


class DamagedRows:
    """Rows that nobody here has written so. Each is named once, and must not hide the rows of others."""

    MOST: Final = 10_000

    def __init__(self) -> None:
        self.named: dict[tuple[str, str], str] = {}
        """By partition and row: what is wrong."""

    def read(self, row: Row, read: Callable[[Row], T]) -> T | None:
        """What `read` makes of it. None: it is damaged."""
        try:
            return read(row)
        except (LookupError, ValueError, TypeError, AttributeError) as error:
            place = (str(row.get(PARTITION)), str(row.get(ROW)))
            if place not in self.named and len(self.named) < self.MOST:
                self.named[place] = repr(error)
                log.error(
                    "row %s of %s cannot be read, and is passed over: %r", *place[::-1], error
                )
            return None


Etags = Sequence[str | None]


class Store(Protocol):
    async def get(
        self, table: str, partition: str, row: str, columns: Sequence[str] | None = None
    ) -> Row | None: ...

    def scan(
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
        """Rows from `first` up to `end`, exclusive, in the order of their keys; of all partitions where
        none is named."""

    async def commit(
        self, table: str, changes: Sequence[Change], *, once: bool = False
    ) -> Etags | Refused:
        """All or nothing, in one partition. LedgerUnavailableError: nobody knows.

        Without an answer it is sent again, so a refusal may be because of itself, unless `once`.
        """

    def dated(self) -> tuple[datetime, float] | None:
        """The service's date in its last answer, and the monotonic moment at which that came."""

    async def close(self) -> None: ...


def _wall() -> datetime:
    return datetime.now(UTC)


def service_time(
    store: Store,
    wall: Callable[[], datetime] = _wall,
    time: Callable[[], float] = monotonic,
) -> datetime:
    """By the date of the service's last answer, where our own clock is off.

    That date is cut to whole seconds. Two processes that went by it alone would disagree by up to a second
    about what came first.
    """
    ours, dated = wall(), store.dated()
    if dated is None:
        return ours
    there = dated[0] + CUT / 2 + timedelta(seconds=time() - dated[1])
    return ours if abs(ours - there) <= CUT else there


def row_of(partition: str, row: str, columns: Mapping[str, Any]) -> Row:
    """Columns without a value are absent."""
    given = {name: value for name, value in columns.items() if value is not None}
    return {PARTITION: partition, ROW: row, **given}


# -- long texts ------------------------------------------------------------------------------

CHUNK: Final = 16_000
"""Characters of a document in one column: in UTF-16 at most 32,000 of the 32,768 that Azure takes."""


def chunked(name: str, text: bytes) -> dict[str, str]:
    """A document in as many columns as it needs: `doc`, `doc1`, `doc2` ..."""
    whole = text.decode()
    pieces = [whole[at : at + CHUNK] for at in range(0, len(whole), CHUNK)] or [""]
    return {name if not no else f"{name}{no}": piece for no, piece in enumerate(pieces)}


def joined(name: str, row: Row) -> bytes:
    pieces, no = [str(row.get(name, ""))], 1
    while f"{name}{no}" in row:
        pieces.append(str(row[f"{name}{no}"]))
        no += 1
    return "".join(pieces).encode("utf-8", "surrogatepass")


# Transactions that several callers share. Whoever comes while one is under way goes with the next one.
#
# Each caller has an answer of its own: what is refused to one concerns nobody else.

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
