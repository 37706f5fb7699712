"""Hangs up on clients that hold a connection and do not finish what they began to send.

Connections are looked at once a second. So a request pays nothing for it, and one that is cut off has
had its time and up to two seconds more.
"""

from collections.abc import Callable, Iterable
from datetime import timedelta
from time import monotonic
from typing import NamedTuple

from lucius.server.protocol import BoundedProtocol, Owed


class Mark(NamedTuple):
    """What a client owed when it was first seen to owe it."""

    owed: Owed
    request: object
    since: float


class SlowClients:
    def __init__(
        self, head: timedelta, body: timedelta, clock: Callable[[], float] = monotonic
    ) -> None:
        self._patience = {
            Owed.REQUEST: head.total_seconds(),
            Owed.HEAD: head.total_seconds(),
            Owed.BODY: body.total_seconds(),
        }
        self._clock = clock
        self._marks: dict[BoundedProtocol, Mark] = {}

    def sweep(self, connections: Iterable[object]) -> None:
        now, marks = self._clock(), dict[BoundedProtocol, Mark]()
        for connection in [each for each in connections if isinstance(each, BoundedProtocol)]:
            owed = connection.owed()
            if owed is None:
                continue
            mark = self._marks.get(connection)
            if mark is None or mark.owed is not owed or mark.request is not connection.headers:
                mark = Mark(owed, connection.headers, now)
            if now - mark.since >= self._patience[owed]:
                connection.give_up(owed)
            else:
                marks[connection] = mark
        self._marks = marks
