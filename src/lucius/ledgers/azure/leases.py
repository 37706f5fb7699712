"""Rows in one partition, guarded by the ETags of the service: leases of lanes, and notes."""

from collections.abc import Sequence
from typing import Final

import orjson

from lucius.ledgers.azure import names
from lucius.ledgers.azure.store import (
    ETAG,
    ROW,
    Act,
    Change,
    Refused,
    Store,
    chunked,
    joined,
    row_of,
)
from lucius.ports.leases import LeaseRow

LEASES: Final = "LEASE"
NOTES: Final = "NOTE"


class AzureLeases:
    def __init__(self, store: Store, table: str, partition: str = LEASES) -> None:
        self._store = store
        self._table = table
        self._partition = partition

    async def rows(self) -> Sequence[LeaseRow]:
        found = [
            LeaseRow(
                names.unescaped(row[ROW]),
                row["holder"],
                orjson.loads(joined("content", row)),
                row[ETAG],
            )
            async for row in self._store.scan(self._table, self._partition)
        ]
        return sorted(found, key=lambda row: row.key)

    async def put(self, row: LeaseRow) -> str | None:
        made = await self._store.commit(self._table, [self._change(row)], once=True)
        return None if isinstance(made, Refused) else made[0]

    async def put_all(self, rows: Sequence[LeaseRow]) -> Sequence[str | None]:
        """One transaction. If someone has written one of the rows, each goes by itself."""
        if not rows:
            return ()
        changes = [self._change(row) for row in rows]
        made = await self._store.commit(self._table, changes, once=True)
        return [await self.put(row) for row in rows] if isinstance(made, Refused) else made

    async def delete(self, row: LeaseRow) -> bool:
        """Only a row that is there has a stamp, so the service refuses one that is gone."""
        gone = Change(Act.DELETE, row_of(self._partition, names.escaped(row.key), {}), row.etag)
        return not isinstance(await self._store.commit(self._table, [gone], once=True), Refused)

    def _change(self, row: LeaseRow) -> Change:
        columns = {"holder": row.holder, **chunked("content", orjson.dumps(dict(row.content)))}
        act = Act.INSERT if row.etag is None else Act.REPLACE
        return Change(act, row_of(self._partition, names.escaped(row.key), columns), row.etag)
