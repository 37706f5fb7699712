"""How a delivery is settled: what the client asks for, and what it is answered."""

from typing import Any, Final
from uuid import UUID

from lucius.standins.service_bus.codec import Described
from lucius.standins.service_bus.frames import (
    ACCEPTED,
    MODIFIED,
    REJECTED,
    RELEASED,
    error,
    outcome,
)
from lucius.standins.service_bus.links import SESSION_LOST
from lucius.standins.service_bus.management import LOCK_LOST, NOT_IMPLEMENTED
from lucius.standins.service_bus.queue import DESCRIPTION, REASON, Queue

LOST: Final = "The lock supplied is invalid: it expired, or the message was settled."


def applied(queue: Queue, token: UUID, state: Described) -> Described:
    """The outcome that the client asked for, as it is answered: its own, or that the lock is lost."""
    code, fields = int(state.descriptor), state.value
    if code == ACCEPTED:
        done = queue.complete(token)
    elif code == RELEASED:
        done = queue.abandon(token, failed=False)
    elif code == MODIFIED:
        away = len(fields) > 1 and fields[1]
        done = queue.defer(token) if away else queue.abandon(token)
    elif code == REJECTED:
        done = queue.dead_letter(token, *_reason(fields))
        state = outcome(REJECTED)
    else:
        return outcome(REJECTED, [error(NOT_IMPLEMENTED, f"outcome 0x{code:02x}")])
    condition = SESSION_LOST if queue.options.sessions else LOCK_LOST
    return state if done else outcome(REJECTED, [error(condition, LOST)])


def _reason(fields: list[Any]) -> tuple[str, str]:
    """Why a message is rejected: in the information of the error."""
    said = fields[0].value if fields and isinstance(fields[0], Described) else []
    info = {str(k): v for k, v in ((said[2] if len(said) > 2 else None) or {}).items()}
    return str(info.get(REASON) or ""), str(info.get(DESCRIPTION) or "")
