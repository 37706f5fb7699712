"""What a cell of a transition table can say, and how a row is written down."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from lucius.core.effects import Outcome
from lucius.core.inputs import Kind


class Verdict(StrEnum):
    MOVE = "move"
    IGNORE = "ignore"
    REJECT = "reject"


@dataclass(frozen=True, slots=True)
class Cell:
    """`outcome` is what `decide` answers at once, where the state of the job is all it needs to know.

    `code` says why an input is rejected.
    """

    verdict: Verdict
    targets: tuple[StrEnum, ...] = ()
    outcome: Outcome | None = None
    code: str | None = None


TableRow = Mapping[Kind, Cell]
IGNORE: Final = Cell(Verdict.IGNORE)
ALREADY: Final = Cell(Verdict.IGNORE, outcome=Outcome.ALREADY)

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


UNRELEASABLE: Final = {Kind.ENTRY_RELEASED: "NOT_RELEASABLE"}
UNKNOWN: Final = {Kind.SUBMITTED: None}
"""Submitting makes a job; there is no such input for one that exists, and so no code."""


def row(
    moves: Mapping[Kind, tuple[StrEnum, ...]],
    *,
    ignore: tuple[Kind, ...] = (),
    already: tuple[Kind, ...] = (),
    reject: Mapping[Kind, str | None] = MappingProxyType({}),
) -> TableRow:
    """Every kind is named once: a kind that is named twice is a mistake, one that is missing too."""
    parts = (
        {kind: Cell(Verdict.MOVE, targets) for kind, targets in moves.items()},
        dict.fromkeys(ignore, IGNORE),
        dict.fromkeys(already, ALREADY),
        {kind: Cell(Verdict.REJECT, (), Outcome.REJECTED, code) for kind, code in reject.items()},
    )
    cells = {kind: cell for part in parts for kind, cell in part.items()}
    assert len(cells) == sum(map(len, parts)), "a kind is in this row twice"
    return cells
