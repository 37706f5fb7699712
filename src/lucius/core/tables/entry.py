"""The outbox entry's table. Clients read `HELD` and `RELEASED` as `PENDING`."""

from typing import Final

from lucius.core.inputs import Kind as K
from lucius.core.states import EntryState as N
from lucius.core.tables.cell import CALLBACKS, UNMOVING, UNRELEASABLE, TableRow, row

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
