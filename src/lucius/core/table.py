"""The transition tables as data: for every state and every input, move, ignore or reject.

`move` lists the states that a decision may go to from here; staying is always allowed there.
`ignore`: the input leaves this machine as it is (others may move, or it is recorded as late or stale).
`reject`: the input is refused with a code, and nothing about the job changes.
`decide` looks up the job's cell first. A rejection, and what already holds, is answered from there.
It cannot make a move that is not here, and a missing cell fails the tests.
"""

from enum import StrEnum
from typing import Final

from lucius.core.errors import IllegalMoveError
from lucius.core.inputs import Kind
from lucius.core.tables.cell import Cell, TableRow, Verdict
from lucius.core.tables.entry import ENTRY
from lucius.core.tables.execution import EXECUTION
from lucius.core.tables.job import JOB
from lucius.core.tables.step import STEP

__all__ = [
    "ENTRY",
    "EXECUTION",
    "JOB",
    "MACHINES",
    "STEP",
    "Cell",
    "TableRow",
    "Verdict",
    "check_move",
]

MACHINES: Final[dict[str, dict[StrEnum, TableRow]]] = {
    "job": dict(JOB.items()),
    "step": dict(STEP.items()),
    "execution": dict(EXECUTION.items()),
    "entry": dict(ENTRY.items()),
}

_ARROWS: Final = {
    (machine, str(state), str(kind), str(target)): f"{state}->{target}"
    for machine, rows in MACHINES.items()
    for state, cells in rows.items()
    for kind, cell in cells.items()
    for target in cell.targets
}


def check_move(machine: str, source: StrEnum, kind: Kind, target: StrEnum) -> str:
    """The move as events write it, `FROM->TO`; refuses one that the tables do not list."""
    arrow = _ARROWS.get((machine, source, kind, target))
    if arrow is None:
        raise IllegalMoveError(f"{machine}: {source} -> {target} on {kind} is not in the table")
    return arrow
