"""Lanes come and go: what is gained is taken over from the ledger, what is lost is forgotten."""

import asyncio
import logging
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Mapping,
    Sequence,
)
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any, Final, TypeVar

from lucius.core.effects import Committed
from lucius.core.errors import LedgerRowUnreadableError, LedgerUnavailableError
from lucius.core.inputs import BusRestarted
from lucius.core.job import Job, StepState
from lucius.core.plan import FIRST_SHARD, OUTBOX
from lucius.core.routing import LANES
from lucius.engine.clock import Tasks, all_of, persistently
from lucius.engine.observer import Incident, Outage
from lucius.engine.outbox import OutboxEngine
from lucius.engine.releases import Releases
from lucius.engine.ticks import Alarm
from lucius.ports.bus import Bus
from lucius.ports.lanes import LaneRows, Lanes
from lucius.ports.leases import LeaseRow, LeaseStore
from lucius.ports.ledger import DueJob, Ledger

# Lanes that several processes share: each leases its part, evenly, and takes over what the dead leave.
#
# A lease is observed, never timed by its holder's clock: a row that nobody has written for `term`, by the
# observer's own clock, is free. Its holder stops sooner, a margin before `term` after its last write began.

lanes_log = logging.getLogger("lucius.lanes")

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
        first = FIRST_SHARD[engine]
        self._shards = range(first, first + LANES)
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
        mine = [lane for lane in self._shards if self._is_mine(lane, stored)]
        self._drop(self._until.keys() - mine[:quota])
        await self._write(mine[quota:], stored, NOBODY, {})
        await self._write(mine[:quota], stored, self._name, rows)
        for lane in self._shards:
            if len(self._until) < quota and self._is_free(lane, stored):
                await self._write([lane], stored, self._name, {})
        return frozenset(self._until)

    def _drop(self, lanes: Collection[int]) -> None:
        """Hold these lanes no more."""
        for lane in lanes:
            del self._until[lane]
        if self._taken_over & frozenset(lanes):
            lanes_log.info(
                "lanes %s are no longer owned here", sorted(lane % LANES for lane in lanes)
            )
            self._taken_over -= frozenset(lanes)
            self._changed.set()

    async def give_back(self) -> None:
        stored = await self._look()
        self._drop(list(self._until))
        mine = [lane for lane in self._shards if self._is_mine(lane, stored)]
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


log = logging.getLogger("lucius.reconciler")

EMBEDDED: Final = "embedded/"
"""Worker ids of services that live in a process of LUCIUS begin so: their leases die with it."""
PAGE: Final = 512
AT_ONCE: Final = 64
"""Jobs that are taken up together; they are in memory with their payloads."""
PAST: Final = datetime(1970, 1, 1, tzinfo=UTC)
FOREVER: Final = datetime(9999, 1, 1, tzinfo=UTC)


@dataclass
class LostServices:
    """Services that died with an earlier process of this installation: their leases hold nothing.

    A durable bus may still hold the ACK of one. So it listens to commits, too, and the reconciler looks.
    `home`: worker ids of all services that ever lived in this installation's process begin so.

    `alive`: those of the services that live now.
    """

    home: str
    alive: str
    _jobs: dict[str, Job] = field(default_factory=dict)
    _look: bool = False
    _found: asyncio.Event = field(default_factory=asyncio.Event)

    def died(self, alive: str) -> None:
        """Those that lived until now. Others take their place, and every lease is to be looked at."""
        self.alive, self._look = alive, True
        self._found.set()

    def owners(self, job: Job) -> set[str]:
        """Worker ids of the dead that hold a lease of this job."""
        if self.home == self.alive:
            return set()
        at_work = (step for step in job.steps if step.state is StepState.IN_PROGRESS)
        owners = {step.executions[-1].lease_owner or "" for step in at_work}
        return {o for o in owners if o.startswith(self.home) and not o.startswith(self.alive)}

    def listen(self, commit: Committed) -> None:
        if self.home != self.alive and self.owners(commit.job):
            self._jobs[commit.job.job_id] = commit.job
            self._found.set()

    async def jobs(self) -> tuple[list[Job], bool]:
        """Wait for jobs that have a lease of the dead, and return them; True: there may be others."""
        while not self._jobs and not self._look:
            self._found.clear()
            await self._found.wait()
        found, look = list(self._jobs.values()), self._look
        self._jobs.clear()
        self._look = False
        return found, look


