"""How many jobs are live in all and on each lane, roughly: read now and then, and counted on in between.

Only a tenant's own limit is exact here. The others may be exceeded by what other processes admit between
two readings.
"""

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from lucius.ledgers.azure.counters import Cells
from lucius.ledgers.azure.tenants import Tenants
from lucius.ledgers.rules import InflightCounts, InflightGroup
from lucius.ports.ledger import Inflight, LimitReached, Limits

log = logging.getLogger("lucius.ledger")
FRESH: Final = timedelta(seconds=1)


class Levels:
    def __init__(self, tenants: Tenants, now: Callable[[], datetime]) -> None:
        self._tenants = tenants
        self._now = now
        self._counts = InflightCounts()
        self._read_at: datetime | None = None

    async def read(self) -> Inflight:
        """One request for each tenant."""
        counts = InflightCounts()
        for tenant_id in await self._tenants.all():
            for (lane, mode), n in (await self._live(tenant_id)).items():
                counts.add(InflightGroup(tenant_id, lane, mode), n)
        self._counts, self._read_at = counts, self._now()
        return counts.view()

    async def _live(self, tenant_id: str) -> Cells:
        """Counters that are damaged count nothing here: they must not stop the other tenants."""
        try:
            return await self._tenants.live(tenant_id)
        except (LookupError, ValueError, TypeError, AttributeError) as error:
            log.error("the counters of the tenant %r cannot be read: %r", tenant_id, error)
            return Counter()

    def add(self, cell: InflightGroup, change: int) -> None:
        self._counts.add(cell, change)

    async def saturated(self, cell: InflightGroup, limits: Limits) -> LimitReached | None:
        if limits.total is None and limits.of_lane(cell.mode) is None:
            return None
        if self._read_at is None or self._now() - self._read_at >= FRESH:
            await self.read()
        return self._counts.saturated(cell, replace(limits, tenant=None))
