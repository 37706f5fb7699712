"""How many webhooks are under way at once, so that no host and no tenant holds up the others.

A receiver that does not answer keeps a slot until its delivery times out. A host of one tenant gets
only a few of them, a tenant only its part, and a slot that falls free goes to whoever holds fewest.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from lucius.outside import AT_ONCE

PER_TENANT: Final = 32
PER_HOST: Final = 16
"""Of one tenant: two tenants with the same host do not share its slots."""

T = TypeVar("T")
Place = tuple[str, str]
"""Tenant and host."""


class Slots:
    def __init__(
        self, at_once: int = AT_ONCE, tenant: int = PER_TENANT, host: int = PER_HOST
    ) -> None:
        self._free = at_once
        self._tenant = tenant
        self._host = host
        self._by_tenant: Counter[str] = Counter()
        self._by_place: Counter[Place] = Counter()
        self._waiting: dict[Place, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def one(self, tenant_id: str, host: str) -> AsyncIterator[None]:
        place = (tenant_id, host)
        await self._taken(place)
        try:
            yield
        finally:
            self._give_back(place)

    async def _taken(self, place: Place) -> None:
        if self._has_room(place):
            self._take(place)
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(place, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it was given the slot, and does not want it
                self._give_back(place)
            raise

    def _has_room(self, place: Place) -> bool:
        tenant_room = self._by_tenant[place[0]] < self._tenant
        return self._free > 0 and tenant_room and self._by_place[place] < self._host

    def _take(self, place: Place) -> None:
        self._free -= 1
        self._by_tenant[place[0]] += 1
        self._by_place[place] += 1

    def _give_back(self, place: Place) -> None:
        self._free += 1
        _drop(self._by_tenant, place[0])
        _drop(self._by_place, place)
        self._pass_on()

    def _pass_on(self) -> None:
        """To whoever waits and may have it: the tenant that holds fewest, then its host that does."""
        while ready := [place for place in self._waiting if self._has_room(place)]:
            place = min(ready, key=lambda each: (self._by_tenant[each[0]], self._by_place[each]))
            turn = self._next(place)
            if turn is not None:
                self._take(place)
                turn.set_result(None)

    def _next(self, place: Place) -> "asyncio.Future[None] | None":
        """The first that still waits there."""
        line = self._waiting[place]
        turn = line.popleft()
        if not line:
            del self._waiting[place]
        return None if turn.done() else turn


def _drop(held: Counter[T], name: T) -> None:
    """One less; what is not held is forgotten."""
    held[name] -= 1
    if not held[name]:
        del held[name]
