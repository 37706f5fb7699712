"""What a cell of a transition table can say, and how a row is written down."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from lucius.core.inputs import Kind


class Verdict(StrEnum):
    MOVE = "move"
    IGNORE = "ignore"
    REJECT = "reject"


@dataclass(frozen=True, slots=True)
class Cell:
    verdict: Verdict
    targets: tuple[StrEnum, ...] = ()


Row = Mapping[Kind, Cell]
IGNORE: Final = Cell(Verdict.IGNORE)
REJECT: Final = Cell(Verdict.REJECT)

CALLBACKS: Final = (
    Kind.ACK,
    Kind.HEARTBEAT,
    Kind.LEASE_RETURNED,
    Kind.SUCCESS,
    Kind.FAILURE_RETRYABLE,
    Kind.FAILURE_FINAL,
)
PUBLISHED: Final = (Kind.PUBLISH_CONFIRMED, Kind.PUBLISH_REFUSED)
UNMOVING: Final = (Kind.DIRECTIVE_UNCLAIMED, Kind.EFFECT_SETTLED, Kind.DISMISSED, Kind.REDRIVEN)
"""No step, execution or entry moves on these."""


def row(
    moves: Mapping[Kind, tuple[StrEnum, ...]],
    *,
    ignore: tuple[Kind, ...] = (),
    reject: tuple[Kind, ...] = (),
) -> Row:
    """Every kind is named once: a kind that is named twice is a mistake, one that is missing too."""
    cells = {kind: Cell(Verdict.MOVE, targets) for kind, targets in moves.items()}
    for kinds, cell in ((ignore, IGNORE), (reject, REJECT)):
        for kind in kinds:
            assert kind not in cells, f"{kind} is in this row twice"
            cells[kind] = cell
    return cells
