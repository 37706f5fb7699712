"""The port under owned lanes: rows with a stamp that changes at every write. No clock is compared.

Whoever holds a row writes it again and again. One that nobody has written for a while is free to take.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol

from lucius.core.record import record


@record
class LeaseRow:
    """`content` is JSON data. `etag`: the stamp of what was read; none where there was no row."""

    key: str
    holder: str
    content: Mapping[str, Any] = field(default_factory=dict)
    etag: str | None = None


class LeaseStore(Protocol):
    """LedgerUnavailableError: nobody knows whether it was done."""

    async def rows(self) -> Sequence[LeaseRow]:
        """Every row, by key."""

    async def put(self, row: LeaseRow) -> str | None:
        """Write it if the stored stamp is the row's, and answer the new one. None: it is another."""

    async def put_all(self, rows: Sequence[LeaseRow]) -> Sequence[str | None]:
        """Each as by `put`, in as few requests as can be. One that is refused stops no other."""

    async def delete(self, row: LeaseRow) -> bool:
        """Delete it if the stored stamp is the row's. False: it is another, or there is no row."""
