"""Receiving for one service from several subscriptions: they take turns, so that none starves another."""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Final

from lucius.core.errors import BusError
from lucius.ports.bus import BoundTenants, Bus, Delivery

AT_ONCE: Final = timedelta()


class Turns:
    """The subscriptions of one service, over all of its topics."""

    def __init__(self, bus: Bus, names: Sequence[str], topics: Sequence[str]) -> None:
        self._bus = bus
        self._names = deque(names)
        self._topics = topics

    async def receive(
        self, limit: int, wait: timedelta, tenants: BoundTenants = None
    ) -> Sequence[Delivery]:
        """As `Bus.receive` does for one subscription."""
        if len(self._names) == 1:
            return await self._bus.receive(self._names[0], self._topics, limit, wait, tenants)
        found = await self._shared(limit, tenants)
        return found or (await self._first(limit, wait, tenants) if wait else ())

    async def _shared(self, limit: int, tenants: BoundTenants) -> list[Delivery]:
        """Ask each subscription for its part, then those with more for the rest. They take turns."""
        self._names.rotate()
        part = -(-limit // len(self._names))
        found: list[Delivery] = []
        for most in (part, limit):
            for name in self._names:
                room = min(most, limit - len(found))
                if room > 0:
                    found += await self._bus.receive(name, self._topics, room, AT_ONCE, tenants)
        return found

    async def _first(
        self, limit: int, wait: timedelta, tenants: BoundTenants
    ) -> Sequence[Delivery]:
        """Wait on all subscriptions, and return what the first of them has."""
        waits = [
            asyncio.ensure_future(self._bus.receive(name, self._topics, limit, wait, tenants))
            for name in self._names
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await give_back(self._bus, await _results(waits))
            raise
        found = await _results(waits)
        if not found:
            _check(waits)
        await give_back(self._bus, found[limit:])
        return found[:limit]


async def _results(waits: Sequence[asyncio.Future[Sequence[Delivery]]]) -> list[Delivery]:
    """What has come by now; the rest is waited for no longer."""
    for each in waits:
        each.cancel()
    await asyncio.wait(waits)
    return [
        delivery
        for each in waits
        if not each.cancelled() and each.exception() is None
        for delivery in each.result()
    ]


def _check(waits: Iterable[asyncio.Future[Sequence[Delivery]]]) -> None:
    for each in waits:
        if not each.cancelled():
            each.result()


async def give_back(bus: Bus, deliveries: Iterable[Delivery]) -> None:
    for delivery in deliveries:
        try:
            await bus.abandon(delivery)
        except BusError:
            continue  # its lock runs out, and it is delivered again all the same
