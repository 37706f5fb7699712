"""Lease rows in a dictionary: for several engines in one process."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from lucius.ports.leases import LeaseRow


class MemoryLeases:
    def __init__(self) -> None:
        self._rows: dict[str, LeaseRow] = {}
        self._stamps = count(1)

    async def rows(self) -> Sequence[LeaseRow]:
        return [row for _, row in sorted(self._rows.items())]

    async def put(self, row: LeaseRow) -> str | None:
        if self._stamp(row.key) != row.etag:
            return None
        etag = str(next(self._stamps))
        self._rows[row.key] = replace(row, etag=etag)
        return etag

    async def put_all(self, rows: Sequence[LeaseRow]) -> Sequence[str | None]:
        return [await self.put(row) for row in rows]

    async def delete(self, row: LeaseRow) -> bool:
        if row.etag is None or self._stamp(row.key) != row.etag:
            return False
        del self._rows[row.key]
        return True

    def _stamp(self, key: str) -> str | None:
        stored = self._rows.get(key)
        return stored.etag if stored is not None else None
