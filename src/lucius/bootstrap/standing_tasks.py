"""What runs in the background for as long as the process: begun anew where it ends by a defect."""

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
        """Until it is begun anew, the process is not ready."""
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
        if self.down:
            raise LuciusError("; ".join(f"{name}: {why}" for name, why in self.down.items()))
