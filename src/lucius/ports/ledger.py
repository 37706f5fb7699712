"""The ledger port: the durable memory of jobs. It stores decisions; it never makes one."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import field
from datetime import datetime
from typing import Protocol, runtime_checkable

from lucius.core.effects import Event
from lucius.core.job import Job, JobState
from lucius.core.plan import Mode
from lucius.core.record import record
from lucius.ports.keys import KeyStore
from lucius.ports.leases import LeaseStore


@record
class Claim:
    """The right to be the one job of a request. `claim_hash` is the decision point, per tenant.

    It is the hash of the client's key where there is one (`keyed`), else of the canonical body.
    """

    tenant_id: str
    claim_hash: str
    body_hash: str
    keyed: bool


@record
class Limits:
    """How many live jobs there may be; none means no limit."""

    tenant: int | None = None
    total: int | None = None
    lane: int | None = None
    """Per lane and mode."""
    burst_lane: int | None = None
    """Per lane in mode BURST; none: as `lane`."""

    def of_lane(self, mode: str) -> int | None:
        return self.burst_lane if mode == Mode.BURST and self.burst_lane is not None else self.lane


NO_LIMITS = Limits()


@record
class LedgerCapabilities:
    """What a ledger can do, for those who must know. Nobody asks for its name."""

    exact_limits: bool
    """Limits in all and by lane hold exactly. Otherwise they may be exceeded by what other processes
    admit between two readings of the counts. The limit of a tenant is exact everywhere."""


@record
class Created:
    """The job is durable under its own id."""


@record
class Duplicate:
    """The claim is held by this job; nothing was written."""

    job_id: str


@record
class KeyReused:
    """The same client key came with another body; nothing was written."""

    job_id: str


@record
class LimitReached:
    """A limit is reached; nothing was written, no claim is held. `scope`: tenant, total or lane."""

    scope: str


@record
class Unfinished:
    """The same request has claimed this id, and its job was never written.

    Whoever asks completes it: it plans the job under that id, as accepted at that moment, and calls
    `create` again. So whoever comes first writes the job that is listed already. Only a ledger that cannot
    write a claim and a job in one transaction answers so.
    """

    job_id: str
    accepted_at: datetime


Taken = Duplicate | KeyReused | Unfinished
CreateOutcome = Created | Taken | LimitReached


@record
class JobCreate:
    """One job of a batch that is to be created. See `Ledger.create`."""

    claim: Claim
    job: Job
    events: Sequence[Event]
    limits: Limits = NO_LIMITS


@record
class JobSave:
    """One job of a batch that is to be saved. See `Ledger.save`."""

    job: Job
    expected: int
    events: Sequence[Event]


Write = JobCreate | JobSave
WriteOutcome = CreateOutcome | bool | Exception
"""What `create` or `save` would have returned or raised."""
AnswerWrites = Callable[[Sequence[tuple[int, WriteOutcome]]], None]
"""Called with places in the batch, and what became of the writes there."""


@record
class DueJob:
    """`out`: a step of it may be with a service. False is certain."""

    job_id: str
    due_at: datetime
    out: bool = True


@record
class ReadyEntry:
    """A held entry that waits for the window. `position` orders the entries of one tenant."""

    position: int
    job_id: str
    step_id: str
    queue_name: str
    lane: int
    tenant_id: str


@record
class ReadyQueue:
    """One tenant's held entries in one queue on one lane. See `Plan.queue_name`."""

    queue_name: str
    lane: int
    tenant_id: str
    held: int


@record
class JobQuery:
    """Newest first. `cursor` is what a page answered; it holds for the same filters only."""

    tenant_ids: Collection[str] | None = None
    states: Collection[JobState] | None = None
    request_type: str | None = None
    created_from: datetime | None = None
    created_to: datetime | None = None
    dlq: bool = False
    codes: Collection[str] | None = None
    """Of the failures of its steps that have not succeeded since."""
    steps: Collection[str] | None = None
    """Steps that failed so, or that are under way."""
    services: Collection[str] | None = None
    """Services of such steps."""
    group: str | None = None
    """The fingerprint of such a failure: see `core/text.py`."""
    limit: int = 50
    cursor: str | None = None


def looks_inside(query: JobQuery) -> bool:
    """Whether it asks for what no index has: each job that matches otherwise is read, page by page."""
    inside = (query.codes, query.steps, query.services, query.group)
    return any(each is not None for each in inside)


@record
class JobPage:
    jobs: Sequence[Job]
    next_cursor: str | None = None


@record
class Inflight:
    """Live jobs, as the limits count them."""

    total: int = 0
    tenants: dict[str, int] = field(default_factory=dict)
    lanes: dict[tuple[int, str], int] = field(default_factory=dict)
    """By lane and mode."""


@record
class Pruned:
    """One page of a sweep. `cursor` is where the next one begins; none: that was the last."""

    deleted: int
    cursor: str | None = None


@record
class Drift:
    """Something in the stored data that contradicts itself."""

    kind: str
    subject: str
    detail: str


@runtime_checkable
class Dated(Protocol):
    """A ledger whose storage has a clock of its own, which all processes can see."""

    def dated(self) -> tuple[datetime, float] | None:
        """The date of its last answer, and when that came by `time.monotonic`."""


