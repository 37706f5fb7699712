"""Notes that come together are created by a few statements, however many there are.

A thread gives up the interpreter at every statement, and a busy event loop makes it wait each time.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

MOST: Final = 64
"""Rows of one statement. Fewer are powers of two, so that few statements are prepared."""


@dataclass(frozen=True, slots=True)
class NewNote:
    """A note to create, unless another one is there; with it go rows of the table `promised`.

    `beside` are objects that stay in the database, by their paths, instead of becoming files.
    """

    key: str
    data: bytes
    unless: str | None = None
    promised: Sequence[tuple[Any, ...]] = ()
    beside: Sequence[tuple[str, bytes]] = ()


def create_together(conn: sqlite3.Connection, creations: Sequence[NewNote]) -> list[bool | None]:
    """For each whether it was created, in order; None: the note `unless` is there.

    Inside of a transaction that keeps others from writing.
    """
    there = _there(conn, creations)
    outcomes: list[bool | None] = []
    for each in creations:
        outcomes.append(None if each.unless in there else each.key not in there)
        if outcomes[-1]:
            there.add(each.key)
    won = [each for each, created in zip(creations, outcomes, strict=True) if created]
    _insert(conn, "notes (key, data)", [(each.key, each.data) for each in won])
    beside = {path: data for each in won for path, data in each.beside}
    _insert(conn, "notes (key, data)", list(beside.items()), how="INSERT OR REPLACE")
    promised = [row for each in won for row in each.promised]
    _insert(conn, "promised (path, top, data, owner, boot, at, note)", promised)
    return outcomes


def _there(conn: sqlite3.Connection, creations: Sequence[NewNote]) -> set[str]:
    """Which of their notes exist, those that are to be created and those that keep them from it."""
    asked = {key for each in creations for key in (each.key, each.unless) if key is not None}
    found: set[str] = set()
    for portion in _portions(list(asked)):
        query = _repeated("SELECT key FROM notes WHERE key IN ({})", 1, len(portion))
        found.update(key for (key,) in conn.execute(query, portion))
    return found


def _insert(
    conn: sqlite3.Connection, table: str, rows: Sequence[tuple[Any, ...]], how: str = "INSERT"
) -> None:
    for portion in _portions(rows):
        query = _repeated(f"{how} INTO {table} VALUES {{}}", len(portion[0]), len(portion))
        conn.execute(query, [value for row in portion for value in row])


def _portions(rows: Sequence[Any]) -> Iterator[Sequence[Any]]:
    start = 0
    while (left := len(rows) - start) > 0:
        size = min(MOST, 1 << (left.bit_length() - 1))
        yield rows[start : start + size]
        start += size


@cache
def _repeated(query: str, width: int, count: int) -> str:
    row = ",".join("?" * width)
    return query.format(",".join([row if width == 1 else f"({row})"] * count))
