"""A table service in memory, as strict as the real one about keys, sizes and ETags. It counts requests."""

import asyncio
import re
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from itertools import count

from lucius.adapters.ledgers.azure.store import (
    ETAG,
    EXISTS,
    MISSING,
    MOST_CHANGES,
    MOVED,
    PARTITION,
    ROW,
    Act,
    Change,
    Etags,
    Refused,
    Row,
)

FORBIDDEN = re.compile(r"[/\\#?\x00-\x1f\x7f-\x9f]")
Key = tuple[str, str]


class MemoryTables:
    """Every request gives way to others once, so that they interleave."""

    def __init__(self) -> None:
        self.tables: defaultdict[str, dict[Key, Row]] = defaultdict(dict)
        self.requests = 0
        self.read = 0
        """Rows that scans have answered."""
        self.written: Counter[str] = Counter()
        """Rows in transactions, by table."""
        self._stamps = count(1)

    async def _request(self) -> None:
        self.requests += 1
        await asyncio.sleep(0)

    async def get(
        self, table: str, partition: str, row: str, columns: Sequence[str] | None = None
    ) -> Row | None:
        await self._request()
        found = self.tables[table].get((partition, row))
        return _selected(found, columns) if found is not None else None

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
        after: Key = ("", "")
        while True:
            await self._request()
            found = [
                row
                for key, row in sorted(self.tables[table].items())
                if key > after
                and (partition is None or key[0] == partition)
                and first <= key[1]
                and (end is None or key[1] < end)
                and all(row.get(name) == value for name, value in (equal or {}).items())
            ]
            self.read += len(found[:page])
            for row in [_selected(row, columns) for row in found[:page]]:
                yield row
            if len(found) <= page:
                return
            after = (found[page - 1][PARTITION], found[page - 1][ROW])

    async def commit(
        self, table: str, changes: Sequence[Change], *, once: bool = False
    ) -> Etags | Refused:
        await self._request()
        self.written[table] += len(changes)
        assert 0 < len(changes) <= MOST_CHANGES
        assert len({change.row[PARTITION] for change in changes}) == 1
        keys = [(change.row[PARTITION], change.row[ROW]) for change in changes]
        assert len(set(keys)) == len(keys), "a row twice in one transaction"
        rows = self.tables[table]
        for index, (key, change) in enumerate(zip(keys, changes, strict=True)):
            status = _refusal(rows.get(key), change)
            if status is not None:
                silent = status == MISSING and change.act is Act.DELETE and len(changes) == 1
                return [None] if silent and change.etag is None else Refused(index, status)
        return [self._apply(rows, key, each) for key, each in zip(keys, changes, strict=True)]

    def _apply(self, rows: dict[Key, Row], key: Key, change: Change) -> str | None:
        if change.act is Act.DELETE:
            del rows[key]
            return None
        _check(change.row)
        before = rows.get(key, {}) if change.act in (Act.MERGE, Act.UPSERT) else {}
        stamp = f"W/{next(self._stamps)}"
        rows[key] = {**before, **change.row, ETAG: stamp}
        return stamp

    def dated(self) -> None:
        """It has no clock of its own."""

    async def close(self) -> None:
        """Nothing is held open."""


class ForgetfulTables(MemoryTables):
    """Loses the answer of every write that lands. As the SDK's adapter does, it sends the write again."""

    async def commit(
        self, table: str, changes: Sequence[Change], *, once: bool = False
    ) -> Etags | Refused:
        made = await super().commit(table, changes, once=once)
        if once or isinstance(made, Refused):
            return made
        return await super().commit(table, changes)


def _refusal(found: Row | None, change: Change) -> int | None:
    if change.act is Act.INSERT:
        return EXISTS if found is not None else None
    if found is None:
        return None if change.act is Act.UPSERT else MISSING
    return MOVED if change.etag is not None and change.etag != found[ETAG] else None


def _check(row: Row) -> None:
    for key in (row[PARTITION], row[ROW]):
        assert not FORBIDDEN.search(key), key
        assert len(key) <= 512
    for value in row.values():
        assert value is not None
        if isinstance(value, str):
            assert len(value.encode("utf-16-le")) <= 65_536


def _selected(row: Row, columns: Sequence[str] | None) -> Row:
    if columns is None:
        return dict(row)
    return {name: row[name] for name in (PARTITION, ROW, ETAG, *columns) if name in row}