class Ownership:
    def __init__(
        self,
        engine: OutboxEngine,
        ledger: Ledger,
        bus: Bus,
        releases: Releases,
        alarm: Alarm,
        lost: LostServices,
        tasks: Tasks,
        outage: Outage,
        *,
        lanes: Lanes,
        backlog: Callable[[], Awaitable[LaneRows]],
    ) -> None:
        """`backlog`: what is said of the owned lanes when their leases are renewed."""
        self._engine = engine
        self._ledger = ledger
        self._bus = bus
        self._releases = releases
        self._alarm = alarm
        self._lost = lost
        self._tasks = tasks
        self._outage = outage
        self._lanes = lanes
        self._backlog = backlog
        self._held: frozenset[int] = frozenset()
        self._taking: frozenset[int] = frozenset()
        """Lanes that are being taken over."""
        self._said: LaneRows = {}
        """The backlog of the owned lanes as it was last counted, for others to read."""

    async def prepare(self) -> None:
        """Take over what there is to own at the start."""
        await self._take_over(await self._renew())

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            if self._lanes.renewal is not None:
                tasks.create_task(self._renew_forever(self._lanes.renewal.total_seconds()))
                tasks.create_task(self._count_forever(self._lanes.renewal.total_seconds()))
            tasks.create_task(self._bury_forever())

    async def _renew_forever(self, seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                gained = await self._renew()
            except LedgerUnavailableError as error:
                self._outage.began(error)
                continue
            if gained:
                self._tasks.spawn(self._take_over(gained))

    async def _count_forever(self, seconds: float) -> None:
        """Count the backlog beside the renewals: a lease must not run out because counting takes long."""
        while True:
            await asyncio.sleep(seconds)
            self._releases.look_again()
            with suppress(LedgerUnavailableError):  # the renewal says so
                self._said = await self._backlog()

    async def _renew(self) -> frozenset[int]:
        """Renew the leases, and return the lanes that were gained."""
        held = await self._lanes.renew(self._said)
        lost, gained = self._held - held, held - self._held
        # Given up by a renewal that failed halfway, and held again: nobody would take these over.
        gained |= held - self._lanes.owned - self._taking
        self._held, self._taking = held, self._taking | gained
        if lost:
            self._engine.forget(lost)
        return gained

    # -- taking over -------------------------------------------------------------------------

    async def _take_over(self, lanes: frozenset[int]) -> None:
        """Leases go on being renewed meanwhile. Nothing is released on a lane before all of it is known."""
        try:
            await persistently(lambda: self._recover(lanes))
            self._lanes.took_over(lanes & self._held)
        finally:
            self._taking -= lanes
        self._releases.pump_all()
        self._alarm.due(PAST)

    async def _recover(self, lanes: frozenset[int]) -> None:
        """Whatever is out, however long its leases still run; what has waited longest goes first."""
        self._engine.forget(lanes)
        left = sorted([job_id async for job_id in self._delivering(lanes)])
        for start in range(0, len(left), AT_ONCE):
            await all_of(map(self._take_up, left[start : start + AT_ONCE]))
        await self._releases.recover(lanes)
        if left:
            log.info("looked at %d jobs on %d lanes that are owned now", len(left), len(lanes))

    async def _delivering(self, lanes: frozenset[int]) -> AsyncIterator[str]:
        """The live jobs of a lane that may have a directive out."""
        after: DueJob | None = None
        while page := await self._ledger.due(FOREVER, lanes, PAGE, after):
            for found in page:
                if found.out:
                    yield found.job_id
            after = page[-1]

    async def _take_up(self, job_id: str) -> None:
        await self._look_at(job_id, self._found)

    async def _found(self, job: Job) -> None:
        """A volatile bus has lost it: publish again. Its lane may be lost again by now."""
        if job.plan.shard in self._held:
            self._engine.found(job)
        if self._bus.volatile:
            await self._engine.apply(job.job_id, BusRestarted(EMBEDDED))
        else:
            await self._bury(job)

    async def _look_at(self, job_id: str, see: Callable[[Job], Awaitable[None]]) -> None:
        """At a job that has something out. One that cannot be moved must not keep the others from it."""
        try:
            job = await self._engine.job(job_id)
            if job is not None and any(step.out for step in job.steps):
                await see(job)
        except LedgerUnavailableError:
            raise
        except LedgerRowUnreadableError:
            return  # the ledger has named it
        except Exception:
            self._tasks.observer.incident(Incident.TASK_FAILED, "recovery")
            log.exception("a job cannot be taken up", extra={"jobId": job_id})

    # -- services that died ------------------------------------------------------------------

    async def _bury_forever(self) -> None:
        while True:
            jobs, look = await self._lost.jobs()
            if look:
                self._tasks.spawn(persistently(self._bury_all))
            for job in jobs:
                self._tasks.spawn(self._bury(job))

    async def _bury_all(self) -> None:
        """Services have died while this process lives: look at everything that is out."""
        for job_id in [each async for each in self._delivering(self._held)]:
            await self._look_at(job_id, self._bury)

    async def _bury(self, job: Job) -> None:
        """End the leases of services of this installation that live no more."""
        for owner in self._lost.owners(job):
            await self._engine.apply(job.job_id, BusRestarted(owner, kept=True))
