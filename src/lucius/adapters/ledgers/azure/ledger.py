"""The ledger port on Azure Table Storage. How a job's own rows lie is the layout's business."""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Final

from lucius.adapters.ledgers.azure.heads import Layout
from lucius.adapters.ledgers.azure.lists import Lists
from lucius.adapters.ledgers.azure.repairing import Pruning, Repair
from lucius.adapters.ledgers.azure.scanning import Scanner
from lucius.adapters.ledgers.azure.side_tables import SHARED_RECORDS, AzureKeys, AzureLeases
from lucius.adapters.ledgers.azure.store import ROW, Row, Store, service_time
from lucius.adapters.ledgers.azure.tables import TableInstruments
from lucius.adapters.ledgers.azure.tenants import Levels, Tenants
from lucius.adapters.ledgers.azure.verify import LAG, Examination
from lucius.adapters.ledgers.azure.wakeups import LATE_CREATION, LaneTable, entry_of
from lucius.adapters.ledgers.azure.writing import (
    Creation,
    JobTurns,
    Saving,
    SeenJobs,
    Stamps,
    seen_job_of,
)
from lucius.adapters.ledgers.rules import Unreadable, group_of
from lucius.adapters.ledgers.stored.job_codec import SCHEMA
from lucius.adapters.ledgers.stored.json_form import micros
from lucius.core.effects import Event
from lucius.core.errors import LedgerRowUnreadableError, LedgerTooNewError
from lucius.core.job import Job
from lucius.core.record import record
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
SETTLE: Final = LAG * 4 / 5
"""Rows that are to be dropped wait no longer for a request to their lane: `verify` would name them."""
CHECKED: Final = "|check"
"""A row that is not there."""


@record
class HeldRow:
    """A row of a ready queue, as the save of that version wrote it."""

    row: str
    entry: ReadyEntry
    version: int


def _held(lane: int, row: Row) -> HeldRow:
    return HeldRow(row[ROW], entry_of(lane, row[ROW]), int(row["version"]))


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
        self._seen_jobs = SeenJobs()
        self._turns = JobTurns()
        self._levels = Levels(self._tenants, now)
        self._settled_at = now()
        self._unreadable = Unreadable()
        self._offered: defaultdict[str, dict[str, HeldRow]] = defaultdict(dict)
        """Ready rows that were answered, by job: whoever loads the job sees whether they still hold."""
        stamps = Stamps(now)
        parts = (layout, self._tenants, self._lanes, self._seen_jobs)
        self._creation = Creation(*parts, stamps, now)
        self._saving = Saving(*parts, stamps, now)
        self._scanner = Scanner(*parts, now)
        self._repair = Repair(*parts, now)
        self._probed = deque(_alternating((*layout.tables, lanes, shared)))
        self._lists = Lists(store, tenants, self._tenants, layout, self._listed)
        self._pruning = Pruning(store, tenants, self._tenants, layout, self._seen_jobs)

    def dated(self) -> tuple[datetime, float] | None:
        """The date that the storage service gave last, and the monotonic moment at which it came."""
        return self._store.dated()

    def leases(self) -> AzureLeases:
        """Rows that say which process owns which lane."""
        return AzureLeases(self._store, self._shared)

    def keys(self) -> AzureKeys:
        """Rows of the API keys that all replicas accept."""
        return AzureKeys(self._store, self._shared)

    def shared_records(self) -> AzureLeases:
        """Rows of what is known beside the jobs."""
        return AzureLeases(self._store, self._shared, SHARED_RECORDS)

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
            before = self._seen_jobs.get(job.job_id)
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
        await self._repair.all()
        return await self._scanner.sweep(now)

    async def repair(self, job_id: str) -> bool:
        async with self._turns.of(job_id):
            return await self._repair.job(job_id)

    # -- reading -----------------------------------------------------------------------------

    async def load(self, job_id: str) -> Job | None:
        try:
            stored = await self._layout.read(job_id)
        except LedgerRowUnreadableError as error:
            self._unreadable.note(error)
            raise
        self._unreadable.forget(job_id)
        offered = self._offered.pop(job_id, {}).values()
        if stored is None:
            for held in offered:
                if await self._is_buried(held.entry):
                    self._lanes.drop(held.entry.lane, [held.row])
            return None
        job, head = stored.job, stored.head
        known = self._seen_jobs.get(job_id)
        if known is None or known.etag != stored.etag:
            self._seen_jobs.put(job_id, seen_job_of(job, head, stored.etag))
        for held in offered:
            self._is_orphan(held)
        if job.terminal and job.due_at is not None and self._now() - job.due_at > LAG:
            await self._repair.job(job_id)  # nobody compares the jobs that have ended
        return job

    def _is_orphan(self, held: "HeldRow") -> bool:
        """Whether its job has no place for it, as of the save that wrote it or a later one.

        A process that died has left it, or one whose answer was lost. Whoever meets one drops it.
        """
        seen_job = self._seen_jobs.get(held.entry.job_id)
        if seen_job is None or seen_job.version < held.version:
            return False
        if held.entry.position in (seen_job.head.ready or {}).values():
            return False
        self._lanes.drop(held.entry.lane, [held.row])
        return True

    async def _is_buried(self, entry: ReadyEntry) -> bool:
        """Whether its job never comes to be. Its writer may be late: it finds a tombstone then."""
        if micros(self._now()) - entry.position < LATE_CREATION:
            return False
        if await self._layout.bury(entry.job_id, entry.tenant_id):
            return True
        found = await self._layout.glance(entry.job_id, entry.tenant_id)
        return found is not None and found.tombstone

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
        """Whoever looks for what is due, though nothing may be, also copies what its saves have left."""
        for job in await self._layout.copy_late(all_own=all_own):
            self._saving.copied(job)

    async def next_due(self, lanes: Collection[int]) -> datetime | None:
        await self._copy_late()
        if self._now() - self._settled_at >= SETTLE:
            self._settled_at = self._now()
            await self._lanes.settle(lanes)
        return await self._scanner.next_due(lanes, self._unreadable.__contains__)

    async def ready_queues(self, lanes: Collection[int]) -> Sequence[ReadyQueue]:
        held: Counter[tuple[str, int, str]] = Counter()
        for lane in lanes:
            async for row in self._lanes.ready(lane):
                each = _held(lane, row)
                if not self._is_orphan(each):
                    held[each.entry.queue_name, lane, each.entry.tenant_id] += 1
        return [ReadyQueue(*queue, n) for queue, n in held.items()]

    async def ready(
        self, queue_name: str, lane: int, tenant_id: str, limit: int
    ) -> Sequence[ReadyEntry]:
        found: list[ReadyEntry] = []
        page = min(limit, 1000)
        async for row in self._lanes.ready(lane, queue_name, tenant_id, page=page):
            held = _held(lane, row)
            entry = held.entry
            if int(row["schema"]) > SCHEMA or entry.job_id in self._unreadable:
                continue
            if self._is_orphan(held):
                continue
            if len(self._offered) < MOST_OFFERED:
                self._offered[entry.job_id][row[ROW]] = held
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
