"""When workers that pull came last: a directive that waits for the next of them is not overdue."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from lucius.ports.bus import BoundTenants

PULLED: Final = 300.0
"""Seconds after its last pull for which a worker is taken to come again."""
MOMENT: Final = 1.0
"""Seconds that a directive may take from the bus to a worker that waits for it."""
MOST: Final = 256
"""Kinds of workers that are remembered for a service."""


@dataclass(slots=True)
class _Visit:
    """`left_at` is when one of these workers last could have taken more than there was."""

    waiting: int = 0
    at: float = 0.0
    left_at: float = float("-inf")


class Visits:
    """When workers of a service last pulled, by the tenants that they are bound to."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seen: dict[str, dict[BoundTenants, _Visit]] = {}

    def began(self, service: str, tenants: BoundTenants) -> None:
        seen = self._seen.setdefault(service, {})
        if len(seen) >= MOST and tenants not in seen:
            self._forget(seen)
        visit = seen.setdefault(tenants, _Visit())
        visit.waiting += 1
        visit.at = self._clock()

    def ended(self, service: str, tenants: BoundTenants, *, spare: bool) -> None:
        """`spare`: it could have taken more."""
        visit = self._seen[service][tenants]
        visit.waiting -= 1
        visit.at = self._clock()
        if spare:
            visit.left_at = visit.at

    def awaited(self, service: str, tenant_id: str, since: float) -> bool:
        """Workers come for this tenant, and none that could have taken more has come since then."""
        visits = [
            visit
            for tenants, visit in self._seen.get(service, {}).items()
            if tenants is None or tenant_id in tenants
        ]
        now, known = self._clock(), since + MOMENT
        if any(visit.left_at > known for visit in visits):
            return False
        if any(visit.waiting and now - max(visit.at, since) > MOMENT for visit in visits):
            return False
        return any(now - visit.at <= PULLED for visit in visits)

    def _forget(self, seen: dict[BoundTenants, _Visit]) -> None:
        old = self._clock() - PULLED
        for tenants in [t for t, visit in seen.items() if not visit.waiting and visit.at < old]:
            del seen[tenants]
