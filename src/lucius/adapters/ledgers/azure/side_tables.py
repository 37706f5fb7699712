"""API keys in one partition, a row each. A newer version may write columns of its own: they stay."""

import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import orjson

from lucius.adapters.ledgers.azure import names
from lucius.adapters.ledgers.azure.store import (
    ETAG,
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
from lucius.core.errors import LedgerError
from lucius.ports.keys import ApiKey
from lucius.ports.leases import LeaseRow

# Rows in one partition, guarded by the ETags of the service: leases of lanes, and notes.

LEASES: Final = "LEASE"
SHARED_RECORDS: Final = "NOTE"


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


log = logging.getLogger("lucius")
KEYS: Final = "KEY"
TEXTS: Final = ("name", "secret_sha256", "created_at", "revoked_at", "expires_at")


class AzureKeys:
    def __init__(self, store: Store, table: str) -> None:
        self._store = store
        self._table = table
        self._told: set[str] = set()

    async def keys(self) -> Sequence[ApiKey]:
        rows = [row async for row in self._store.scan(self._table, KEYS)]
        found = [key for row in rows if (key := self._read(row)) is not None]
        return sorted(found, key=lambda key: (key.created_at, key.key_id))

    async def add(self, key: ApiKey) -> None:
        """A request without an answer is sent again, so the row that is there may be this one."""
        row = row_of(KEYS, names.escaped(key.key_id), _columns(key))
        if isinstance(await self._store.commit(self._table, [Change(Act.INSERT, row)]), Refused):
            stored = await self._store.get(self._table, KEYS, row[ROW])
            if stored is None or self._read(stored) != key:
                raise LedgerError(f"there is a key {key.key_id} already: make another one")

    async def revoke(self, key_id: str, at: datetime) -> ApiKey | None:
        while True:
            row = await self._store.get(self._table, KEYS, names.escaped(key_id))
            key = self._read(row) if row is not None else None
            if row is None or key is None or key.revoked_at is not None:
                return key
            date = {"revoked_at": at.isoformat(timespec="seconds")}
            change = Change(Act.MERGE, row_of(KEYS, row[ROW], date), row[ETAG])
            await self._store.commit(self._table, [change])

    def _read(self, row: Row) -> ApiKey | None:
        """A row that is not understood opens nothing, and the others go on."""
        try:
            return _key(row)
        except (KeyError, TypeError, ValueError) as error:
            if row[ROW] not in self._told:
                self._told.add(row[ROW])
                log.warning("the row of API key %s is not understood: %r", row[ROW], error)
            return None


def _columns(key: ApiKey) -> dict[str, Any]:
    """`tenants` is absent for a key that may act for all: an empty list names none."""
    return {
        **{name: getattr(key, name) for name in TEXTS},
        "roles": orjson.dumps(key.roles).decode(),
        "tenants": None if key.tenants is None else orjson.dumps(key.tenants).decode(),
        "all_tenants": key.tenants is None,
    }


def _key(row: Row) -> ApiKey:
    """Raises KeyError, TypeError or ValueError. Only `all_tenants` opens all of them."""
    expires_at = _text(row.get("expires_at"))
    if expires_at and datetime.fromisoformat(expires_at).tzinfo is None:
        raise ValueError("expires_at names no time zone")
    return ApiKey(
        key_id=names.unescaped(row[ROW]),
        name=row["name"],
        secret_sha256=row["secret_sha256"],
        roles=_strings(row["roles"]),
        tenants=None if row.get("all_tenants") is True else _strings(row["tenants"]),
        created_at=row["created_at"],
        revoked_at=_text(row.get("revoked_at")),
        expires_at=expires_at,
    )


def _text(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{value!r} is not a text")
    return value


def _strings(text: str) -> tuple[str, ...]:
    values = orjson.loads(text)
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"{text!r} is not a list of texts")
    return tuple(values)
