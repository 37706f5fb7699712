"""The execution's table. `ABORTED` for silence can still commit, until the next lease exists."""

from typing import Final

from lucius.core.inputs import Kind as K
from lucius.core.states import ExecutionState as X
from lucius.core.tables.cell import CALLBACKS, PUBLISHED, UNMOVING, UNRELEASABLE, TableRow, row

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
