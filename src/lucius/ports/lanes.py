"""The lanes port: which of the 16 lanes this process owns. The set may change while it runs.

The owner of a lane alone releases and publishes on it, consumes its replies and may cache its jobs.
Ownership is for efficiency and fairness: a zombie owner does no harm, every save is a compare-and-swap.
"""

from collections.abc import Collection, Coroutine, Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeVar

from lucius.core.plan import FIRST_SHARD
from lucius.core.routing import LANES

T = TypeVar("T")
LaneRows = Mapping[int, Mapping[str, Any]]
"""By lane, what its owner says of it: JSON data."""


class Lanes(Protocol):
    @property
    def owned(self) -> frozenset[int]:
        """The shards that this process owns now: it holds their leases and has taken them over.

        A shard is a lane of one engine; those of the outbox engine are the lanes.
        """

    @property
    def renewal(self) -> timedelta | None:
        """How often to renew; None: never, what is owned is owned for ever."""

    async def renew(self, rows: LaneRows) -> frozenset[int]:
        """Renew the leases, take and hand over lanes so that owners share them evenly.

        `rows` is written with them, for everyone to read. The answer: the lanes it holds now.
        LedgerUnavailableError: nobody knows, and they are held until their leases run out.
        """

    def took_over(self, lanes: Collection[int]) -> None:
        """What these lanes held is known here now: from here on they are owned."""

    async def give_back(self) -> None:
        """The process is about to end: others need not wait for the leases to run out."""

    async def rows(self) -> LaneRows:
        """What the owners of all lanes say of them; that of dead owners is left out."""

    @property
    def others(self) -> LaneRows:
        """The same of other owners, as it was when this process last renewed its leases."""

    async def until_change(self, work: Coroutine[Any, Any, T]) -> T | None:
        """What the work answers, or None: it was cancelled, because other lanes are owned now."""


class FixedLanes:
    """The same lanes for ever: all of them where one process does everything."""

    renewal: timedelta | None = None
    others: LaneRows = MappingProxyType({})

    def __init__(self, owned: Collection[int] = range(LANES)) -> None:
        self.owned = frozenset(owned)
        self._rows: LaneRows = {}

    async def renew(self, rows: LaneRows) -> frozenset[int]:
        self._rows = rows
        return self.owned

    def took_over(self, lanes: Collection[int]) -> None:
        """They were owned before."""

    async def give_back(self) -> None:
        """Nobody waits for them."""

    async def rows(self) -> LaneRows:
        return self._rows

    async def until_change(self, work: Coroutine[Any, Any, T]) -> T | None:
        return await work


ALL_LANES: Final = FixedLanes()
BOTH_ENGINES: Final = FixedLanes(range(LANES * len(FIRST_SHARD)))
NO_LANES: Final = FixedLanes(())
