"""Time as this process sees it: it never goes back, and the process notices when it stood still."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from lucius.core.errors import LedgerRowUnreadableError, LedgerUnavailableError, LuciusError
from lucius.engine.inbox import OUTAGE_PAUSE
from lucius.engine.observer import Incident, Observer

# Work beside what goes on: tasks that nobody awaits, and calls that are repeated while storage is away.


class Tasks:
    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self._running: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.report(error)

    def report(self, error: BaseException) -> None:
        """Count and log what nobody waits for. Its job stays due, so the reconciler comes back to it."""
        if isinstance(error, LedgerRowUnreadableError | asyncio.CancelledError):
            return  # the ledger has named that already, or the process ends
        self.observer.incident(Incident.TASK_FAILED, "engine")
        asyncio.get_running_loop().call_exception_handler(
            {"message": "a task of the engine failed", "exception": error}
        )

    async def close(self) -> None:
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)


engine_log = logging.getLogger("lucius.engine")

T = TypeVar("T")


async def all_of(work: Iterable[Awaitable[T]]) -> list[T]:
    """Their answers, once all have ended; then the first error. None goes on while it is tried again."""
    answers: list[T] = []
    for each in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(each, BaseException):
            raise each
        answers.append(each)
    return answers


async def persistently(act: Callable[[], Awaitable[T]]) -> T:
    """Repeat until the ledger answers."""
    failures = 0
    while True:
        try:
            return await act()
        except LedgerUnavailableError as error:
            if not failures:
                engine_log.warning("the ledger is unavailable: %s", error)
            failures += 1
        await asyncio.sleep(OUTAGE_PAUSE.total_seconds())


log = logging.getLogger("lucius.clock")

LOOK: Final = timedelta(seconds=1)
"""How often the process looks at its clocks."""
STALL: Final = timedelta(seconds=1)
"""A look that is so late, or a clock that is so far ahead of the time that passed, is a stall."""
HALF_A_SECOND: Final = timedelta(seconds=0.5)
EXACT: Final = timedelta(seconds=1)
"""A date in an HTTP header is no more exact."""
MOST_DRIFT: Final = timedelta(seconds=2)
"""Beyond it a process is not ready, though it goes on by the storage's time."""
SLOW: Final = 2
"""A clock that was set back runs at a half of its speed until the wall clock has caught up."""


class SteadyClock:
    """Wall time that never goes back.

    Set back by an hour, it runs on at half speed and meets the wall clock two hours later. So what waits
    for a moment waits at most twice as long, and not an hour longer.
    """

    def __init__(self, wall: Callable[[], datetime], time: Callable[[], float]) -> None:
        self._wall = wall
        self._time = time
        self._latest = wall()
        self._since: float | None = None
        """When `_latest` was, by the other clock; none while the wall clock goes forward."""

    def now(self) -> datetime:
        wall = self._wall()
        if wall >= self._latest:
            self._latest, self._since = wall, None
            return wall
        time = self._time()
        if self._since is not None:
            self._latest += timedelta(seconds=max(0.0, time - self._since) / SLOW)
        self._since = time
        return self._latest


class StorageClock:
    """The time of the storage that processes share: theirs may be off, by minutes even.

    `dated` answers the date of the storage service's last answer, in whole seconds, and when it came by
    `time`. The wall clock is corrected only where it is off by more than that date is exact.
    """

    def __init__(
        self,
        wall: Callable[[], datetime],
        time: Callable[[], float],
        dated: Callable[[], tuple[datetime, float] | None],
    ) -> None:
        self._wall = wall
        self._time = time
        self._dated = dated

    def now(self) -> datetime:
        drift = self.drift
        return self._wall() - drift if abs(drift) > EXACT else self._wall()

    @property
    def drift(self) -> timedelta:
        """How far the wall clock is ahead of the storage service's."""
        sample = self._dated()
        if sample is None:
            return timedelta()
        date, came = sample
        there = date + HALF_A_SECOND + timedelta(seconds=self._time() - came)
        return self._wall() - there

    def check(self) -> None:
        """Raise LuciusError where the wall clock is too far off."""
        drift = self.drift.total_seconds()
        if abs(drift) > MOST_DRIFT.total_seconds():
            how = "ahead of" if drift > 0 else "behind"
            raise LuciusError(f"the clock is {abs(drift):.0f} s {how} the storage's: set it by NTP")


class StallWatch:
    """Compares two clocks from look to look: the time that passed, and what the wall clock says.

    A process that was stopped or suspended, whose event loop was held up, or whose clock was set ahead
    has heard nobody meanwhile. Whoever judges silence asks until when that was so.
    """

    def __init__(self, now: Callable[[], datetime], time: Callable[[], float]) -> None:
        self._now = now
        self._time = time
        self._last: tuple[datetime, float] | None = None
        self._deaf_until: datetime | None = None

    def deaf_until(self, observer: Observer) -> datetime | None:
        """Look now. The end of the latest stall; none where there was none yet."""
        now, time = self._now(), self._time()
        if self._last is not None:
            passed = timedelta(seconds=time - self._last[1])
            stood = passed - LOOK > STALL
            ahead = now - self._last[0] - passed
            if stood or ahead > STALL:
                self._noticed(now, passed if stood else ahead, observer, stood=stood)
        self._last = now, time
        return self._deaf_until

    def _noticed(
        self, now: datetime, length: timedelta, observer: Observer, *, stood: bool
    ) -> None:
        self._deaf_until = now
        observer.incident(Incident.STALLED, "process" if stood else "clock")
        what = "this process stood still for" if stood else "the clock jumped ahead by"
        said = "%s %.1f s: leases that ran out meanwhile begin anew"
        log.warning(said, what, length.total_seconds())


class LoopTime:
    """The time of the running loop. The loop is looked up once: this runs several times a decision."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def __call__(self) -> float:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop.time()
