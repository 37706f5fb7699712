"""The transition tables as data: for every state and every input, move, ignore or reject.

`move` lists the states that a decision may go to from here; staying is always allowed there.
`ignore`: the input leaves this machine as it is (others may move, or it is recorded as late or stale).
`reject`: the input is refused with a code, and nothing about the job changes.
`decide` looks up the job's cell first. A rejection, and what already holds, is answered from there.
It cannot make a move that is not here, and a missing cell fails the tests.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from lucius.core.effects import Outcome
from lucius.core.errors import IllegalMoveError
from lucius.core.inputs import Kind
from lucius.core.inputs import Kind as K
from lucius.core.job import EntryState as N
from lucius.core.job import ExecutionState as X
from lucius.core.job import JobState as J
from lucius.core.job import StepState as S

# What a cell of a transition table can say, and how a row is written down.


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
UNMOVING: Final = (
    *(Kind.DIRECTIVE_UNCLAIMED, Kind.EFFECT_SETTLED, Kind.DISMISSED, Kind.REDRIVEN),
    Kind.RESEND,
)
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


# The outbox entry's table. Clients read `HELD` and `RELEASED` as `PENDING`.

_CLOSED: Final = row(
    {},
    ignore=tuple(kind for kind in K if kind is not K.ENTRY_RELEASED),
    reject=UNRELEASABLE,
)

ENTRY: Final[dict[N, TableRow]] = {
    N.HELD: row(
        {
            K.ENTRY_RELEASED: (N.RELEASED,),
            K.PUBLISH_REFUSED: (N.FAILED_FINAL,),
            K.SUCCESS: (N.FAILED_FINAL,),
            K.FAILURE_RETRYABLE: (N.FAILED_FINAL,),
            K.FAILURE_FINAL: (N.FAILED_FINAL,),
            K.LEASE_RETURNED: (N.FAILED_FINAL,),
            K.BUS_RESTARTED: (N.FAILED_FINAL,),
            K.TICK: (N.FAILED_FINAL,),
            K.CANCEL: (N.FAILED_FINAL,),
            K.PAUSE: (N.FAILED_FINAL,),
        },
        ignore=(
            K.SUBMITTED,
            K.ATTEMPT,
            K.PUBLISH_CONFIRMED,
            K.ACK,
            K.HEARTBEAT,
            K.RESUME,
            K.RETRY,
            *UNMOVING,
        ),
    ),
    N.RELEASED: row(
        {
            K.PUBLISH_CONFIRMED: (N.SENT,),
            K.PUBLISH_REFUSED: (N.HELD, N.FAILED_FINAL),
            **dict.fromkeys(CALLBACKS, (N.SENT,)),
            K.TICK: (N.FAILED_FINAL,),
            K.CANCEL: (N.FAILED_FINAL,),
        },
        ignore=(K.ATTEMPT, K.SUBMITTED, K.BUS_RESTARTED, K.PAUSE, K.RESUME, K.RETRY, *UNMOVING),
        reject=UNRELEASABLE,
    ),
    N.SENT: _CLOSED,
    N.FAILED_FINAL: _CLOSED,
}


# The execution's table. `ABORTED` for silence can still commit, until the next lease exists.

_QUIET: Final = (K.SUBMITTED, K.ATTEMPT, K.PUBLISH_CONFIRMED, K.PAUSE, K.RESUME, K.RETRY, *UNMOVING)

EXECUTION: Final[dict[X, TableRow]] = {
    X.LEASED: row(
        {
            K.PUBLISH_REFUSED: (X.ABORTED,),
            **dict.fromkeys(CALLBACKS, (X.IN_PROGRESS,)),
            K.TICK: (X.ABORTED,),
            K.CANCEL: (X.ABORTED,),
        },
        ignore=(*_QUIET, K.BUS_RESTARTED),
        reject=UNRELEASABLE,
    ),
    X.IN_PROGRESS: row(
        {
            K.SUCCESS: (X.COMMITTED,),
            K.FAILURE_RETRYABLE: (X.ABORTED,),
            K.FAILURE_FINAL: (X.ABORTED,),
            K.LEASE_RETURNED: (X.ABORTED,),
            K.BUS_RESTARTED: (X.ABORTED,),
            K.TICK: (X.ABORTED,),
            K.CANCEL: (X.ABORTED,),
        },
        ignore=(*_QUIET, K.PUBLISH_REFUSED, K.ACK, K.HEARTBEAT),
        reject=UNRELEASABLE,
    ),
    X.COMMITTED: row(
        dict.fromkeys((*CALLBACKS, *PUBLISHED, K.TICK, K.CANCEL, K.BUS_RESTARTED), (X.DONE,)),
        ignore=(K.ATTEMPT, K.SUBMITTED, K.ENTRY_RELEASED, K.PAUSE, K.RESUME, K.RETRY, *UNMOVING),
    ),
    X.DONE: row({}, ignore=tuple(K)),
    X.ABORTED: row(
        {K.SUCCESS: (X.COMMITTED,)},
        ignore=tuple(kind for kind in K if kind is not K.SUCCESS),
    ),
}


# The job's table. `decide` answers from it what the state of the job alone decides.
#
# `QUEUED` is a moment within submit and resume: a stored job has moved on.

_LIVE: Final = {
    K.DISMISSED: "NOT_IN_DLQ",
    K.REDRIVEN: "NOT_REDRIVABLE",
    K.RESEND: "NOTHING_TO_SEND",
}
"""Rejected by a live job: only one that has ended takes them."""
_JOB_CLOSED: Final = dict.fromkeys((K.CANCEL, K.PAUSE, K.RESUME, K.RETRY), "JOB_TERMINAL")
_HALTED: Final = {K.RETRY: "JOB_PAUSED"}
_STRANGE: Final = {**UNKNOWN, **_LIVE}
"""No input for a job that is under way."""
_NOTED: Final = (K.DIRECTIVE_UNCLAIMED, K.EFFECT_SETTLED)
"""These inputs move no job."""
_PASSING: Final = (K.ATTEMPT, *PUBLISHED, *CALLBACKS, K.TICK, K.BUS_RESTARTED, *_NOTED)
"""What a closed job takes note of, at most."""

JOB: Final[dict[J, TableRow]] = {
    J.QUEUED: row(
        {
            K.SUBMITTED: (J.DISPATCHING, J.SUCCEEDED),
            K.ATTEMPT: (J.DISPATCHING,),
            K.RESUME: (J.DISPATCHING,),
            K.CANCEL: (J.CANCELLED,),
            K.PAUSE: (J.PAUSED,),
            K.TICK: (J.FAILED_FINAL,),
        },
        ignore=(*PUBLISHED, *CALLBACKS, K.BUS_RESTARTED, K.RETRY, *_NOTED),
        reject={**UNRELEASABLE, **_LIVE},
    ),
    J.DISPATCHING: row(
        {
            K.PUBLISH_REFUSED: (J.FAILED_FINAL,),
            K.ACK: (J.IN_PROGRESS,),
            K.HEARTBEAT: (J.IN_PROGRESS,),
            K.LEASE_RETURNED: (J.IN_PROGRESS,),
            K.SUCCESS: (J.IN_PROGRESS,),
            K.FAILURE_RETRYABLE: (J.IN_PROGRESS,),
            K.FAILURE_FINAL: (J.IN_PROGRESS,),
            K.TICK: (J.FAILED_FINAL,),
            K.CANCEL: (J.CANCELLING, J.CANCELLED),
            K.PAUSE: (J.PAUSING, J.PAUSED),
        },
        ignore=(
            K.ATTEMPT,
            K.ENTRY_RELEASED,
            K.PUBLISH_CONFIRMED,
            K.BUS_RESTARTED,
            K.RETRY,
            *_NOTED,
        ),
        already=(K.RESUME,),
        reject=_STRANGE,
    ),
    J.IN_PROGRESS: row(
        {
            K.PUBLISH_REFUSED: (J.FAILED_FINAL,),
            K.LEASE_RETURNED: (J.FAILED_FINAL,),
            K.SUCCESS: (J.SUCCEEDED, J.FAILED_FINAL),
            K.FAILURE_RETRYABLE: (J.FAILED_FINAL,),
            K.FAILURE_FINAL: (J.FAILED_FINAL,),
            K.BUS_RESTARTED: (J.FAILED_FINAL,),
            K.TICK: (J.FAILED_FINAL,),
            K.CANCEL: (J.CANCELLING, J.CANCELLED),
            K.PAUSE: (J.PAUSING, J.PAUSED),
        },
        ignore=(
            K.ATTEMPT,
            K.ENTRY_RELEASED,
            K.PUBLISH_CONFIRMED,
            K.ACK,
            K.HEARTBEAT,
            K.RETRY,
            *_NOTED,
        ),
        already=(K.RESUME,),
        reject=_STRANGE,
    ),
    J.PAUSING: row(
        {
            K.PUBLISH_REFUSED: (J.PAUSED, J.FAILED_FINAL),
            K.LEASE_RETURNED: (J.PAUSED, J.FAILED_FINAL),
            K.SUCCESS: (J.PAUSED, J.SUCCEEDED, J.FAILED_FINAL),
            K.FAILURE_RETRYABLE: (J.PAUSED, J.FAILED_FINAL),
            K.FAILURE_FINAL: (J.FAILED_FINAL,),
            K.TICK: (J.PAUSED, J.FAILED_FINAL),
            K.BUS_RESTARTED: (J.PAUSED, J.FAILED_FINAL),
            K.CANCEL: (J.CANCELLING, J.CANCELLED),
            K.RESUME: (J.DISPATCHING, J.IN_PROGRESS),
        },
        ignore=(K.ATTEMPT, K.PUBLISH_CONFIRMED, K.ACK, K.HEARTBEAT, *_NOTED),
        already=(K.PAUSE,),
        reject={**UNRELEASABLE, **_HALTED, **_STRANGE},
    ),
    J.PAUSED: row(
        {
            K.SUCCESS: (J.SUCCEEDED,),
            K.TICK: (J.FAILED_FINAL,),
            K.CANCEL: (J.CANCELLED,),
            K.RESUME: (J.QUEUED, J.IN_PROGRESS),
        },
        ignore=(
            K.ATTEMPT,
            *PUBLISHED,
            K.ACK,
            K.HEARTBEAT,
            K.LEASE_RETURNED,
            K.FAILURE_RETRYABLE,
            K.FAILURE_FINAL,
            K.BUS_RESTARTED,
            *_NOTED,
        ),
        already=(K.PAUSE,),
        reject={**UNRELEASABLE, **_HALTED, **_STRANGE},
    ),
    J.CANCELLING: row(
        dict.fromkeys(
            (
                K.PUBLISH_REFUSED,
                K.LEASE_RETURNED,
                K.SUCCESS,
                K.FAILURE_RETRYABLE,
                K.FAILURE_FINAL,
                K.TICK,
                K.BUS_RESTARTED,
                K.CANCEL,
            ),
            (J.CANCELLED,),
        ),
        ignore=(K.ATTEMPT, K.PUBLISH_CONFIRMED, K.ACK, K.HEARTBEAT, *_NOTED),
        reject={
            **UNRELEASABLE,
            **dict.fromkeys((K.PAUSE, K.RESUME, K.RETRY), "JOB_CANCELLING"),
            **_STRANGE,
        },
    ),
    J.SUCCEEDED: row(
        {},
        ignore=(*_PASSING, K.RESEND),
        reject={
            **UNKNOWN,
            **UNRELEASABLE,
            **_JOB_CLOSED,
            K.DISMISSED: "NOT_IN_DLQ",
            K.REDRIVEN: "NOT_REDRIVABLE",
        },
    ),
    J.FAILED_FINAL: row(
        {},
        ignore=(*_PASSING, K.DISMISSED, K.REDRIVEN, K.RESEND),
        reject={**UNKNOWN, **UNRELEASABLE, **_JOB_CLOSED},
    ),
    J.CANCELLED: row(
        {},
        ignore=(*_PASSING, K.REDRIVEN, K.RESEND),
        already=(K.CANCEL,),
        reject={
            **UNKNOWN,
            **UNRELEASABLE,
            K.PAUSE: "JOB_TERMINAL",
            K.RESUME: "JOB_TERMINAL",
            K.RETRY: "JOB_TERMINAL",
            K.DISMISSED: "NOT_IN_DLQ",
        },
    ),
}


# The step's table. A step also moves on what happens to another: a success starts the next stage.

_ENDED: Final = (S.FAILED_RETRY, S.FAILED_FINAL, S.CANCELLED)
_RETURNED: Final = (S.DISPATCHING, S.PENDING, *_ENDED)
"""Where a lease that was given back leaves its step: to go out again, now or later, or not."""
_STEP_CLOSED: Final = row(
    {},
    ignore=(
        K.ATTEMPT,
        *PUBLISHED,
        *CALLBACKS,
        K.TICK,
        K.BUS_RESTARTED,
        K.CANCEL,
        K.PAUSE,
        K.RESUME,
        K.RETRY,
        K.SUBMITTED,
        *UNMOVING,
    ),
    reject=UNRELEASABLE,
)

STEP: Final[dict[S, TableRow]] = {
    S.PENDING: row(
        {
            K.SUBMITTED: (S.DISPATCHING,),
            K.ATTEMPT: (S.DISPATCHING,),
            K.SUCCESS: (S.DISPATCHING,),
            K.RESUME: (S.DISPATCHING,),
            K.CANCEL: (S.CANCELLED,),
        },
        ignore=(
            *PUBLISHED,
            K.ACK,
            K.HEARTBEAT,
            K.LEASE_RETURNED,
            K.FAILURE_RETRYABLE,
            K.FAILURE_FINAL,
            K.TICK,
            K.BUS_RESTARTED,
            K.PAUSE,
            K.RETRY,
            *UNMOVING,
        ),
        reject=UNRELEASABLE,
    ),
    S.DISPATCHING: row(
        {
            K.PUBLISH_CONFIRMED: (S.AWAITING_ACK,),
            K.PUBLISH_REFUSED: _ENDED,
            K.ACK: (S.AWAITING_ACK,),
            K.HEARTBEAT: (S.AWAITING_ACK,),
            K.LEASE_RETURNED: (S.AWAITING_ACK, S.CANCELLED),
            K.SUCCESS: (S.AWAITING_ACK, S.SUCCEEDED),
            K.FAILURE_RETRYABLE: (S.AWAITING_ACK, S.CANCELLED),
            K.FAILURE_FINAL: (S.AWAITING_ACK, S.CANCELLED),
            K.TICK: (S.FAILED_FINAL, S.CANCELLED),
            K.CANCEL: (S.CANCELLED,),
            K.PAUSE: (S.PENDING, S.FAILED_RETRY),
            K.BUS_RESTARTED: (S.CANCELLED,),
        },
        ignore=(K.ATTEMPT, K.ENTRY_RELEASED, K.RESUME, K.RETRY, *UNMOVING),
        reject=UNKNOWN,
    ),
    S.AWAITING_ACK: row(
        {
            K.ACK: (S.IN_PROGRESS,),
            K.HEARTBEAT: (S.IN_PROGRESS,),
            K.LEASE_RETURNED: (S.IN_PROGRESS,),
            K.SUCCESS: (S.IN_PROGRESS,),
            K.FAILURE_RETRYABLE: (S.IN_PROGRESS,),
            K.FAILURE_FINAL: (S.IN_PROGRESS,),
            K.TICK: _ENDED,
            K.CANCEL: (S.CANCELLED,),
        },
        ignore=(K.ATTEMPT, *PUBLISHED, K.BUS_RESTARTED, K.PAUSE, K.RESUME, K.RETRY, *UNMOVING),
        reject={**UNKNOWN, **UNRELEASABLE},
    ),
    S.IN_PROGRESS: row(
        {
            K.SUCCESS: (S.SUCCEEDED,),
            K.FAILURE_RETRYABLE: _ENDED,
            K.FAILURE_FINAL: (S.FAILED_FINAL,),
            K.LEASE_RETURNED: _RETURNED,
            K.BUS_RESTARTED: _RETURNED,
            K.TICK: _ENDED,
            K.CANCEL: (S.CANCELLED,),
        },
        ignore=(K.ATTEMPT, *PUBLISHED, K.ACK, K.HEARTBEAT, K.PAUSE, K.RESUME, K.RETRY, *UNMOVING),
        reject={**UNKNOWN, **UNRELEASABLE},
    ),
    S.FAILED_RETRY: row(
        {
            K.ATTEMPT: (S.DISPATCHING,),
            K.SUCCESS: (S.SUCCEEDED,),
            K.PUBLISH_REFUSED: (S.CANCELLED,),
            K.FAILURE_RETRYABLE: (S.CANCELLED,),
            K.FAILURE_FINAL: (S.CANCELLED,),
            K.LEASE_RETURNED: (S.CANCELLED,),
            K.BUS_RESTARTED: (S.CANCELLED,),
            K.TICK: (S.DISPATCHING, S.FAILED_FINAL, S.CANCELLED),
            K.RESUME: (S.DISPATCHING,),
            K.RETRY: (S.DISPATCHING,),
            K.CANCEL: (S.CANCELLED,),
        },
        ignore=(
            K.PUBLISH_CONFIRMED,
            K.ACK,
            K.HEARTBEAT,
            K.PAUSE,
            *UNMOVING,
        ),
        reject={**UNKNOWN, **UNRELEASABLE},
    ),
    S.SUCCEEDED: _STEP_CLOSED,
    S.FAILED_FINAL: _STEP_CLOSED,
    S.CANCELLED: _STEP_CLOSED,
}


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
