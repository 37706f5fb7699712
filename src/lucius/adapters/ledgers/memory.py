"""A ledger in plain dictionaries: for tests and virtual time. It forgets everything when it is closed."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from heapq import heappop, heappush
from itertools import count, islice
from typing import Final, NamedTuple

from lucius.adapters.ledgers.rules import (
    HeldClaim,
    HeldCounts,
    InflightCounts,
    PageEnd,
    QueueKey,
    cursor_of,
    existing_claim,
    group_of,
    matches,
    may_be_out,
    place_of,
    queue_of,
    ready_steps,
)
from lucius.adapters.ledgers.stored.json_form import micros
from lucius.core.audit import audit
from lucius.core.effects import Event
from lucius.core.errors import LedgerError
from lucius.core.job import UNSUCCESSFUL_JOB, Job
from lucius.ports.keys import ApiKey
from lucius.ports.leases import LeaseRow
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

# The indexes of the memory ledger: entries that are ready, and jobs that are due.


class ReadyPositions:
    """Positions in order, with cheap removal: the dead are skipped, and swept when they are many."""

    def __init__(self) -> None:
        self.entries: dict[int, tuple[str, str]] = {}
        self._positions: list[int] = []
        self._start = 0

    def add(self, position: int, job_id: str, step_id: str) -> None:
        self.entries[position] = (job_id, step_id)
        self._positions.append(position)

    def remove(self, position: int) -> None:
        self.entries.pop(position, None)
        if len(self._positions) > 2 * len(self.entries) + 16:
            self._positions = [p for p in self._positions if p in self.entries]
            self._start = 0
        while (
            self._start < len(self._positions) and self._positions[self._start] not in self.entries
        ):
            self._start += 1

    def first(self, limit: int) -> list[int]:
        live = (p for p in islice(self._positions, self._start, None) if p in self.entries)
        return list(islice(live, limit))


class DueIndex:
    """A heap for each lane; entries that no longer hold are dropped when they come up."""

    def __init__(self) -> None:
        self.moments: dict[str, datetime] = {}
        self._heaps: defaultdict[int, list[tuple[datetime, str]]] = defaultdict(list)

    def set(self, lane: int, job_id: str, due_at: datetime | None) -> None:
        if due_at is None:
            self.moments.pop(job_id, None)
        elif self.moments.get(job_id) != due_at:
            self.moments[job_id] = due_at
            heappush(self._heaps[lane], (due_at, job_id))

    def first(
        self,
        lane: int,
        before: datetime | None,
        limit: int,
        after: tuple[datetime, str] | None = None,
    ) -> list[tuple[datetime, str]]:
        if after is not None:
            return self._after(lane, before, limit, after)
        heap, seen = self._heaps[lane], set[str]()
        found: list[tuple[datetime, str]] = []
        while heap and len(found) < limit and (before is None or heap[0][0] <= before):
            due_at, job_id = heappop(heap)
            if self.moments.get(job_id) == due_at and job_id not in seen:
                seen.add(job_id)
                found.append((due_at, job_id))
        for item in found:
            heappush(heap, item)
        return found

    def _after(
        self, lane: int, before: datetime | None, limit: int, after: tuple[datetime, str]
    ) -> list[tuple[datetime, str]]:
        holding = {item for item in self._heaps[lane] if self.moments.get(item[1]) == item[0]}
        wanted = (i for i in holding if i > after and (before is None or i[0] <= before))
        return sorted(wanted)[:limit]


# API keys in a dictionary: for several runtimes in one process.


class MemoryKeys:
    def __init__(self) -> None:
        self._keys: dict[str, ApiKey] = {}

    async def keys(self) -> Sequence[ApiKey]:
        return list(self._keys.values())

    async def add(self, key: ApiKey) -> None:
        self._keys[key.key_id] = key

    async def revoke(self, key_id: str, at: datetime) -> ApiKey | None:
        key = self._keys.get(key_id)
        if key is not None and key.revoked_at is None:
            key = self._keys[key_id] = replace(key, revoked_at=at.isoformat(timespec="seconds"))
        return key


# Lease rows in a dictionary: for several engines in one process.


class MemoryLeases:
    def __init__(self) -> None:
        self._rows: dict[str, LeaseRow] = {}
        self._stamps = count(1)

    async def rows(self) -> Sequence[LeaseRow]:
        return [row for _, row in sorted(self._rows.items())]

    async def put(self, row: LeaseRow) -> str | None:
        if self._stamp(row.key) != row.etag:
            return None
        etag = str(next(self._stamps))
        self._rows[row.key] = replace(row, etag=etag)
        return etag

    async def put_all(self, rows: Sequence[LeaseRow]) -> Sequence[str | None]:
        return [await self.put(row) for row in rows]

    async def delete(self, row: LeaseRow) -> bool:
        if row.etag is None or self._stamp(row.key) != row.etag:
            return False
        del self._rows[row.key]
        return True

    def _stamp(self, key: str) -> str | None:
        stored = self._rows.get(key)
        return stored.etag if stored is not None else None


ClaimKey = tuple[str, str]


class StoredJob(NamedTuple):
    no: int
    job: Job
    claim: Claim
    ready: dict[int, int]
    """Position by step."""


class MemoryLedger:
    capabilities = LedgerCapabilities(exact_limits=True)

    def __init__(self) -> None:
        self.jobs: Final[dict[str, StoredJob]] = {}
        self.claims: Final[dict[ClaimKey, tuple[Claim, str]]] = {}
        self.history: Final[dict[str, list[Event]]] = {}
        self.counts: Final = InflightCounts()
        self.queues: Final[defaultdict[QueueKey, ReadyPositions]] = defaultdict(ReadyPositions)
        self.held: Final = HeldCounts()
        self.due_index: Final = DueIndex()
        self._shared_records: Final = MemoryLeases()
        self._no = 0
        self._position = 0

    # -- writing -----------------------------------------------------------------------------

    def shared_records(self) -> MemoryLeases:
        return self._shared_records

    async def claimed(self, claim: Claim) -> Taken | None:
        found = self.claims.get((claim.tenant_id, claim.claim_hash))
        if found is None:
            return None
        stored, job_id = found
        record = self.jobs.get(job_id)
        state = record.job.state if record else None
        return existing_claim(claim, HeldClaim(stored.body_hash, stored.keyed, job_id, state))

    async def create(
        self, claim: Claim, job: Job, events: Sequence[Event], limits: Limits = NO_LIMITS
    ) -> CreateOutcome:
        refused = await self.claimed(claim) or self.counts.saturated(group_of(job), limits)
        if refused is not None:
            return refused
        if job.job_id in self.jobs:
            raise LedgerError(f"the ledger cannot store this: job {job.job_id} exists")
        self._no += 1
        self.claims[claim.tenant_id, claim.claim_hash] = (claim, job.job_id)
        self.history[job.job_id] = list(events)
        if not job.terminal:
            self.counts.add(group_of(job), 1)
        self._store(StoredJob(self._no, job, claim, {}))
        return Created()

    async def save(self, job: Job, expected: int, events: Sequence[Event]) -> bool:
        record = self.jobs.get(job.job_id)
        if record is None or record.job.version != expected:
            return False
        if job.terminal and not record.job.terminal:
            self.counts.add(group_of(job), -1)
        self.history[job.job_id].extend(events)
        self._store(record._replace(job=job))
        return True

    async def save_all(self, writes: Sequence[Write], answered: AnswerWrites) -> None:
        await save_each(self, writes, answered)

    def _store(self, record: StoredJob) -> None:
        job = record.job
        self.due_index.set(job.plan.shard, job.job_id, job.due_at)
        self.jobs[job.job_id] = record._replace(ready=self._requeue(record))

    def _requeue(self, record: StoredJob) -> dict[int, int]:
        job, wanted = record.job, ready_steps(record.job)
        for index, position in record.ready.items():
            if index not in wanted:
                self.queues[queue_of(job, index)].remove(position)
                self.held.add(queue_of(job, index), -1)
        ready = {index: record.ready[index] for index in wanted if index in record.ready}
        for index in wanted:
            if index not in ready:
                self._position += 1
                ready[index] = self._position
                step_id = job.plan.steps[index].step_id
                self.queues[queue_of(job, index)].add(self._position, job.job_id, step_id)
                self.held.add(queue_of(job, index), 1)
        return ready

    async def prune(self, before: datetime, limit: int, cursor: str | None = None) -> Pruned:
        found = islice((r for r in self._ended(before) if r.no > int(cursor or 0)), limit)
        page, deleted = list(found), 0
        for each in page:
            record = self.jobs.get(each.job.job_id)
            while record is not None and self._is_free(record.job, before):
                self._delete(record)
                deleted += 1
                record = self.jobs.get(record.job.plan.redrive_of or "")
        return Pruned(deleted, str(page[-1].no) if len(page) == limit else None)

    async def prunable(self, before: datetime) -> int:
        ended = list(self._ended(before))
        going = {r.no for r in ended}
        needed = {r.job.plan.redrive_of for r in self.jobs.values() if r.no not in going}
        for record in sorted(self.jobs.values(), key=lambda r: r.no, reverse=True):
            if record.job.job_id in needed:
                needed.add(record.job.plan.redrive_of)
        return sum(record.job.job_id not in needed for record in ended)

    def _ended(self, before: datetime) -> Iterator[StoredJob]:
        return (r for r in self.jobs.values() if _may_go(r.job, before))

    def _is_free(self, job: Job, before: datetime) -> bool:
        heirs = (r for r in self.jobs.values() if r.job.plan.redrive_of == job.job_id)
        return _may_go(job, before) and next(heirs, None) is None

    def _delete(self, record: StoredJob) -> None:
        job_id, key = record.job.job_id, (record.claim.tenant_id, record.claim.claim_hash)
        if key in self.claims and self.claims[key][1] == job_id:
            del self.claims[key]
        del self.history[job_id], self.jobs[job_id]

    # -- reading -----------------------------------------------------------------------------

    async def load(self, job_id: str) -> Job | None:
        record = self.jobs.get(job_id)
        return record.job if record else None

    async def unreadable(self) -> int:
        return 0

    async def due(
        self,
        before: datetime,
        lanes: Collection[int],
        limit: int,
        after: DueJob | None = None,
    ) -> Sequence[DueJob]:
        start = (after.due_at, after.job_id) if after is not None else None
        index = self.due_index
        found = [item for lane in lanes for item in index.first(lane, before, limit, start)]
        return [
            DueJob(job_id, due_at, may_be_out(self.jobs[job_id].job.state))
            for due_at, job_id in sorted(found)[:limit]
        ]

    async def next_due(self, lanes: Collection[int]) -> datetime | None:
        firsts = (self.due_index.first(lane, None, 1) for lane in lanes)
        return min((first[0][0] for first in firsts if first), default=None)

    async def ready_queues(self, lanes: Collection[int]) -> Sequence[ReadyQueue]:
        return self.held.view(frozenset(lanes))

    async def ready(
        self, queue_name: str, lane: int, tenant_id: str, limit: int
    ) -> Sequence[ReadyEntry]:
        queue = self.queues.get(QueueKey(queue_name, lane, tenant_id))
        if queue is None:
            return []
        return [
            ReadyEntry(position, *queue.entries[position], queue_name, lane, tenant_id)
            for position in queue.first(limit)
        ]

    async def list(self, query: JobQuery) -> JobPage:
        after = place_of(query)
        places = ((_place(record), record.job) for record in self.jobs.values())
        found = [
            (place, job)
            for place, job in places
            if (after is None or place < after) and matches(query, job)
        ]
        found.sort(key=lambda item: item[0], reverse=True)
        page = found[: query.limit]
        more = len(found) > len(page)
        return JobPage([job for _, job in page], cursor_of(query, page[-1][0]) if more else None)

    async def count(self, query: JobQuery) -> int:
        return sum(matches(query, record.job) for record in self.jobs.values())

    async def events(self, job_id: str, after: int, limit: int) -> Sequence[Event]:
        history = self.history.get(job_id, [])
        start = bisect_right(history, after, key=lambda event: event.seq)
        return history[start : start + limit]

    async def inflight(self) -> Inflight:
        return self.counts.view()

    async def check(self) -> None:
        """It answers for as long as the process does."""

    async def close(self) -> None:
        """Nothing is held open."""

    # -- self-examination --------------------------------------------------------------------

    async def verify(self) -> Sequence[Drift]:
        drifts = [drift for record in self.jobs.values() for drift in self._examine(record)]
        for (tenant_id, claim_hash), (_, job_id) in self.claims.items():
            if job_id not in self.jobs:
                subject = f"{tenant_id}/{claim_hash}"
                drifts.append(Drift("claim_without_job", subject, f"it names job {job_id}"))
        return [*drifts, *self._examine_queues(), *self._examine_counts()]

    def _examine(self, record: StoredJob) -> Iterator[Drift]:
        job = record.job
        yield from (Drift(kind, job.job_id, detail) for kind, detail in audit(job))
        if [event.seq for event in self.history[job.job_id]] != [*range(1, job.seq + 1)]:
            yield Drift("event_gap", job.job_id, f"events do not run from 1 to {job.seq}")
        if self.due_index.moments.get(job.job_id) != job.due_at:
            yield Drift("column_drift", job.job_id, "the due index has another moment")
        if sorted(record.ready) != sorted(ready_steps(job)):
            yield Drift("ready_missing", job.job_id, "its ready entries are not queued")
        held = self.claims.get((record.claim.tenant_id, record.claim.claim_hash))
        replaceable = not record.claim.keyed and job.state in UNSUCCESSFUL_JOB
        if not replaceable and (held is None or held[1] != job.job_id):
            yield Drift("job_without_claim", job.job_id, "a duplicate would not find it")

    def _examine_queues(self) -> Iterator[Drift]:
        for key, queue in self.queues.items():
            for position, (job_id, _) in queue.entries.items():
                record = self.jobs.get(job_id)
                if record is None or position not in record.ready.values():
                    kind = "ready_without_job" if record is None else "ready_without_step"
                    yield Drift(kind, job_id, f"position {position} of {key.queue_name}")

    def _examine_counts(self) -> Iterator[Drift]:
        recount = InflightCounts()
        for record in self.jobs.values():
            if not record.job.terminal:
                recount.add(group_of(record.job), 1)
        if recount != self.counts:
            detail = f"counted {recount.total} live jobs, recorded {self.counts.total}"
            yield Drift("inflight", "inflight", detail)


def _may_go(job: Job, before: datetime) -> bool:
    old = job.completed_at is not None and job.completed_at < before
    return old and not job.owed and not job.in_dlq


def _place(record: StoredJob) -> PageEnd:
    return PageEnd(micros(record.job.plan.accepted_at), record.no)


async def open_ledger(given: Mapping[str, str], *, readonly: bool = False) -> MemoryLedger:
    """There is nothing to set, and nothing to read from an earlier process."""
    return MemoryLedger()