@runtime_checkable
class Sweeps(Protocol):
    """A ledger whose rows are not all written together: claims may be left without their jobs."""

    async def sweep(self, now: datetime) -> int:
        """Remove claims that are too old for anyone to complete, and repair jobs. How many claims."""

    async def repair(self, job_id: str) -> bool:
        """Write the rows again that bring this job up and queue its steps. False: none is missing."""


@runtime_checkable
class Shared(Protocol):
    """A ledger that several processes have open at the same time."""

    def leases(self) -> LeaseStore:
        """The rows by which they own lanes."""

    def keys(self) -> KeyStore:
        """The API keys that all of them know."""


class Ledger(Protocol):
    def shared_records(self) -> LeaseStore:
        """Small rows beside the jobs, for all processes, kept over a restart.

        Which services are paused, who was seen, what failed, which redrives are planned.
        """

    @property
    def capabilities(self) -> LedgerCapabilities: ...

    async def claimed(self, claim: Claim) -> Taken | None:
        """Look a claim up without taking it.

        A claim derived from the body does not hold against a job that ended FAILED_FINAL or
        CANCELLED: the answer is then None, and `create` replaces it.
        """

    async def create(
        self, claim: Claim, job: Job, events: Sequence[Event], limits: Limits = NO_LIMITS
    ) -> CreateOutcome:
        """Claim and create, in the order look up, limits, claim, rows.

        All or nothing; or else the claim is kept for whoever comes next (`Unfinished`). A claim that
        holds this very job's id is no obstacle: its rows are written if they are not there.
        LedgerError if the job's id is taken: ids are never used twice.
        """

    async def load(self, job_id: str) -> Job | None:
        """The whole aggregate as last committed.

        LedgerRowUnreadableError: what is stored of this one job cannot be read. It is named in the
        log, once, and from then on left out of `due`, `next_due`, `ready` and `list`.
        """

    async def unreadable(self) -> int:
        """How many jobs were met since this process began that cannot be read."""

    async def save(self, job: Job, expected: int, events: Sequence[Event]) -> bool:
        """Replace the aggregate if its stored version is `expected`, and append the events.

        Returns once it is durable. False: the version has moved on (or the job is gone), and
        nothing was written. Raises LedgerUnavailableError if nobody knows.
        """

    async def save_all(self, writes: Sequence[Write], answered: AnswerWrites) -> None:
        """Create and save jobs that have nothing to do with one another, each as if it came alone.

        A job is in a batch once. `answered` is called with every write exactly once: with many together
        where one commit holds them, and as soon as it is durable. A write that fails fails alone. Returns
        when all are answered.
        """

    async def due(
        self,
        before: datetime,
        lanes: Collection[int],
        limit: int,
        after: DueJob | None = None,
    ) -> Sequence[DueJob]:
        """Jobs whose `due_at` is at or before that moment, by `due_at` and then id.

        `after`: the last one of the page before.
        """

    async def next_due(self, lanes: Collection[int]) -> datetime | None:
        """The earliest `due_at` there is."""

    async def ready_queues(self, lanes: Collection[int]) -> Sequence[ReadyQueue]:
        """Every queue that holds at least one ready entry."""

    async def ready(
        self, queue_name: str, lane: int, tenant_id: str, limit: int
    ) -> Sequence[ReadyEntry]:
        """The first ready entries of one queue, in their order."""

    async def list(self, query: JobQuery) -> JobPage:
        """One page. It may be short, or empty, and still have a cursor: what is scanned is bounded.

        RequestError INVALID_CURSOR for a cursor that was made for other filters.
        """

    async def count(self, query: JobQuery) -> int:
        """How many jobs match, however many there are; other tasks go on meanwhile.

        `limit` and `cursor` do not count. A job that a newer version wrote, or that cannot be
        read, matches here by its indexes, although `list` leaves it out.
        """

    async def events(self, job_id: str, after: int, limit: int) -> Sequence[Event]:
        """Events with a `seq` greater than `after`, in order, without gaps."""

    async def inflight(self) -> Inflight: ...

    async def prune(self, before: datetime, limit: int, cursor: str | None = None) -> Pruned:
        """Look at up to `limit` jobs that were completed before, and delete those that may go.

        The claim goes first. What owes something stays, what is in the dead-letter view stays, and
        a job that was redriven stays for as long as the one that took over from it, whether or not
        the link to that is written yet: they share a workspace. Once that one goes, so does it.
        """

    async def prunable(self, before: datetime) -> int:
        """How many jobs a sweep with `prune`, from no cursor until there is none, would delete."""

    async def check(self) -> None:
        """Return if it answers and its last write was taken; else raise a LedgerError that says why.

        After a write that failed, this tries one of its own, now and then, so that it notices by
        itself when writes are taken again.
        """

    async def verify(self) -> Sequence[Drift]:
        """Read everything and report what contradicts itself."""

    async def close(self) -> None: ...


async def save_each(ledger: Ledger, writes: Sequence[Write], answered: AnswerWrites) -> None:
    """`save_all` of a ledger that has no better way: job by job, concurrently."""

    async def save(place: int, write: Write) -> None:
        outcome: WriteOutcome
        try:
            if isinstance(write, JobSave):
                outcome = await ledger.save(write.job, write.expected, write.events)
            else:
                outcome = await ledger.create(write.claim, write.job, write.events, write.limits)
        except Exception as error:
            outcome = error
        answered([(place, outcome)])

    if len(writes) == 1:
        await save(0, writes[0])
    else:
        await asyncio.gather(*(save(place, write) for place, write in enumerate(writes)))
