"""The job's table. `decide` answers from it what the state of the job alone decides.

`QUEUED` is a moment within submit and resume: a stored job has moved on.
"""

from typing import Final

from lucius.core.inputs import Kind as K
from lucius.core.states import JobState as J
from lucius.core.tables.cell import CALLBACKS, PUBLISHED, UNKNOWN, UNRELEASABLE, TableRow, row

_LIVE: Final = {K.DISMISSED: "NOT_IN_DLQ", K.REDRIVEN: "NOT_REDRIVABLE"}
"""Rejected by a live job: only one that has ended takes them."""
_CLOSED: Final = dict.fromkeys((K.CANCEL, K.PAUSE, K.RESUME, K.RETRY), "JOB_TERMINAL")
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
    J.SUCCEEDED: row({}, ignore=_PASSING, reject={**UNRELEASABLE, **_CLOSED, **_STRANGE}),
    J.FAILED_FINAL: row(
        {},
        ignore=(*_PASSING, K.DISMISSED, K.REDRIVEN),
        reject={**UNKNOWN, **UNRELEASABLE, **_CLOSED},
    ),
    J.CANCELLED: row(
        {},
        ignore=(*_PASSING, K.REDRIVEN),
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
