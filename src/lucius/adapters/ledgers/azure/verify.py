"""`verify`: reads every row and reports what contradicts itself. It changes nothing.

The rows of one moment cannot be read together here, so what was written meanwhile may be reported, once.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from lucius.adapters.ledgers.azure import names
from lucius.adapters.ledgers.azure.copies import behind, entry_key, pending_events
from lucius.adapters.ledgers.azure.heads import Layout, Stored, stored_of
from lucius.adapters.ledgers.azure.store import PARTITION, ROW, DamagedRows, Row
from lucius.adapters.ledgers.azure.tenants import (
    COUNT,
    ENDED,
    HEIR,
    LIVE,
    Cells,
    Tenants,
    cells_of,
    live_cells,
)
from lucius.adapters.ledgers.azure.wakeups import SHARDS, LaneTable, due_of, entry_of, ready_rows
from lucius.adapters.ledgers.rules import group_of, ready_steps
from lucius.adapters.ledgers.stored.job_codec import decode_events
from lucius.adapters.ledgers.stored.json_form import maybe_micros
from lucius.core.audit import audit
from lucius.core.effects import Event
from lucius.core.errors import LedgerError, LedgerTooNewError
from lucius.core.job import UNSUCCESSFUL_JOB, Job, entry_status
from lucius.ports.ledger import Drift

# What operators read, held against the job: its columns, its history, its outbox. For `verify`.

PENDING: Final = "PENDING"
LAG: Final = timedelta(minutes=5)
"""How long a row may be left. Only a process that is gone leaves one for longer."""


def copies_agree(
    stored: Stored, rows: Mapping[str, Row], now: datetime, *, woken: bool
) -> Iterator[Drift]:
    """Where they lie in tables of their own.

    Copies may be behind as long as something will bring the job up. Then its row has what they lack.
    """
    job, head = stored.job, rows.get("HEAD")
    if head is None:
        detail = "no row of Steps says where it is, so that its id alone does not find it"
        yield Drift("projection_lag", job.job_id, detail)
    elif behind(head, job.version, stored.head.save_id):
        if woken or now - job.updated_at < LAG:
            yield from events_agree(job, rows, pending_events(rows["JOB"]))
            return
        yield Drift("projection_lag", job.job_id, _lags(job, head))
    yield from steps_agree(job, rows)
    yield from events_agree(job, rows)
    yield from outbox_agrees(job, rows)


def _lags(job: Job, head: Row) -> str:
    return (
        f"Steps, Outbox and Events have version {head['version']}, the job has version {job.version}"
        f" since {job.updated_at.isoformat()}. Whoever reads it finishes them: lucius job show"
        f" {job.job_id}"
    )


def steps_agree(job: Job, rows: Mapping[str, Row]) -> Iterator[Drift]:
    for index, (planned, step) in enumerate(zip(job.plan.steps, job.steps, strict=True)):
        row = rows.get(names.key("STEP", f"{index:03}", planned.step_id), {})
        if row.get("state") != step.state.value:
            yield column_drift(
                job, f"state of step {planned.step_id}", row.get("state"), step.state
            )


def events_agree(
    job: Job, rows: Mapping[str, Row], pending: Sequence[Event] = ()
) -> Iterator[Drift]:
    seqs = [
        event.seq
        for key in sorted(rows)
        if key.startswith("EVENT|")
        for event in decode_events(rows[key]["payload"].encode())
    ]
    seqs += [event.seq for event in pending if event.seq not in set(seqs)]
    if sorted(seqs) != [*range(1, job.seq + 1)]:
        yield Drift("event_gap", job.job_id, f"events do not run from 1 to {job.seq}")


def outbox_agrees(job: Job, rows: Mapping[str, Row]) -> Iterator[Drift]:
    """The entries that the job has say what it says; none of the others waits."""
    wanted = {
        f"OUTBOX|{entry_key(job, index, step.entry)}": entry_status(step.entry.state)
        for index, step in enumerate(job.steps)
        if step.entry is not None and step.entry.lease_id
    }
    for key in wanted | dict.fromkeys(key for key in rows if key.startswith("OUTBOX|")):
        stored, said = rows.get(key, {}).get("state"), wanted.get(key)
        if stored != said and (said or stored == PENDING):
            yield column_drift(job, f"state of {key}", stored, said)


def column_drift(job: Job, name: str, stored: object, said: object) -> Drift:
    return Drift("column_drift", job.job_id, f"column {name} has {stored}, the job {said}")


MOST_DRIFTS: Final = 10_000


@dataclass
class JobIndex:
    """What lanes and tenants say about the jobs."""

    wakeups: set[str] = field(default_factory=set)
    ready: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Ready rows by job."""
    claims: dict[tuple[str, str], str] = field(default_factory=dict)
    listed: dict[str, Row] = field(default_factory=dict)
    twice: list[Row] = field(default_factory=list)
    """Of jobs that were listed before."""
    heirs: set[str] = field(default_factory=set)
    recorded: dict[str, Cells] = field(default_factory=dict)
    jobs: set[str] = field(default_factory=set)
    live: dict[str, Cells] = field(default_factory=lambda: defaultdict(Counter))


