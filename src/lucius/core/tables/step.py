"""The step's table. A step also moves on what happens to another: a success starts the next stage."""

from typing import Final

from lucius.core.inputs import Kind as K
from lucius.core.states import StepState as S
from lucius.core.tables.cell import (
    CALLBACKS,
    PUBLISHED,
    UNKNOWN,
    UNMOVING,
    UNRELEASABLE,
    TableRow,
    row,
)

_ENDED: Final = (S.FAILED_RETRY, S.FAILED_FINAL, S.CANCELLED)
_RETURNED: Final = (S.DISPATCHING, S.PENDING, *_ENDED)
"""Where a lease that was given back leaves its step: to go out again, now or later, or not."""
_CLOSED: Final = row(
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
    S.SUCCEEDED: _CLOSED,
    S.FAILED_FINAL: _CLOSED,
    S.CANCELLED: _CLOSED,
}
