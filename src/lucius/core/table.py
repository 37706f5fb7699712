"""The transition tables as data: for every state and every input, move, ignore or reject.

`move` lists the states that a decision may go to from here; staying is always allowed there.
`ignore`: the input leaves this machine as it is (it may be recorded as late or duplicate).
`reject`: the input is refused, and nothing about the job changes but a capped record of it.
`decide` cannot make a move that is not here, and a missing cell fails the tests.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from lucius.core.errors import IllegalMoveError
from lucius.core.inputs import Kind
from lucius.core.states import EntryState, ExecutionState, JobState, StepState


class Verdict(StrEnum):
    MOVE = "move"
    IGNORE = "ignore"
    REJECT = "reject"


@dataclass(frozen=True, slots=True)
class Cell:
    verdict: Verdict
    targets: tuple[StrEnum, ...] = ()


Row = dict[Kind, Cell]
IGNORE: Final = Cell(Verdict.IGNORE)
REJECT: Final = Cell(Verdict.REJECT)


def row(
    moves: dict[Kind, tuple[StrEnum, ...]],
    *,
    ignore: tuple[Kind, ...] = (),
    reject: tuple[Kind, ...] = (),
) -> Row:
    cells = {kind: Cell(Verdict.MOVE, targets) for kind, targets in moves.items()}
    cells |= dict.fromkeys(ignore, IGNORE)
    return cells | dict.fromkeys(reject, REJECT)


K, J, S, X, N = Kind, JobState, StepState, ExecutionState, EntryState
_CALLBACKS = (K.ACK, K.HEARTBEAT, K.LEASE_RETURNED, K.SUCCESS, K.FAILURE_RETRYABLE, K.FAILURE_FINAL)
_PUBLISHING = (K.ENTRY_RELEASED, K.PUBLISH_CONFIRMED, K.PUBLISH_REFUSED)
_SETTLING = (K.EFFECT_SETTLED, K.DISMISSED, K.REDRIVEN)
_REST = (K.SUBMITTED, *_SETTLING)
_CLOSED = (J.SUCCEEDED, J.FAILED_FINAL)

JOB: Final[dict[JobState, Row]] = {
    J.QUEUED: row(
        {
            K.SUBMITTED: (J.DISPATCHING, J.SUCCEEDED),
            K.RESUME: (J.DISPATCHING,),
            K.CANCEL: (J.CANCELLED,),
            K.PAUSE: (J.PAUSED,),
            K.TICK: (J.FAILED_FINAL,),
        },
        ignore=(K.BUS_RESTARTED, K.EFFECT_SETTLED),
        reject=(*_PUBLISHING, *_CALLBACKS, K.DISMISSED, K.REDRIVEN),
    ),
    J.DISPATCHING: row(
        {
            K.PUBLISH_REFUSED: (J.FAILED_FINAL,),
            K.ACK: (J.IN_PROGRESS,),
            K.HEARTBEAT: (J.IN_PROGRESS,),
            K.LEASE_RETURNED: (J.IN_PROGRESS,),
            K.SUCCESS: (J.IN_PROGRESS, *_CLOSED),
            K.FAILURE_RETRYABLE: (J.IN_PROGRESS, J.FAILED_FINAL),
            K.FAILURE_FINAL: (J.IN_PROGRESS, J.FAILED_FINAL),
            K.TICK: (J.FAILED_FINAL,),
            K.CANCEL: (J.CANCELLING, J.CANCELLED),
            K.PAUSE: (J.PAUSING, J.PAUSED),
        },
        ignore=(
            K.ENTRY_RELEASED,
            K.PUBLISH_CONFIRMED,
            K.BUS_RESTARTED,
            K.RESUME,
            K.EFFECT_SETTLED,
        ),
        reject=(K.SUBMITTED, K.DISMISSED, K.REDRIVEN),
    ),
    J.IN_PROGRESS: row(
        {
            K.PUBLISH_REFUSED: (J.FAILED_FINAL,),
            K.SUCCESS: _CLOSED,
            K.FAILURE_RETRYABLE: (J.FAILED_FINAL,),
            K.FAILURE_FINAL: (J.FAILED_FINAL,),
            K.TICK: (J.FAILED_FINAL,),
            K.CANCEL: (J.CANCELLING, J.CANCELLED),
            K.PAUSE: (J.PAUSING, J.PAUSED),
        },
        ignore=(
            K.ENTRY_RELEASED,
            K.PUBLISH_CONFIRMED,
            K.ACK,
            K.HEARTBEAT,
            K.LEASE_RETURNED,
            K.BUS_RESTARTED,
            K.RESUME,
            K.EFFECT_SETTLED,
        ),
        reject=(K.SUBMITTED, K.DISMISSED, K.REDRIVEN),
    ),
    J.PAUSING: row(
        {
            K.PUBLISH_REFUSED: (J.PAUSED, J.FAILED_FINAL),
            K.LEASE_RETURNED: (J.PAUSED, J.FAILED_FINAL),
            K.SUCCESS: (J.PAUSED, *_CLOSED),
            K.FAILURE_RETRYABLE: (J.PAUSED, J.FAILED_FINAL),
            K.FAILURE_FINAL: (J.FAILED_FINAL,),
            K.TICK: (J.PAUSED, J.FAILED_FINAL),
            K.BUS_RESTARTED: (J.PAUSED, J.FAILED_FINAL),
            K.CANCEL: (J.CANCELLING, J.CANCELLED),
            K.RESUME: (J.DISPATCHING, J.IN_PROGRESS),
        },
        ignore=(K.PUBLISH_CONFIRMED, K.ACK, K.HEARTBEAT, K.PAUSE, K.EFFECT_SETTLED),
        reject=(K.SUBMITTED, K.ENTRY_RELEASED, K.DISMISSED, K.REDRIVEN),
    ),
    J.PAUSED: row(
        {
            K.SUCCESS: (J.SUCCEEDED,),
            K.TICK: (J.FAILED_FINAL,),
            K.CANCEL: (J.CANCELLED,),
            K.RESUME: (J.QUEUED, J.IN_PROGRESS),
        },
        ignore=(
            K.PUBLISH_CONFIRMED,
            K.PUBLISH_REFUSED,
            K.ACK,
            K.HEARTBEAT,
            K.LEASE_RETURNED,
            K.FAILURE_RETRYABLE,
            K.FAILURE_FINAL,
            K.BUS_RESTARTED,
            K.PAUSE,
            K.EFFECT_SETTLED,
        ),
        reject=(K.SUBMITTED, K.ENTRY_RELEASED, K.DISMISSED, K.REDRIVEN),
    ),
    J.CANCELLING: row(
        {
            K.PUBLISH_REFUSED: (J.CANCELLED,),
            K.LEASE_RETURNED: (J.CANCELLED,),
            K.SUCCESS: (J.CANCELLED,),
            K.FAILURE_RETRYABLE: (J.CANCELLED,),
            K.FAILURE_FINAL: (J.CANCELLED,),
            K.TICK: (J.CANCELLED,),
            K.BUS_RESTARTED: (J.CANCELLED,),
            K.CANCEL: (J.CANCELLED,),
        },
        ignore=(K.PUBLISH_CONFIRMED, K.ACK, K.HEARTBEAT, K.EFFECT_SETTLED),
        reject=(K.SUBMITTED, K.ENTRY_RELEASED, K.PAUSE, K.RESUME, K.DISMISSED, K.REDRIVEN),
    ),
    J.SUCCEEDED: row(
        {},
        ignore=(
            K.PUBLISH_CONFIRMED,
            K.PUBLISH_REFUSED,
            *_CALLBACKS,
            K.TICK,
            K.BUS_RESTARTED,
            K.EFFECT_SETTLED,
        ),
        reject=(
            K.SUBMITTED,
            K.ENTRY_RELEASED,
            K.CANCEL,
            K.PAUSE,
            K.RESUME,
            K.DISMISSED,
            K.REDRIVEN,
        ),
    ),
    J.FAILED_FINAL: row(
        {},
        ignore=(
            K.PUBLISH_CONFIRMED,
            K.PUBLISH_REFUSED,
            *_CALLBACKS,
            K.TICK,
            K.BUS_RESTARTED,
            *_SETTLING,
        ),
        reject=(K.SUBMITTED, K.ENTRY_RELEASED, K.CANCEL, K.PAUSE, K.RESUME),
    ),
    J.CANCELLED: row(
        {},
        ignore=(
            K.PUBLISH_CONFIRMED,
            K.PUBLISH_REFUSED,
            *_CALLBACKS,
            K.TICK,
            K.BUS_RESTARTED,
            K.CANCEL,
            K.EFFECT_SETTLED,
            K.REDRIVEN,
        ),
        reject=(K.SUBMITTED, K.ENTRY_RELEASED, K.PAUSE, K.RESUME, K.DISMISSED),
    ),
}

_ENDED = (S.FAILED_RETRY, S.FAILED_FINAL, S.CANCELLED)
_TERMINAL_STEP_ROW = row(
    {},
    ignore=(
        K.PUBLISH_CONFIRMED,
        K.PUBLISH_REFUSED,
        *_CALLBACKS,
        K.TICK,
        K.BUS_RESTARTED,
        K.CANCEL,
        K.PAUSE,
        K.RESUME,
        *_REST,
    ),
    reject=(K.ENTRY_RELEASED,),
)

STEP: Final[dict[StepState, Row]] = {
    S.PENDING: row(
        {
            K.SUBMITTED: (S.DISPATCHING,),
            K.SUCCESS: (S.DISPATCHING, S.CANCELLED),
            K.RESUME: (S.DISPATCHING,),
            K.CANCEL: (S.CANCELLED,),
            K.TICK: (S.CANCELLED,),
        },
        ignore=(
            K.PUBLISH_CONFIRMED,
            K.PUBLISH_REFUSED,
            K.FAILURE_RETRYABLE,
            K.FAILURE_FINAL,
            K.BUS_RESTARTED,
            K.PAUSE,
            *_SETTLING,
        ),
        reject=(K.ENTRY_RELEASED, K.ACK, K.HEARTBEAT, K.LEASE_RETURNED),
    ),
    S.DISPATCHING: row(
        {
            K.PUBLISH_CONFIRMED: (S.AWAITING_ACK,),
            K.PUBLISH_REFUSED: (S.PENDING, *_ENDED),
            K.ACK: (S.AWAITING_ACK,),
            K.HEARTBEAT: (S.AWAITING_ACK,),
            K.LEASE_RETURNED: (S.AWAITING_ACK, S.PENDING, *_ENDED),
            K.SUCCESS: (S.AWAITING_ACK, S.SUCCEEDED, *_ENDED),
            K.FAILURE_RETRYABLE: (S.AWAITING_ACK, *_ENDED),
            K.FAILURE_FINAL: (S.AWAITING_ACK, *_ENDED),
            K.TICK: _ENDED,
            K.CANCEL: (S.CANCELLED,),
            K.PAUSE: (S.PENDING, S.FAILED_RETRY),
        },
        ignore=(K.ENTRY_RELEASED, K.BUS_RESTARTED, K.RESUME, *_SETTLING),
        reject=(K.SUBMITTED,),
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
        ignore=(
            K.PUBLISH_CONFIRMED,
            K.PUBLISH_REFUSED,
            K.BUS_RESTARTED,
            K.PAUSE,
            K.RESUME,
            *_SETTLING,
        ),
        reject=(K.SUBMITTED, K.ENTRY_RELEASED),
    ),
    S.IN_PROGRESS: row(
        {
            K.SUCCESS: (S.SUCCEEDED,),
            K.FAILURE_RETRYABLE: _ENDED,
            K.FAILURE_FINAL: (S.FAILED_FINAL,),
            K.LEASE_RETURNED: (S.DISPATCHING, S.PENDING, *_ENDED),
            K.BUS_RESTARTED: (S.DISPATCHING, S.PENDING, *_ENDED),
            K.TICK: _ENDED,
            K.CANCEL: (S.CANCELLED,),
        },
        ignore=(
            K.PUBLISH_CONFIRMED,
            K.PUBLISH_REFUSED,
            K.ACK,
            K.HEARTBEAT,
            K.PAUSE,
            K.RESUME,
            *_SETTLING,
        ),
        reject=(K.SUBMITTED, K.ENTRY_RELEASED),
    ),
    S.FAILED_RETRY: row(
        {
            K.SUCCESS: (S.SUCCEEDED, S.CANCELLED),
            K.FAILURE_RETRYABLE: (S.CANCELLED,),
            K.FAILURE_FINAL: (S.CANCELLED,),
            K.PUBLISH_REFUSED: (S.CANCELLED,),
            K.TICK: (S.DISPATCHING, S.CANCELLED, S.FAILED_FINAL),
            K.CANCEL: (S.CANCELLED,),
        },
        ignore=(
            K.PUBLISH_CONFIRMED,
            K.ACK,
            K.HEARTBEAT,
            K.LEASE_RETURNED,
            K.BUS_RESTARTED,
            K.PAUSE,
            K.RESUME,
            *_SETTLING,
        ),
        reject=(K.SUBMITTED, K.ENTRY_RELEASED),
    ),
    S.SUCCEEDED: _TERMINAL_STEP_ROW,
    S.FAILED_FINAL: _TERMINAL_STEP_ROW,
    S.CANCELLED: _TERMINAL_STEP_ROW,
}

_EXECUTION_QUIET = (K.PUBLISH_CONFIRMED, K.RESUME, K.PAUSE, *_REST)

EXECUTION: Final[dict[ExecutionState, Row]] = {
    X.LEASED: row(
        {
            K.PUBLISH_REFUSED: (X.ABORTED,),
            K.ACK: (X.IN_PROGRESS,),
            K.HEARTBEAT: (X.IN_PROGRESS,),
            K.LEASE_RETURNED: (X.IN_PROGRESS,),
            K.SUCCESS: (X.IN_PROGRESS,),
            K.FAILURE_RETRYABLE: (X.IN_PROGRESS,),
            K.FAILURE_FINAL: (X.IN_PROGRESS,),
            K.TICK: (X.ABORTED,),
            K.CANCEL: (X.ABORTED,),
        },
        ignore=(*_EXECUTION_QUIET, K.BUS_RESTARTED),
        reject=(K.ENTRY_RELEASED,),
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
        ignore=(*_EXECUTION_QUIET, K.PUBLISH_REFUSED, K.ACK, K.HEARTBEAT),
        reject=(K.ENTRY_RELEASED,),
    ),
    X.COMMITTED: row(
        dict.fromkeys(
            (
                *_CALLBACKS,
                K.PUBLISH_CONFIRMED,
                K.PUBLISH_REFUSED,
                K.TICK,
                K.CANCEL,
                K.BUS_RESTARTED,
            ),
            (X.DONE,),
        ),
        ignore=(K.ENTRY_RELEASED, K.PAUSE, K.RESUME, *_REST),
    ),
    X.DONE: row({}, ignore=tuple(Kind)),
    X.ABORTED: row(
        {K.SUCCESS: (X.COMMITTED,)},
        ignore=tuple(kind for kind in Kind if kind is not K.SUCCESS),
    ),
}

_WITHDRAWN = (N.FAILED_FINAL,)

ENTRY: Final[dict[EntryState, Row]] = {
    N.HELD: row(
        {
            K.ENTRY_RELEASED: (N.RELEASED,),
            K.CANCEL: _WITHDRAWN,
            K.PAUSE: _WITHDRAWN,
            K.SUCCESS: _WITHDRAWN,
            K.FAILURE_RETRYABLE: _WITHDRAWN,
            K.FAILURE_FINAL: _WITHDRAWN,
            K.PUBLISH_REFUSED: _WITHDRAWN,
            K.LEASE_RETURNED: _WITHDRAWN,
            K.BUS_RESTARTED: _WITHDRAWN,
            K.TICK: _WITHDRAWN,
        },
        ignore=(K.ACK, K.HEARTBEAT, K.PUBLISH_CONFIRMED, K.RESUME, *_REST),
    ),
    N.RELEASED: row(
        {
            K.PUBLISH_CONFIRMED: (N.SENT,),
            K.PUBLISH_REFUSED: (N.HELD, N.FAILED_FINAL),
            K.ACK: (N.SENT,),
            K.HEARTBEAT: (N.SENT,),
            K.LEASE_RETURNED: (N.SENT,),
            K.SUCCESS: (N.SENT,),
            K.FAILURE_RETRYABLE: (N.SENT,),
            K.FAILURE_FINAL: (N.SENT,),
            K.CANCEL: (N.FAILED_FINAL,),
            K.TICK: (N.FAILED_FINAL,),
        },
        ignore=(K.BUS_RESTARTED, K.PAUSE, K.RESUME, *_REST),
        reject=(K.ENTRY_RELEASED,),
    ),
    N.SENT: row(
        {},
        ignore=tuple(kind for kind in Kind if kind is not K.ENTRY_RELEASED),
        reject=(K.ENTRY_RELEASED,),
    ),
    N.FAILED_FINAL: row(
        {},
        ignore=tuple(kind for kind in Kind if kind is not K.ENTRY_RELEASED),
        reject=(K.ENTRY_RELEASED,),
    ),
}

MACHINES: Final[dict[str, dict[StrEnum, Row]]] = {
    "job": {**JOB},
    "step": {**STEP},
    "execution": {**EXECUTION},
    "entry": {**ENTRY},
}

_ALLOWED: Final = {
    (machine, str(state), str(kind), str(target))
    for machine, rows in MACHINES.items()
    for state, cells in rows.items()
    for kind, cell in cells.items()
    for target in cell.targets
}


def check_move(machine: str, source: StrEnum, kind: Kind, target: StrEnum) -> None:
    """Refuse a move that the tables do not list."""
    if (machine, source.value, kind.value, target.value) not in _ALLOWED:
        raise IllegalMoveError(f"{machine}: {source} -> {target} on {kind} is not in the table")
