"""The ledger port on Azure Table Storage. How a job's own rows lie is the layout's business."""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Final

from lucius.core.effects import Event
from lucius.core.errors import LedgerRowUnreadableError, LedgerTooNewError
from lucius.core.job import Job
from lucius.ledgers.azure.creating import Creation
from lucius.ledgers.azure.examine import Examination
from lucius.ledgers.azure.keys import AzureKeys
from lucius.ledgers.azure.layout import Layout
from lucius.ledgers.azure.leases import NOTES, AzureLeases
from lucius.ledgers.azure.levels import Levels
from lucius.ledgers.azure.lists import Lists
from lucius.ledgers.azure.metrics import TableInstruments
from lucius.ledgers.azure.pruning import Pruning
from lucius.ledgers.azure.saving import Saving
from lucius.ledgers.azure.scanning import Scanner
from lucius.ledgers.azure.seen import JobTurns, Sights, Stamps, sight_of
from lucius.ledgers.azure.store import ROW, Store, service_time
from lucius.ledgers.azure.tenants import Tenants
from lucius.ledgers.azure.wakeups import LaneTable, entry_of
from lucius.ledgers.rules import group_of
from lucius.ledgers.sqlite.unreadable import Unreadable
from lucius.ledgers.stored.job_codec import SCHEMA
from lucius.ports.ledger import (
    NO_LIMITS,
    AnswerWrites,
    Claim,
    Created,
    CreateOutcome,
    Drift,
    DueJob,
    Inflight,
    JobPage,
    JobQuery,
    LedgerCapabilities,
    Limits,
    Pruned,
    ReadyEntry,
    ReadyQueue,
    Taken,
    Write,
    save_each,
)

MOST_OFFERED: Final = 20_000
CHECKED: Final = "|check"
"""A row that is not there."""


