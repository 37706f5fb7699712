"""What services have begun and done, in an Azure table: one row an attempt, guarded by its ETag.

New work takes one request, and so do its end and each heartbeat. Rows of old jobs are removed when a
process of a service starts: they save work, and nothing is wrong without them.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Final
from zlib import crc32

import orjson

from lucius.adapters.ledgers.azure.names import escaped, key, table_name
from lucius.adapters.ledgers.azure.opening import open_tables
from lucius.adapters.ledgers.azure.store import (
    ETAG,
    MOST_CHANGES,
    PARTITION,
    ROW,
    Act,
    Change,
    Refused,
    Row,
    Store,
    chunked,
    joined,
    row_of,
)
from lucius.core.ids import new_job_id
from lucius.platform.messages import AttemptKey, Directive
from lucius.platform.records import MINE, OTHERS, Begun, Result

SETTING: Final = "LUCIUS_SERVICE_RECORDS_TABLE"
PARTITIONS: Final = 16
"""A partition of Azure takes 2,000 rows a second."""
KEPT: Final = timedelta(days=7)
"""How long after the beginning of its job a row is kept."""


def _utc_now() -> datetime:
    return datetime.now(UTC)


class TableRecords:
    """Implements `lucius.platform.records.Records`."""

    def __init__(self, store: Store, table: str, now: Callable[[], datetime] = _utc_now) -> None:
        self._store = store
        self._table = table
        self._now = now
        self._held: dict[AttemptKey, str | None] = {}
        """The ETags of the rows of what is at work here."""

    async def begin(self, directive: Directive, owner: str) -> Begun:
        if await self._taken(directive, Change(Act.INSERT, self._begun(directive, owner))):
            return MINE
        found = await self._store.get(self._table, *_place(directive))
        if found is not None and "result" in found:
            return Begun(False, orjson.loads(joined("result", found)))
        if found is None or not self._is_free(directive, owner, found):
            return OTHERS
        again = Change(Act.REPLACE, self._begun(directive, owner), found[ETAG])
        return MINE if await self._taken(directive, again) else OTHERS

    def _is_free(self, directive: Directive, owner: str, found: Row) -> bool:
        """Its owner is dead: its lease has run out, or it is the caller's predecessor."""
        predecessor = found["owner"] == owner and directive.key not in self._held
        return predecessor or bool(found["expires_at"] <= self._now().timestamp())

    async def _taken(self, directive: Directive, change: Change) -> bool:
        """Sent once: without an answer, the next try finds that this one has landed."""
        made = await self._store.commit(self._table, [change], once=True)
        if isinstance(made, Refused):
            return False
        self._held[directive.key] = made[0]
        return True

    async def renew(self, directive: Directive, owner: str) -> None:
        await self._rewrite(directive, self._begun(directive, owner))

    async def finish(self, directive: Directive, result: Result) -> None:
        columns = chunked("result", orjson.dumps(dict(result)))
        done = Change(Act.UPSERT, row_of(*_place(directive), columns))
        await self._store.commit(self._table, [done])
        self._held.pop(directive.key, None)

    async def forget(self, directive: Directive, owner: str) -> None:
        given_back = {"owner": owner, "expires_at": 0.0}
        await self._rewrite(directive, row_of(*_place(directive), given_back))
        self._held.pop(directive.key, None)

    async def _rewrite(self, directive: Directive, row: Row) -> None:
        """Only what is held here. A row that someone else has taken over stays as it is.

        An answer that was lost leaves an old ETag here: the row itself says whose it is.
        """
        etag = self._held.get(directive.key)
        if etag is None or await self._taken(directive, Change(Act.REPLACE, row, etag)):
            return
        found = await self._store.get(self._table, *_place(directive))
        if found is not None and found["owner"] == row["owner"] and "result" not in found:
            await self._taken(directive, Change(Act.REPLACE, row, found[ETAG]))

    def _begun(self, directive: Directive, owner: str) -> Row:
        expires_at = self._now().timestamp() + directive.lease_seconds
        return row_of(*_place(directive), {"owner": owner, "expires_at": expires_at})

    async def sweep(self) -> int:
        """Remove the rows of jobs that began long ago: the ids of jobs begin with their time."""
        end, removed = escaped(new_job_id(self._now() - KEPT)), 0
        for partition in map(_partition, range(PARTITIONS)):
            old = [
                Change(Act.DELETE, {PARTITION: partition, ROW: row[ROW]})
                async for row in self._store.scan(
                    self._table, partition, "job_", end, columns=["owner"]
                )
            ]
            for at in range(0, len(old), MOST_CHANGES):
                await self._store.commit(self._table, old[at : at + MOST_CHANGES])
            removed += len(old)
        return removed


def _partition(number: int) -> str:
    return f"RECORD{number:02}"


def _place(directive: Directive) -> tuple[str, str]:
    return _partition(crc32(directive.job_id.encode()) % PARTITIONS), key(*directive.key)


@asynccontextmanager
async def open_records(connection: str, table: str) -> AsyncIterator[TableRecords]:
    """The table is created where it is missing. LedgerError, with the setting that helps, if it cannot be."""
    name, store = table_name(SETTING, table), open_tables(connection)
    try:
        await store.ensure(name, SETTING)
        records = TableRecords(store, name)
        await records.sweep()
        yield records
    finally:
        await store.close()
