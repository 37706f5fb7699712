"""A virtual clock for asyncio: when nothing is ready to run, time jumps to the next timer."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

T = TypeVar("T")
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
RESOLUTION = 1e-6
"""Coarser than the steps of a float at `LONGEST`: a timer that is due is run."""
LONGEST = timedelta(days=60).total_seconds()


class DeadlockError(AssertionError):
    """The program under test waits for ever: no timer is set, or timers alone have run for sixty days."""


class _JumpingSelector(selectors.SelectSelector):
    def __init__(self) -> None:
        super().__init__()
        self.elapsed = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if found or timeout == 0:
            return found
        if timeout is None:
            raise DeadlockError("no timer is set and nothing is ready to run")
        self.elapsed += max(timeout, RESOLUTION)
        if self.elapsed > LONGEST:
            raise DeadlockError(
                "only timers have run for sixty days: what is waited for never comes"
            )
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time moves only when every task waits."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)
        self._clock_resolution = RESOLUTION

    def time(self) -> float:
        return self._jumping.elapsed

    def stand_still(self, seconds: float) -> None:
        """Time goes on and nothing runs, as in a process that was stopped."""
        self._jumping.elapsed += seconds

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self._jumping.elapsed)


def run_virtually(main: Callable[[VirtualLoop], Coroutine[Any, Any, T]]) -> T:
    """Run to completion in virtual time; a program that could only hang fails at once."""
    loop = VirtualLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main(loop))
