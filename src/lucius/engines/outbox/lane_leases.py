"""Lanes that several processes share: each leases its part, evenly, and takes over what the dead leave.

A lease is observed, never timed by its holder's clock: a row that nobody has written for `term`, by the
observer's own clock, is free. Its holder stops sooner, a margin before `term` after its last write began.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from math import inf
from typing import Any, Final, TypeVar

from lucius.core.plan import FIRST_DESK, OUTBOX
from lucius.core.routing import LANES
from lucius.ports.lanes import LaneRows
from lucius.ports.leases import LeaseRow, LeaseStore

log = logging.getLogger("lucius.lanes")

T = TypeVar("T")
TERM: Final = timedelta(seconds=15)
RENEWALS: Final = 5
"""How often a lease is renewed in one term. A holder that misses one is not yet taken for dead."""
MARGIN: Final = 0.2
"""The holder trusts its lease for this part of a term less: clocks of two machines run apart."""
NOBODY: Final = ""
_LANE: Final = "lane|"
_OWNER: Final = "owner|"


class LeasedLanes:
    """One for each process. `name` is unique to the process and its life; `takes`: it wants lanes."""

    def __init__(
        self,
        store: LeaseStore,
        name: str,
        *,
        clock: Callable[[], float],
        term: timedelta = TERM,
        takes: bool = True,
        engine: str = OUTBOX,
    ) -> None:
        """Desks of one engine are shared among its own processes."""
        self._store = store
        self._name = name
        self._clock = clock
        self._term = term.total_seconds()
        self.renewal = term / RENEWALS if takes else None
        self._takes = takes
        first = FIRST_DESK[engine]
        self._desks = range(first, first + LANES)
        self._owner = _OWNER if engine == OUTBOX else f"{engine}-{_OWNER}"
        self._seen: dict[str, tuple[str | None, float]] = {}
        """By row: its stamp, and when that stamp was first seen."""
        self._until: dict[int, float] = {}
        """By lane that is held: when others may take it."""
        self._taken_over: frozenset[int] = frozenset()
        self.others: LaneRows = {}
        self._changed = asyncio.Event()

    @property
    def owned(self) -> frozenset[int]:
        now = self._clock()
        return frozenset([lane for lane in self._taken_over if self._until.get(lane, 0.0) > now])

    def took_over(self, lanes: Collection[int]) -> None:
        self._taken_over |= frozenset(lanes) & self._until.keys()
        self._changed.set()

    # -- leases ------------------------------------------------------------------------------

    async def renew(self, rows: LaneRows) -> frozenset[int]:
        if not self._takes:
            return frozenset()
        stored = await self._look()
        await self._announce(stored)
        said, quota = self._said(stored), self._quota(stored)
        self.others = {d: rows for d, rows in said.items() if d not in self._until}
        mine = [lane for lane in self._desks if self._is_mine(lane, stored)]
        self._drop(self._until.keys() - mine[:quota])
        await self._write(mine[quota:], stored, NOBODY, {})
        await self._write(mine[:quota], stored, self._name, rows)
        for lane in self._desks:
            if len(self._until) < quota and self._is_free(lane, stored):
                await self._write([lane], stored, self._name, {})
        return frozenset(self._until)

    def _drop(self, lanes: Collection[int]) -> None:
        """Hold these lanes no more."""
        for lane in lanes:
            del self._until[lane]
        if self._taken_over & frozenset(lanes):
            log.info("lanes %s are no longer owned here", sorted(lane % LANES for lane in lanes))
            self._taken_over -= frozenset(lanes)
            self._changed.set()

    async def give_back(self) -> None:
        stored = await self._look()
        self._drop(list(self._until))
        mine = [lane for lane in self._desks if self._is_mine(lane, stored)]
        await self._write(mine, stored, NOBODY, {})
        me = stored.get(self._owner + self._name)
        if me is not None:
            await self._store.delete(me)

    async def rows(self) -> LaneRows:
        return self._said(await self._look())

    def _said(self, stored: Mapping[str, LeaseRow]) -> dict[int, Mapping[str, Any]]:
        return {
            int(key.removeprefix(_LANE)): row.content
            for key, row in stored.items()
            if key.startswith(_LANE) and row.holder != NOBODY and not self._is_dead(key)
        }

    async def _look(self) -> dict[str, LeaseRow]:
        stored = {row.key: row for row in await self._store.rows()}
        now = self._clock()
        for key, row in stored.items():
            if self._seen.get(key, (None, now))[0] != row.etag:
                self._seen[key] = (row.etag, now)
        for key in self._seen.keys() - stored.keys():
            del self._seen[key]
        return stored

    def _is_dead(self, key: str) -> bool:
        return self._clock() - self._seen[key][1] >= self._term

    async def _announce(self, stored: dict[str, LeaseRow]) -> None:
        """Write this process's row, so that others count it; remove the rows of the dead."""
        key = self._owner + self._name
        mine = stored.get(key, LeaseRow(key, self._name))
        etag = await self._store.put(mine)
        stored[key] = replace(mine, etag=etag)
        self._seen[key] = (etag, self._clock())
        for other in [row for row in stored.values() if row.key.startswith(self._owner)]:
            if other.key != key and self._is_dead(other.key):
                await self._store.delete(other)
                del stored[other.key]

    def _quota(self, stored: Mapping[str, LeaseRow]) -> int:
        """How many lanes are this process's share. Where it is uneven, the first by name have one more."""
        owners = sorted(key for key in stored if key.startswith(self._owner))
        rank = owners.index(self._owner + self._name)
        return LANES // len(owners) + (rank < LANES % len(owners))

    def _is_mine(self, lane: int, stored: Mapping[str, LeaseRow]) -> bool:
        row = stored.get(_key(lane))
        return row is not None and row.holder == self._name

    def _is_free(self, lane: int, stored: Mapping[str, LeaseRow]) -> bool:
        row = stored.get(_key(lane))
        return row is None or row.holder == NOBODY or self._is_dead(row.key)

    async def _write(
        self, lanes: Sequence[int], stored: Mapping[str, LeaseRow], holder: str, rows: LaneRows
    ) -> None:
        """Whoever has written one since it was read has it.

        A lease that had lapsed is trusted again: whoever found nothing to own meanwhile must look.
        """
        began = self._clock()
        wanted = [
            replace(
                stored.get(_key(lane), LeaseRow(_key(lane), holder)),
                holder=holder,
                content=rows.get(lane, {}),
            )
            for lane in lanes
        ]
        for lane, etag in zip(lanes, await self._store.put_all(wanted), strict=True):
            if etag is None:
                self._drop(self._until.keys() & {lane})
            elif holder == self._name:
                if self._until.get(lane, inf) <= self._clock():
                    self._changed.set()
                self._until[lane] = began + self._term * (1 - MARGIN)

    # -- change ------------------------------------------------------------------------------

    async def until_change(self, work: Coroutine[Any, Any, T]) -> T | None:
        self._changed.clear()
        changed = asyncio.create_task(self._changed.wait())
        task = asyncio.create_task(work)
        try:
            await asyncio.wait((task, changed), return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            changed.cancel()
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def _key(lane: int) -> str:
    return f"{_LANE}{lane:02d}"
