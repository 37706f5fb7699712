"""How many jobs of a tenant are live: what was admitted, less what has ended.

Both only grow, so that a reader with an old number errs on the safe side. What was admitted is one row,
the guard of the tenant's limit; what has ended is a row for each lane, so that owners do not meet on it.
"""

from collections import Counter
from typing import Final

import orjson

from lucius.ledgers.azure import names
from lucius.ledgers.azure.store import ETAG, ROW, Act, Change, Row, row_of
from lucius.ledgers.rules import InflightGroup

COUNT: Final = "COUNT"
ADMITTED: Final = names.key(COUNT, "IN")

Cells = Counter[tuple[int, str]]
"""By lane and mode."""


def ended_row(lane: int) -> str:
    return names.key(COUNT, "OUT", f"{lane:02}")


class TenantTally:
    """One counter as it was last seen, with the ETag that guards it."""

    def __init__(self, key: str, row: Row | None = None) -> None:
        self.key = key
        self.etag: str | None = row[ETAG] if row is not None else None
        self.cells: Cells = cells_of(row)

    def change(self, partition: str, more: Cells) -> Change:
        cells = self.cells + more
        columns = {"total": cells.total(), "cells": _written(cells)}
        row = row_of(partition, self.key, columns)
        return Change(Act.INSERT if self.etag is None else Act.MERGE, row, self.etag)

    def changed(self, more: Cells, etag: str | None) -> None:
        self.cells, self.etag = self.cells + more, etag


def _written(cells: Cells) -> str:
    return orjson.dumps({f"{lane}/{mode}": n for (lane, mode), n in cells.items()}).decode()


def cells_of(row: Row | None) -> Cells:
    cells: Cells = Counter()
    for name, n in orjson.loads(row["cells"]).items() if row is not None else ():
        lane, _, mode = name.partition("/")
        cells[int(lane), mode] = n
    return cells


def live_cells(rows: list[Row]) -> Cells:
    """Of all counters of a tenant."""
    live: Cells = Counter()
    for row in rows:
        live.update(cells_of(row)) if row[ROW] == ADMITTED else live.subtract(cells_of(row))
    return live


def one(cell: InflightGroup) -> Cells:
    return Counter({(cell.lane, cell.mode): 1})
