"""Work beside what goes on: tasks that nobody awaits, and calls that are repeated while storage is away."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

from lucius.core.errors import LedgerRowUnreadableError, LedgerUnavailableError
from lucius.engines.outbox.inbox import OUTAGE_PAUSE
from lucius.engines.outbox.observer import Incident, Observer


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


log = logging.getLogger("lucius.engine")

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
                log.warning("the ledger is unavailable: %s", error)
            failures += 1
        await asyncio.sleep(OUTAGE_PAUSE.total_seconds())
