"""What waits for the window, and in which order tenants come: they take turns, whatever their backlog.

The ledger holds the backlog. Only the head of each tenant's queue is kept here, a page at a time.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from lucius.core.record import record
from lucius.engines.outbox.windows import Key
from lucius.ports.ledger import Ledger, ReadyQueue

PAGE: Final = 256


@record
class Waiting:
    job_id: str
    step_id: str


@dataclass(slots=True)
class _Tenant:
    heads: deque[Waiting] = field(default_factory=deque)
    more: bool = False
    """The ledger may hold entries of this tenant that are not in `heads`."""


_NOBODY: Final[OrderedDict[str, _Tenant]] = OrderedDict()


class ReadyQueues:
    """For each line on each lane a ring of tenants; for each tenant the head of its queue."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._rings: dict[Key, OrderedDict[str, _Tenant]] = {}
        self._taken: set[Waiting] = set()
        self._loading = asyncio.Lock()
        self._unknown: set[tuple[Key, str]] = set()
        """Queues of the ledger that were not known here at the last look."""

    async def recover(self, lanes: Collection[int]) -> None:
        """After a start: every queue that the ledger holds may have entries."""
        for queue in await self._ledger.ready_queues(lanes):
            ring = self._rings.setdefault((queue.line, queue.lane), OrderedDict())
            ring[queue.tenant_id] = _Tenant(more=True)

    def notice(self, queues: Iterable[ReadyQueue]) -> list[Key]:
        """Take up queues that the ledger holds and that are not known here: a save may have landed unheard.

        Return their lines and lanes. A queue must be unknown twice in turn: entries may be on their way.
        """
        unknown = {
            ((queue.line, queue.lane), queue.tenant_id)
            for queue in queues
            if queue.tenant_id not in self.tenants((queue.line, queue.lane))
        }
        found, self._unknown = unknown & self._unknown, unknown
        for key, tenant_id in found:
            self._rings.setdefault(key, OrderedDict())[tenant_id] = _Tenant(more=True)
        return [key for key, _ in found]

    def forget(self, lane: int) -> None:
        """Forget a lane: another process owns it now."""
        for key in [key for key in self._rings if key[1] == lane]:
            del self._rings[key]

    def lines(self) -> list[Key]:
        """Every line and lane that someone waits for."""
        return list(self._rings)

    def waits(self, key: Key) -> bool:
        return key in self._rings

    def tenants(self, key: Key) -> Collection[str]:
        """Who waits there; whoever was served last comes last."""
        return self._rings.get(key, _NOBODY)

    def add(self, key: Key, tenant_id: str, waiting: Waiting) -> None:
        """Queue an entry that is committed as held and ready."""
        ring = self._rings.setdefault(key, OrderedDict())
        tenant = ring.get(tenant_id)
        if tenant is None:
            tenant = ring[tenant_id] = _Tenant()
        if tenant.more or len(tenant.heads) >= PAGE:
            tenant.more = True
        else:
            tenant.heads.append(waiting)

    async def take(self, key: Key, tenant_id: str) -> Waiting | None:
        """The tenant's next entry; call `settle` when it is released or turned out to be gone."""
        if self._lacks_heads(key, tenant_id):
            async with self._loading:  # two that load the same queue would take an entry twice
                if self._lacks_heads(key, tenant_id):
                    await self._load(key, tenant_id, self._rings[key][tenant_id])
        ring = self._rings.get(key, _NOBODY)
        tenant = ring.get(tenant_id)
        if tenant is None:
            return None
        waiting = tenant.heads.popleft() if tenant.heads else None
        del ring[tenant_id]
        if tenant.heads or tenant.more:
            ring[tenant_id] = tenant
        elif not ring:
            del self._rings[key]
        if waiting is not None:
            self._taken.add(waiting)
        return waiting

    def _lacks_heads(self, key: Key, tenant_id: str) -> bool:
        """Whether the tenant's next entry must be read from the ledger."""
        tenant = self._rings.get(key, _NOBODY).get(tenant_id)
        return tenant is not None and not tenant.heads and tenant.more

    def settle(self, waiting: Waiting) -> None:
        self._taken.discard(waiting)

    async def _load(self, key: Key, tenant_id: str, tenant: _Tenant) -> None:
        line, lane = key
        limit = PAGE + len(self._taken)
        page = await self._ledger.ready(line, lane, tenant_id, limit)
        found = [Waiting(entry.job_id, entry.step_id) for entry in page]
        tenant.more = len(page) == limit
        tenant.heads.extend(w for w in found if w not in self._taken and w not in tenant.heads)
