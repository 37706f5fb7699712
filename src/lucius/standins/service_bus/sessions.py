"""The sessions of a queue: who has which one, until when, and who waits for the next that is free.

As on Azure, a lock that runs out counts as a failed delivery of what was locked in the session, and a
receiver that closes gives it back uncounted.
"""

import asyncio
from collections.abc import Callable, Iterable
from time import time
from typing import Protocol

from lucius.standins.service_bus.messages import Stored


class Holder(Protocol):
    """The link of a receiver that has a session."""

    def lose(self) -> None:
        """Its lock has run out: the link ends."""


class SessionLock:
    def __init__(self, name: str, holder: Holder, until: float) -> None:
        self.name = name
        self.holder = holder
        self.until = until
        self.timer: asyncio.TimerHandle | None = None


class Waiting:
    """A receiver that takes the next session. `served` gets its name, or None when the wait is over."""

    def __init__(self, served: Callable[[str | None], None]) -> None:
        self.served = served
        self.timer: asyncio.TimerHandle | None = None


class Sessions:
    """`span`: how long a lock holds, in seconds. `freed`: told the name, and whether its lock ran out."""

    def __init__(self, span: Callable[[], float], freed: Callable[[str, bool], None]) -> None:
        self._span = span
        self._freed = freed
        self._locks: dict[str, SessionLock] = {}
        self._waiting: list[Waiting] = []

    def until(self, name: str) -> float:
        return self._locks[name].until

    def is_free(self, name: str) -> bool:
        return name not in self._locks

    def lock(self, name: str, holder: Holder) -> None:
        self._locks[name] = held = SessionLock(name, holder, 0.0)
        self._extend(held)

    def renew(self, name: str) -> float | None:
        """When it ends now. None: nobody has it."""
        held = self._locks.get(name)
        return None if held is None else self._extend(held)

    def _extend(self, held: SessionLock) -> float:
        if held.timer is not None:
            held.timer.cancel()
        span = self._span()
        held.until = time() + span
        held.timer = asyncio.get_running_loop().call_later(span, self.expire, held.name)
        return held.until

    def expire(self, name: str) -> None:
        self._free(name, ran_out=True).lose()

    def release(self, holder: Holder) -> None:
        """The receiver has closed its link."""
        for name in [name for name, held in self._locks.items() if held.holder is holder]:
            self._free(name, ran_out=False)

    def _free(self, name: str, *, ran_out: bool) -> Holder:
        held = self._locks.pop(name)
        if held.timer is not None:
            held.timer.cancel()
        self._freed(name, ran_out)
        return held.holder

    # -- waiting for the next one ------------------------------------------------------------

    def wait(self, patience: float, served: Callable[[str | None], None]) -> Waiting:
        waiting = Waiting(served)
        later = asyncio.get_running_loop().call_later
        waiting.timer = later(patience, self._serve, waiting, None)
        self._waiting.append(waiting)
        return waiting

    def leave(self, waiting: Waiting) -> None:
        """It waits no more: its connection has gone."""
        if waiting in self._waiting:
            self._waiting.remove(waiting)
        if waiting.timer is not None:
            waiting.timer.cancel()

    def _serve(self, waiting: Waiting, name: str | None) -> None:
        self.leave(waiting)
        waiting.served(name)

    def hand_out(self, ready: Iterable[Stored]) -> None:
        """Give each free session with a message to whoever waits longest. `ready` is in order."""
        if not self._waiting:
            return
        for message in ready:
            name = message.session_id
            if self._waiting and name is not None and self.is_free(name):
                self._serve(self._waiting[0], name)

    def next_free(self, ready: Iterable[Stored]) -> str | None:
        """The free session whose message has waited longest."""
        names = (message.session_id for message in ready)
        return next((name for name in names if name is not None and self.is_free(name)), None)
