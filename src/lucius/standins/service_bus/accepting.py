"""What a receiver says about sessions when it attaches, and how it is told which one it has."""

from typing import Any, Final, NamedTuple

from lucius.standins.service_bus.codec import Described, Symbol
from lucius.standins.service_bus.frames import Attach
from lucius.standins.service_bus.queue import Queue

SESSION_FILTER: Final = Symbol("com.microsoft:session-filter")
LOCKED_UNTIL: Final = Symbol("com.microsoft:locked-until-utc")
TIMEOUT: Final = Symbol("com.microsoft:timeout")
NOT_ALLOWED: Final = "amqp:not-allowed"
CANNOT_BE_LOCKED: Final = "com.microsoft:session-cannot-be-locked"
TIMED_OUT: Final = "com.microsoft:timeout"
PATIENCE: Final = 60.0
"""Seconds that a receiver waits for a session, unless it says otherwise."""
TICKS_IN_1970: Final = 621_355_968_000_000_000
"""Ticks of 100 ns since the year 1."""


class RefusedLinkError(Exception):
    def __init__(self, condition: str, description: str) -> None:
        super().__init__(description)
        self.condition = condition
        self.description = description


class Wish(NamedTuple):
    """A receiver that wants a session: this one, or the next where `name` is None."""

    name: str | None
    patience: float


def wish_of(queue: Queue, said: Attach) -> Wish | None:
    """None: it wants no session. Refused where that does not fit the subscription."""
    filters = (said.source.value[7] if len(said.source.value) > 7 else None) or {}
    asks = SESSION_FILTER in filters
    if asks != queue.options.sessions:
        does = "requires" if queue.options.sessions else "does not require"
        raise RefusedLinkError(NOT_ALLOWED, f"The subscription {does} sessions.")
    if not asks:
        return None
    wanted = filters[SESSION_FILTER]
    wanted = wanted.value if isinstance(wanted, Described) else wanted
    patience = (said.properties or {}).get(TIMEOUT)
    return Wish(wanted, PATIENCE if patience is None else patience / 1000)


def granted(said: Attach, name: str, until: float) -> dict[str, Any]:
    """The parts of the answer that name the session and the end of its lock."""
    fields = list(said.source.value)
    fields[7] = {SESSION_FILTER: name}
    ticks = int(until * 10**7) + TICKS_IN_1970
    source = Described(said.source.descriptor, fields)
    return {"source": source, "properties": {LOCKED_UNTIL: ticks}}
