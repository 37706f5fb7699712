"""The lanes port: which of the 16 lanes this process owns. The set may change while it runs.

The owner of a lane alone releases and publishes on it, consumes its replies and may cache its jobs.
Ownership is for efficiency and fairness: a zombie owner does no harm, every save is a compare-and-swap.
"""

from collections.abc import Collection
from typing import Final, Protocol

from lucius.core.routing import LANES


class Lanes(Protocol):
    @property
    def owned(self) -> frozenset[int]:
        """The lanes that this process owns now."""


class FixedLanes:
    """The same lanes for ever: all of them where one process does everything."""

    def __init__(self, owned: Collection[int] = range(LANES)) -> None:
        self.owned = frozenset(owned)


ALL_LANES: Final = FixedLanes()
NO_LANES: Final = FixedLanes(())