class Examination:
    def __init__(self, rows: Layout, tenants: Tenants, lanes: LaneTable, now: datetime) -> None:
        self._rows = rows
        self._tenants = tenants
        self._lanes = lanes
        self._now = now
        self._damaged = DamagedRows()

    async def drifts(self) -> list[Drift]:
        index = await self._indexed()
        damaged = {**self._lanes.damaged.named, **self._damaged.named}
        found = [Drift("row_unreadable", "/".join(place), why) for place, why in damaged.items()]
        async for job_id, rows in self._rows.walk():
            found += self._of_job(index, job_id, rows)
            if len(found) >= MOST_DRIFTS:
                found = found[:MOST_DRIFTS]
                return [*found, Drift("more", "ledger", f"only {MOST_DRIFTS} are listed")]
        return [*found, *_lost(index)]

    async def _indexed(self) -> JobIndex:
        index = JobIndex()
        for lane in SHARDS:
            async for wakeup in self._lanes.wakeups(lane):
                index.wakeups.add(wakeup.row)
            async for row in self._lanes.ready(lane):
                index.ready[entry_of(lane, row[ROW]).job_id].append(row[ROW])
        for tenant_id in await self._tenants.all():
            await self._add_tenant(index, tenant_id)
        return index

    async def _add_tenant(self, index: JobIndex, tenant_id: str) -> None:
        counters: list[Row] = []
        async for row in self._tenants.rows(tenant_id):
            kind, named = names.parts_of(row[ROW])[0], self._damaged.read(row, _named)
            if named is None:
                continue
            if kind == COUNT:
                counters.append(row)
            elif kind in (LIVE, ENDED):
                if named in index.listed:
                    index.twice.append(row)
                index.listed[named] = row
            elif kind == HEIR:
                index.heirs.add(named)
            else:
                index.claims[tenant_id, names.unescaped(row[ROW])] = named
        index.recorded[tenant_id] = live_cells(counters)

    def _of_job(self, index: JobIndex, job_id: str, rows: Sequence[Row]) -> list[Drift]:
        """Whatever its rows say, the other jobs are examined too."""
        try:
            return list(self._job(index, job_id, rows))
        except (LookupError, ValueError, TypeError, AttributeError, LedgerError) as error:
            return [Drift("unreadable", job_id, repr(error))]

    def _job(self, index: JobIndex, job_id: str, rows: Sequence[Row]) -> Iterator[Drift]:
        by_key = {row[ROW]: row for row in rows}
        head = by_key.get("JOB")
        if head is None:
            yield Drift("rows_without_job", job_id, "its rows are there without the job's own")
            return
        if head.get("tombstone"):
            return
        index.jobs.add(job_id)
        try:
            stored = stored_of(job_id, head, by_key.get("JOB|PLAN"))
        except LedgerTooNewError:
            index.ready.pop(job_id, None)
            return
        except LedgerError as error:
            index.ready.pop(job_id, None)
            _count(index, index.listed.get(job_id))
            yield Drift("unreadable", job_id, str(error))
            return
        job = stored.job
        if not job.terminal:
            cell = group_of(job)
            index.live[cell.tenant_id][cell.lane, cell.mode] += 1
        yield from (Drift(kind, job_id, detail) for kind, detail in audit(job))
        yield from _columns(job, head)
        woken = stored.head.wakeup in index.wakeups
        yield from self._rows.drifts(stored, by_key, woken=woken)
        yield from _woken(index, stored)
        yield from _ready(index, stored, self._now)
        yield from _claimed(index, stored)
        yield from _listing(index, job)


