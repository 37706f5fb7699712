"""Paused services: nothing is released to them until they are resumed."""

from typing import NoReturn, Protocol

from lucius.engines.outbox.releases import Releases


class HeldBack(Protocol):
    def __contains__(self, service: object) -> bool: ...

    async def went_on(self) -> None:
        """Return when a service that was paused has been resumed."""


class Resumption:
    """When a paused service is resumed, has the pump release what waited for it."""

    def __init__(self, held_back: HeldBack, releases: Releases) -> None:
        self._held_back = held_back
        self._releases = releases

    async def run(self) -> NoReturn:
        while True:
            await self._held_back.went_on()
            self._releases.pump_all()
