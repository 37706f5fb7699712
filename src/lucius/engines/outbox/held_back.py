"""Services that someone holds back: nothing is released to them until they go on."""

from typing import NoReturn, Protocol

from lucius.engines.outbox.releases import Releases


class HeldBack(Protocol):
    def __contains__(self, service: object) -> bool: ...

    async def went_on(self) -> None:
        """Return when a service that was held back is so no more."""


class Resumption:
    """Has released what waited for a service, once it goes on."""

    def __init__(self, held_back: HeldBack, releases: Releases) -> None:
        self._held_back = held_back
        self._releases = releases

    async def run(self) -> NoReturn:
        while True:
            await self._held_back.went_on()
            self._releases.pump_all()