def _named(row: Row) -> str:
    """The job that a tenant's row names. Nothing: it is a counter, which can be read."""
    if names.parts_of(row[ROW])[0] == COUNT:
        cells_of(row)
        return ""
    return str(row["job_id"])


def _count(index: JobIndex, row: Row | None) -> None:
    """A job that cannot be read counts as its tenant's list says."""
    if row is not None and names.parts_of(row[ROW])[0] == LIVE:
        index.live[names.unescaped(row[PARTITION])][row["lane"], row["mode"]] += 1


def _columns(job: Job, head: Row) -> Iterator[Drift]:
    wanted = {
        "state": (head.get("state"), job.state.value),
        "due": (head.get("due"), maybe_micros(job.due_at)),
        "completed": (head.get("completed"), maybe_micros(job.completed_at)),
    }
    for name, (stored, said) in wanted.items():
        if stored != said:
            yield column_drift(job, name, stored, said)


def _woken(index: JobIndex, stored: Stored) -> Iterator[Drift]:
    job, wakeup = stored.job, stored.head.wakeup
    if job.due_at is None:
        return
    if wakeup not in index.wakeups:
        yield Drift("missing_due_at", job.job_id, "no row of its lane will bring it up")
    elif due_of(wakeup) > (maybe_micros(job.due_at) or 0):
        yield Drift("column_drift", job.job_id, "the row of its lane comes up too late")


def _ready(index: JobIndex, stored: Stored, now: datetime) -> Iterator[Drift]:
    """A process that died may have left a ready row. Whoever owns the lane finds and drops it."""
    job = stored.job
    rows = set(index.ready.pop(job.job_id, ()))
    wanted = set(ready_rows(job, dict(stored.head.ready or {})))
    steps = {job.plan.steps[at].step_id for at in ready_steps(job)}
    if wanted - rows or steps != set(stored.head.ready or {}):
        yield Drift("ready_missing", job.job_id, "a step is ready and not queued")
    for row in rows - wanted if now - job.updated_at >= LAG else ():
        yield Drift("ready_without_step", job.job_id, f"the queue has {row}")


def _claimed(index: JobIndex, stored: Stored) -> Iterator[Drift]:
    job, head = stored.job, stored.head
    replaceable = not head.keyed and job.state in UNSUCCESSFUL_JOB
    if index.claims.get((job.tenant_id, head.claim_hash)) != job.job_id and not replaceable:
        yield Drift("job_without_claim", job.job_id, "a duplicate would not find it")


def _listing(index: JobIndex, job: Job) -> Iterator[Drift]:
    row = index.listed.get(job.job_id)
    kind = names.parts_of(row[ROW])[0] if row is not None else None
    if kind != (ENDED if job.terminal else LIVE):
        yield Drift("list_drift", job.job_id, f"it is {job.state.value}, and listed as {kind}")
    elif row is not None and job.terminal and (row["state"], row["dlq"]) != (job.state, job.in_dlq):
        yield Drift("list_drift", job.job_id, f"it is listed as {row['state']}, dlq {row['dlq']}")


def _lost(index: JobIndex) -> Iterator[Drift]:
    for (tenant_id, claim_hash), job_id in index.claims.items():
        if job_id not in index.jobs:
            yield Drift("claim_without_job", f"{tenant_id}/{claim_hash}", f"it names job {job_id}")
    for row in index.twice:
        yield Drift("list_drift", row["job_id"], f"it is listed twice, also as {row[ROW]}")
    for job_id in (set(index.listed) | index.heirs) - index.jobs:
        yield Drift("list_without_job", job_id, "its tenant's rows name it, and it is not there")
    for job_id, rows in index.ready.items():
        for key in rows:
            yield Drift("ready_without_job", job_id, f"the queue has {key}")
    for tenant_id, recorded in index.recorded.items():
        live = index.live[tenant_id]
        if {**recorded, **live} and any(recorded[c] != live[c] for c in {**recorded, **live}):
            detail = f"counted {live.total()} live jobs, recorded {recorded.total()}"
            yield Drift("inflight", tenant_id, detail)
