"""Services that are paused: nothing is released to them, and nothing of theirs times out.

The order is a note, so it holds in every process and over a restart. A process that releases looks for it.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NoReturn

from lucius.core.errors import LedgerError
from lucius.core.record import record
from lucius.insight.notebook import Note, Notebook, readable
from lucius.ports.leases import LeaseStore

log = logging.getLogger("lucius.insight")

PAUSED: Final = "paused"
LOOK: Final = timedelta(seconds=3)
"""Between two looks for what other processes were told."""


@record
class ServicePause:
    """Who paused a service, when, and why if they said so."""

    at: datetime
    by: str
    reason: str | None = None


DAMAGED: Final = ServicePause(
    datetime.fromtimestamp(0, UTC), "unknown", "what is stored of the pause cannot be read"
)
"""Nobody has resumed the service, as far as is known."""


class PausedServices:
    """`alone`: only this process is told of pauses, so it need not look for them."""

    def __init__(self, store: LeaseStore, *, now: Callable[[], datetime], alone: bool) -> None:
        self._notebook = Notebook(store, PAUSED)
        self._now = now
        self._alone = alone
        self._paused: dict[str, ServicePause] = {}
        self._goes_on = asyncio.Event()

    def __contains__(self, service: object) -> bool:
        return service in self._paused

    def get(self, service: str) -> ServicePause | None:
        return self._paused.get(service)

    async def went_on(self) -> None:
        await self._goes_on.wait()
        self._goes_on.clear()

    async def all(self) -> dict[str, ServicePause]:
        """By service, as stored."""
        await self.look()
        return dict(self._paused)

    async def pause(self, service: str, by: str, reason: str | None) -> bool:
        """False: it was paused already, and stays as it was."""
        at, news = self._now(), False

        def paused(stored: Note | None) -> Note:
            nonlocal news
            news = stored is None
            return stored or {"at": at.timestamp(), "by": by, "reason": reason}

        await self._notebook.change(service, paused)
        await self.look()
        return news

    async def resume(self, service: str) -> bool:
        """False: it was not paused."""
        news = False

        def resumed(stored: Note | None) -> None:
            nonlocal news
            news = stored is not None

        await self._notebook.change(service, resumed)
        await self.look()
        return news

    async def look(self) -> None:
        """Read what is stored. Whoever waits for a service to go on is told."""
        notes = await self._notebook.read()
        found = {name: readable(name, note, _read, DAMAGED) for name, note in notes.items()}
        if self._paused.keys() - found.keys():
            self._goes_on.set()
        self._paused = found

    async def run(self) -> NoReturn:
        """Look for what other processes were told. The first look comes before the start."""
        while True:
            await (asyncio.Future() if self._alone else asyncio.sleep(LOOK.total_seconds()))
            try:
                await self.look()
            except LedgerError as error:
                log.info("paused services are looked for later: %s", error)


def _read(note: Note) -> ServicePause:
    given: dict[str, Any] = dict(note)
    return ServicePause(datetime.fromtimestamp(given["at"], UTC), given["by"], given["reason"])
