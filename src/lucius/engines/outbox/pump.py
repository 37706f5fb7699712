"""The pump releases what waits: as the windows have room for it, or as a worker that pulls has."""

from collections.abc import Collection
from functools import partial
from typing import NoReturn

from lucius.core.errors import LedgerUnavailableError
from lucius.core.ids import new_lease_id
from lucius.core.inputs import EntryReleased
from lucius.engines.outbox.engine import OutboxEngine
from lucius.engines.outbox.outage import persistently
from lucius.engines.outbox.ready import ReadyQueues, Waiting
from lucius.engines.outbox.releases import Releases
from lucius.engines.outbox.tasks import Tasks
from lucius.engines.outbox.windows import Key, Share, Windows


class Pump:
    def __init__(
        self,
        engine: OutboxEngine,
        releases: Releases,
        windows: Windows,
        ready: ReadyQueues,
        tasks: Tasks,
    ) -> None:
        self._engine = engine
        self._releases = releases
        self._windows = windows
        self._ready = ready
        self._tasks = tasks

    async def run(self) -> NoReturn:
        """One task for each line and lane at a time."""
        while True:
            for key in await self._releases.asked():
                self._tasks.spawn(self._pump(key))

    async def _pump(self, key: Key) -> None:
        try:
            while (tenant_id := self._releases.next_tenant(key)) is not None:
                waiting = await persistently(partial(self._ready.take, key, tenant_id))
                if waiting is not None:
                    self._start((key, tenant_id), waiting)
        finally:
            self._releases.pumped(key)

    def _start(self, share: Share, waiting: Waiting) -> None:
        self._windows.reserve(share)
        self._tasks.spawn(self._release(share, waiting))

    async def _release(self, share: Share, waiting: Waiting) -> None:
        try:
            released = EntryReleased(waiting.step_id, new_lease_id())
            await persistently(lambda: self._engine.apply(waiting.job_id, released))
        finally:
            self._ready.settle(waiting)
            self._releases.unreserve(share)

    async def release_for(self, service: str, room: int, tenants: Collection[str] | None) -> int:
        """A worker has room for so many more than the bus had for it, so they go out beyond the window.

        The answer says how many: they are on their way. While the bus or the ledger is away, none is.
        """
        turns, started = self._releases.in_turn(service, room, tenants), 0
        while turns and started < room:
            tenant_id, keys = turns.popleft()
            share = (keys.popleft(), tenant_id)
            try:
                waiting = await self._ready.take(*share)
            except LedgerUnavailableError:
                break
            if waiting is not None:
                self._start(share, waiting)
                started += 1
            if tenant_id in self._ready.tenants(share[0]) and self._windows.trusts(*share):
                keys.append(share[0])
            if keys:
                turns.append((tenant_id, keys))
        return started
