"""Records of one kind: read together, and changed one by one without losing what others wrote."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from lucius.core.errors import LedgerUnavailableError
from lucius.ports.leases import LeaseRow, LeaseStore

Record = Mapping[str, Any]
"""JSON data."""
Rewrite = Callable[[Record | None], Record | None]
"""What becomes of a record; None: there is none (any more)."""
RACES: Final = 10
T = TypeVar("T")
log = logging.getLogger("lucius.insight")


def readable(name: str, record: Record, read: Callable[[Record], T], otherwise: T) -> T:
    """What a stored record says. A damaged one is named in the log, and must not stop its readers."""
    try:
        return read(record)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, OSError) as error:
        log.error("the stored note %s cannot be read: %r", name, error)
        return otherwise


class SharedRecords:
    """The records whose keys begin with `kind`; each has a name after it."""

    def __init__(self, store: LeaseStore, kind: str) -> None:
        self._store = store
        self._prefix = f"{kind}|"

    async def read(self) -> dict[str, Record]:
        """By name."""
        return {name: row.content for name, row in (await self._rows()).items()}

    async def change(self, name: str, rewrite: Rewrite) -> Record | None:
        """Rewrite what is there; who has read it before someone else wrote it reads it again."""
        for _ in range(RACES):
            row = (await self._rows()).get(name, LeaseRow(self._prefix + name, ""))
            content = rewrite(row.content if row.etag is not None else None)
            if await self._write(row, content):
                return content
        raise LedgerUnavailableError(
            f"the note {self._prefix}{name} is changed by others all the time"
        )

    async def _write(self, row: LeaseRow, content: Record | None) -> bool:
        if content is not None:
            return await self._store.put(replace(row, content=content)) is not None
        return row.etag is None or await self._store.delete(row)

    async def _rows(self) -> dict[str, LeaseRow]:
        return {
            row.key.removeprefix(self._prefix): row
            for row in await self._store.rows()
            if row.key.startswith(self._prefix)
        }
