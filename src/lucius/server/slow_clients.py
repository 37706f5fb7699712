"""Hangs up on clients that hold a connection and neither finish what they send nor take what they are sent.

Connections are looked at once a second. So a request pays nothing for it, and one that is cut off has
had its time and up to two seconds more.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from time import monotonic
from typing import NamedTuple

import uvicorn

from lucius.server.protocol import BoundedProtocol, Debt, Duty


class Mark(NamedTuple):
    """What a client owed when it was first seen to owe it."""

    debt: Debt
    since: float


class SlowClients:
    """`head` and `body`: the time to send them. `unread`: the time in which some of an answer is taken."""

    def __init__(
        self,
        head: timedelta,
        body: timedelta,
        unread: timedelta,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._patience = {
            Duty.REQUEST: head.total_seconds(),
            Duty.HEAD: head.total_seconds(),
            Duty.BODY: body.total_seconds(),
            Duty.END: body.total_seconds(),
            Duty.TAKING: unread.total_seconds(),
        }
        self._clock = clock
        self._marks: dict[BoundedProtocol, Mark] = {}

    def sweep(self, connections: Iterable[object]) -> None:
        now, marks = self._clock(), dict[BoundedProtocol, Mark]()
        for connection in [each for each in connections if isinstance(each, BoundedProtocol)]:
            debt = connection.debt()
            if debt is None:
                continue
            mark = self._marks.get(connection)
            if mark is None or mark.debt != debt:
                mark = Mark(debt, now)
            if now - mark.since >= self._patience[debt.duty]:
                connection.give_up(debt.duty)
            else:
                marks[connection] = mark
        self._marks = marks


class SweptServer(uvicorn.Server):
    """Looks for slow clients as long as it runs. Signals are for whoever runs it."""

    ticks_a_look = 10
    """Ten ticks are a second."""

    def __init__(self, config: uvicorn.Config, slow: SlowClients) -> None:
        super().__init__(config)
        self._slow = slow

    async def on_tick(self, counter: int) -> bool:
        if counter % self.ticks_a_look == 0:
            self._slow.sweep(self.server_state.connections)
        return await super().on_tick(counter)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