class AzureLedger:
    """`tenants`, `lanes` and `shared`: the tables of both layouts; `shared` is that of lane leases and keys.

    `now`: the service's time, unless told.
    """

    capabilities = LedgerCapabilities(exact_limits=False)

    def __init__(
        self,
        store: Store,
        layout: Layout,
        *,
        tenants: str,
        lanes: str,
        shared: str,
        now: Callable[[], datetime] | None = None,
        instruments: TableInstruments | None = None,
    ) -> None:
        now = now or partial(service_time, store)
        self.instruments = instruments or TableInstruments()
        self._store = store
        self._now = now
        self._layout = layout
        self._tenants = Tenants(store, tenants)
        self._lanes = LaneTable(store, lanes)
        self._shared = shared
        self._sights = Sights()
        self._turns = JobTurns()
        self._levels = Levels(self._tenants, now)
        self._unreadable = Unreadable()
        self._offered: defaultdict[str, dict[str, int]] = defaultdict(dict)
        """Ready rows that were answered, by job: whoever loads the job sees whether they still hold."""
        stamps = Stamps(now)
        parts = (layout, self._tenants, self._lanes, self._sights)
        self._creation = Creation(*parts, stamps, now)
        self._saving = Saving(*parts, stamps, now)
        self._scanner = Scanner(*parts, now)
        self._probed = deque(_alternating((*layout.tables, lanes, shared)))
        self._lists = Lists(store, tenants, self._tenants, layout, self._listed)
        self._pruning = Pruning(store, tenants, self._tenants, layout, self._sights)

    def dated(self) -> tuple[datetime, float] | None:
        """The date that the storage service gave last, and the monotonic moment at which it came."""
        return self._store.dated()

    def leases(self) -> AzureLeases:
        """Rows that say which process owns which lane."""
        return AzureLeases(self._store, self._shared)

    def keys(self) -> AzureKeys:
        """Rows of the API keys that all replicas accept."""
        return AzureKeys(self._store, self._shared)

    def notes(self) -> AzureLeases:
        """Rows of what is known beside the jobs."""
        return AzureLeases(self._store, self._shared, NOTES)

    async def close(self) -> None:
        try:
            await self._copy_late(all_own=True)
            await self._lanes.close()
        finally:
            await self._store.close()

    # -- writing -----------------------------------------------------------------------------

    async def claimed(self, claim: Claim) -> Taken | None:
        async with self._turns.of(_turn(claim)):
            return await self._creation.claimed(claim)

    async def create(
        self, claim: Claim, job: Job, events: Sequence[Event], limits: Limits = NO_LIMITS
    ) -> CreateOutcome:
        async with self._turns.of(_turn(claim)), self._turns.of(job.job_id):
            full = await self._levels.saturated(group_of(job), limits)
            if full is not None:
                return await self._creation.claimed(claim) or full
            outcome = await self._creation.create(claim, job, events, limits.tenant)
        if outcome == Created() and not job.terminal:
            self._levels.add(group_of(job), 1)
        return outcome

    async def save(self, job: Job, expected: int, events: Sequence[Event]) -> bool:
        async with self._turns.of(job.job_id):
            before = self._sights.get(job.job_id)
            try:
                saved = await self._saving.save(job, expected, events)
            except LedgerRowUnreadableError as error:
                self._unreadable.note(error)
                raise
        if saved and job.terminal and before is not None and not before.terminal:
            self._levels.add(group_of(job), -1)
        return saved

    async def save_all(self, writes: Sequence[Write], answered: AnswerWrites) -> None:
        await save_each(self, writes, answered)

    async def prune(self, before: datetime, limit: int, cursor: str | None = None) -> Pruned:
        return await self._pruning.page(before, limit, cursor)

    async def prunable(self, before: datetime) -> int:
        return await self._pruning.prunable(before)

    async def sweep(self, now: datetime) -> int:
        """Remove claims, with their counts, whose jobs were never written. How many."""
        return await self._scanner.sweep(now)

    # -- reading -----------------------------------------------------------------------------

    async def load(self, job_id: str) -> Job | None:
        try:
            stored = await self._layout.read(job_id)
        except LedgerRowUnreadableError as error:
            self._unreadable.note(error)
            raise
        self._unreadable.forget(job_id)
        if stored is None:
            self._offered.pop(job_id, None)
            return None
        job, head = stored.job, stored.head
        known = self._sights.get(job_id)
        if known is None or known.etag != stored.etag:
            self._sights.put(job_id, sight_of(job, head, stored.etag))
        places = set((head.ready or {}).values())
        for row, version in self._offered.pop(job_id, {}).items():
            lane = job.plan.desk
            if version <= job.version and entry_of(lane, row).position not in places:
                self._lanes.drop(lane, [row])  # a dead process left it
        return job

    async def _listed(self, job_id: str) -> Job | None:
        try:
            return await self.load(job_id)
        except (LedgerTooNewError, LedgerRowUnreadableError):
            return None

    async def unreadable(self) -> int:
        return len(self._unreadable)

    async def due(
        self,
        before: datetime,
        lanes: Collection[int],
        limit: int,
        after: DueJob | None = None,
    ) -> Sequence[DueJob]:
        if after is None:
            await self._copy_late()
        return await self._scanner.due(before, lanes, limit, after, self._unreadable.__contains__)

    async def _copy_late(self, *, all_own: bool = False) -> None:
        """Whoever looks for what is due also copies what its saves have left."""
        for job in await self._layout.copy_late(all_own=all_own):
            self._saving.copied(job)

    async def next_due(self, lanes: Collection[int]) -> datetime | None:
        return await self._scanner.next_due(lanes, self._unreadable.__contains__)

    async def ready_queues(self, lanes: Collection[int]) -> Sequence[ReadyQueue]:
        held: Counter[tuple[str, int, str]] = Counter()
        for lane in lanes:
            async for row in self._lanes.ready(lane):
                entry = entry_of(lane, row[ROW])
                held[entry.line, lane, entry.tenant_id] += 1
        return [ReadyQueue(*queue, n) for queue, n in held.items()]

    async def ready(self, line: str, lane: int, tenant_id: str, limit: int) -> Sequence[ReadyEntry]:
        found: list[ReadyEntry] = []
        page = min(limit, 1000)
        async for row in self._lanes.ready(lane, line, tenant_id, page=page):
            entry = entry_of(lane, row[ROW])
            if int(row["schema"]) > SCHEMA or entry.job_id in self._unreadable:
                continue
            if len(self._offered) < MOST_OFFERED:
                self._offered[entry.job_id][row[ROW]] = int(row["version"])
            found.append(entry)
            if len(found) == limit:
                break
        return found

    async def list(self, query: JobQuery) -> JobPage:
        return await self._lists.page(query)

    async def count(self, query: JobQuery) -> int:
        return await self._lists.count(query)

    async def events(self, job_id: str, after: int, limit: int) -> Sequence[Event]:
        return await self._layout.events(job_id, after, limit)

    async def inflight(self) -> Inflight:
        return await self._levels.read()

    async def check(self) -> None:
        """One small request: a write, or whether the next table is there. What failed is asked again."""
        table = self._probed[0]
        if table is None:
            await self._tenants.check()
        else:
            await self._store.get(table, CHECKED, CHECKED)
        self._probed.rotate(-1)

    async def verify(self) -> Sequence[Drift]:
        return await Examination(self._layout, self._tenants, self._lanes, self._now()).drifts()


def _alternating(tables: Sequence[str]) -> Iterator[str | None]:
    """A write before each table."""
    for table in tables:
        yield None
        yield table


def _turn(claim: Claim) -> str:
    return f"claim {claim.tenant_id} {claim.claim_hash}"
