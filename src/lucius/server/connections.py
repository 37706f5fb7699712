"""How many connections there may be, in all and from one address, with a reserve for monitors and operators.

A connection beyond the limits is one of the reserve: it is answered once, and only what monitors and
operators ask for. If the reserve is full too, the one that has been silent longest makes room.
"""

import logging
import resource
from collections import Counter
from typing import Final, Protocol

from lucius.telemetry.instruments import Count, Instruments

log = logging.getLogger("lucius")

RESERVE: Final = 32
FILES_BESIDES: Final = 256
"""File descriptors for all that is not a connection of a client: ledger, documents, webhooks."""
_FEWEST: Final = 16
ANSWER_UNREAD: Final = "ANSWER_UNREAD"
"""Why a client that takes nothing of its answer is hung up on: nobody could be told."""
_CODES: Final = (
    *("INVALID_HTTP", "INVALID_TARGET", "INVALID_HOST", "HEADERS_TOO_LARGE", "REQUEST_TIMEOUT"),
    *("CONNECTIONS_EXHAUSTED", "TOO_MANY_CONNECTIONS", "OTHER_USER", ANSWER_UNREAD),
)


class ConnectionInstruments(Instruments):
    def __init__(self) -> None:
        self.refused = Count(
            "lucius_connections_refused_total",
            "Connections that were hung up on before a route could answer",
            ("code",),
        )
        for code in _CODES:
            self.refused.expect(code)


class Guest(Protocol):
    def has_asked(self) -> bool:
        """Whether a whole head has come, so that there is something to answer."""

    def cut_off(self) -> None: ...


class Connections:
    def __init__(self, most: int, per_address: int, reserve: int = RESERVE) -> None:
        self._most = most
        self._per_address = per_address
        self._size = reserve
        self.instruments = ConnectionInstruments()
        self._placed: dict[Guest, str] = {}
        self._by_address: Counter[str] = Counter()
        self._reserve: dict[Guest, None] = {}

    def __len__(self) -> int:
        return len(self._placed) + len(self._reserve)

    def enter(self, guest: Guest, address: str) -> str | None:
        """None: it has a place. Otherwise the code that all but monitors and operators are refused with."""
        if len(self._placed) >= self._most:
            code = "CONNECTIONS_EXHAUSTED"
        elif self._by_address[address] >= self._per_address:
            code = "TOO_MANY_CONNECTIONS"
        else:
            self._placed[guest] = address
            self._by_address[address] += 1
            return None
        self._reserve[guest] = None
        if len(self._reserve) > self._size:
            self._make_room()
            self.refused(code)
        return code

    def refused(self, code: str) -> None:
        """Count one that is hung up on without an answer of a route."""
        self.instruments.refused.add(code)

    def leave(self, guest: Guest) -> None:
        self._reserve.pop(guest, None)
        address = self._placed.pop(guest, None)
        if address is not None:
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]

    def _make_room(self) -> None:
        """There is always a silent one: whoever has just come."""
        silent = next(guest for guest in self._reserve if not guest.has_asked())
        del self._reserve[silent]
        silent.cut_off()


def affordable(most: int) -> int:
    """As many as this process may have files open for. The soft limit of files is raised where it can be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = most + RESERVE + FILES_BESIDES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return most
    fewer = max(soft - RESERVE - FILES_BESIDES, _FEWEST)
    log.warning(
        "at most %d connections instead of %d: this process may open only %d"
        " files (raise `ulimit -n`)",
        *(fewer, most, soft),
    )
    return fewer
