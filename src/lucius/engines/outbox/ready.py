"""What waits for the window, and whose turn it is: tenants take turns, whatever their backlog.

The ledger holds the backlog. Only the head of each tenant's queue is kept here, a page at a time.
"""

from collections import OrderedDict, deque
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from lucius.core.record import record
from lucius.engines.outbox.window import Key
from lucius.ports.ledger import Ledger

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


class ReadyQueues:
    """For each line on each lane a ring of tenants; for each tenant the head of its queue."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._rings: dict[Key, OrderedDict[str, _Tenant]] = {}
        self._taken: set[Waiting] = set()

    async def recover(self, lanes: Collection[int]) -> None:
        """After a start: every queue that the ledger holds may have entries."""
        for queue in await self._ledger.ready_queues(lanes):
            ring = self._rings.setdefault((queue.line, queue.lane), OrderedDict())
            ring[queue.tenant_id] = _Tenant(more=True)

    def lines(self) -> list[Key]:
        """Every line and lane that someone waits for."""
        return list(self._rings)

    def waits(self, key: Key) -> bool:
        return key in self._rings

    def add(self, key: Key, tenant_id: str, waiting: Waiting) -> None:
        """A committed entry is held and ready."""
        ring = self._rings.setdefault(key, OrderedDict())
        tenant = ring.get(tenant_id)
        if tenant is None:
            tenant = ring[tenant_id] = _Tenant()
        if tenant.more or len(tenant.heads) >= PAGE:
            tenant.more = True
        else:
            tenant.heads.append(waiting)

    async def take(self, key: Key) -> Waiting | None:
        """The next entry in turn; call `settle` when it is released or turned out to be gone."""
        while ring := self._rings.get(key):
            tenant_id, tenant = next(iter(ring.items()))
            if not tenant.heads and tenant.more:
                await self._load(key, tenant_id, tenant)
            waiting = tenant.heads.popleft() if tenant.heads else None
            if not tenant.heads and not tenant.more:
                ring.pop(tenant_id, None)
            elif tenant_id in ring:
                ring.move_to_end(tenant_id)
            if not ring:
                self._rings.pop(key, None)
            if waiting is not None:
                self._taken.add(waiting)
                return waiting
        return None

    def settle(self, waiting: Waiting) -> None:
        self._taken.discard(waiting)

    async def _load(self, key: Key, tenant_id: str, tenant: _Tenant) -> None:
        line, lane = key
        limit = PAGE + len(self._taken)
        page = await self._ledger.ready(line, lane, tenant_id, 0, limit)
        found = [Waiting(entry.job_id, entry.step_id) for entry in page]
        tenant.more = len(page) == limit
        tenant.heads.extend(w for w in found if w not in self._taken and w not in tenant.heads)
