"""Tables in memory with their keys in order, for many rows. What they cost themselves is counted apart."""

import time
from bisect import bisect_left, bisect_right
from collections.abc import AsyncIterator, Mapping, Sequence

from lucius.adapters.ledgers.azure.store import Change, Etags, Refused, Row
from tests.memory_tables import Key, MemoryTables, _selected


class IndexedTables(MemoryTables):
    def __init__(self) -> None:
        super().__init__()
        self.cpu = 0.0
        """Seconds that scans took here."""
        self._keys: dict[str, list[Key]] = {}

    async def commit(
        self, table: str, changes: Sequence[Change], *, once: bool = False
    ) -> Etags | Refused:
        self._keys.pop(table, None)
        return await super().commit(table, changes, once=once)

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
        if partition is None or equal:
            async for row in super().scan(
                table, partition, first, end, equal=equal, columns=columns, page=page
            ):
                yield row
            return
        at = None
        while True:
            await self._request()
            rows, at, more = self._page(table, partition, first, end, columns, page, at)
            for row in rows:
                yield row
            if not more:
                return

    def _page(
        self,
        table: str,
        partition: str,
        first: str,
        end: str | None,
        columns: Sequence[str] | None,
        page: int,
        after: Key | None,
    ) -> tuple[list[Row], Key | None, bool]:
        began = time.process_time()
        keys = self._keys.get(table)
        if keys is None:
            keys = self._keys[table] = sorted(self.tables[table])
        start = (
            bisect_left(keys, (partition, first)) if after is None else bisect_right(keys, after)
        )
        last = (partition, end) if end is not None else (partition + "\0", "")
        stop = bisect_left(keys, last)
        found = keys[start : min(stop, start + page)]
        rows = [_selected(self.tables[table][key], columns) for key in found]
        self.cpu += time.process_time() - began
        return rows, found[-1] if found else None, start + page < stop
