"""Background tasks of a process: each is started again where it ends by an error.

Only the tasks that move jobs decide whether the process is ready. Every other task looks after what tenants
ask for, so its error is a warning: one tenant's plan must not take the process away from the others.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final

from lucius.core.errors import LuciusError
from lucius.engines.outbox.observer import Incident, Observer

log = logging.getLogger("lucius")

RESTART_PAUSE: Final = timedelta(seconds=1)
VITAL: Final = frozenset(("reconciler", "worker"))
"""The tasks without which no job of any tenant moves."""

StandingTask = Callable[[], Awaitable[None]]


class StandingTasks:
    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self.down: dict[str, str] = {}
        """What has ended and was not yet begun anew, and why."""

    @asynccontextmanager
    async def watching(self, tasks: Mapping[str, StandingTask]) -> AsyncIterator[None]:
        """All of them run as long as this is entered."""
        running = [asyncio.create_task(self._forever(name, run)) for name, run in tasks.items()]
        try:
            yield
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _forever(self, name: str, run: StandingTask) -> None:
        """Until a vital task is started again, the process is not ready."""
        while True:
            try:
                await run()
            except Exception as error:
                log.exception("the %s has ended and is started again", name)
                self._observer.incident(Incident.TASK_FAILED, name)
                self.down[name] = repr(error)
                await asyncio.sleep(RESTART_PAUSE.total_seconds())
                self.down.pop(name)

    async def check(self) -> None:
        if vital := {name: why for name, why in self.down.items() if name in VITAL}:
            raise LuciusError("; ".join(f"{name}: {why}" for name, why in vital.items()))

    @property
    def warning(self) -> str | None:
        """The tasks that fail without making the process unready; the log has the error."""
        failed = [name for name in self.down if name not in VITAL]
        return f"started again after an error: {', '.join(failed)}" if failed else None
