"""The copies of a job in Steps and Outbox as rows, and what a process knows about them."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

import orjson

from lucius.adapters.ledgers.azure import names
from lucius.adapters.ledgers.azure.heads import entry_columns, step_columns, step_plan_columns
from lucius.adapters.ledgers.azure.store import ETAG, ROW, Act, Change, Row, chunked, joined, row_of
from lucius.adapters.ledgers.stored.job_codec import decode_events, encode_events
from lucius.adapters.ledgers.stored.json_form import instant, maybe_micros, micros
from lucius.core.effects import Event
from lucius.core.errors import LedgerError, LedgerRowUnreadableError
from lucius.core.job import Entry, EntryState, Job, Step
from lucius.core.record import record
from lucius.core.wire import message_id

# What a job's copies still lack, beside what the job itself says. The job's row in Jobs keeps it.

Entries = tuple[tuple[int, Entry], ...]
"""Outbox entries with the index of their step."""

ROOM: Final = 24_000
"""Bytes of events that a row carries from one save to the next. What is more is copied first."""
FEW: Final = 8
"""Events that need no weighing."""
MOST_GONE: Final = 40
"""Entries that a row carries likewise: with those that a job has, they fit into one transaction."""


@record
class Pending:
    events: tuple[Event, ...] = ()
    gone: Entries = ()
    """Entries that the job has no more, as they were last."""

    @property
    def heavy(self) -> bool:
        """Too much to be carried on."""
        if len(self.gone) > MOST_GONE:
            return True
        return len(self.events) > FEW and len(encode_events(self.events)) > ROOM

    def after(self, job: Job, before: Sequence[Step | None], events: Sequence[Event]) -> "Pending":
        """With what a save adds."""
        gone = {_name(each): each for each in (*self.gone, *_left(job, before))}
        return Pending((*self.events, *events), tuple(gone.values()))

    def without(self, copied: "Pending") -> "Pending":
        """What came after that was copied."""
        seqs, names = {e.seq for e in copied.events}, {_name(each) for each in copied.gone}
        return Pending(
            tuple(event for event in self.events if event.seq not in seqs),
            tuple(each for each in self.gone if _name(each) not in names),
        )

    def columns(self) -> dict[str, Any]:
        gone = [_encoded(*each) for each in self.gone]
        kept = chunked("gone", orjson.dumps(gone)) if gone else {}
        return {**kept, **chunked("pending", encode_events(self.events))}


NOTHING: Final = Pending()


def pending_of(job_id: str, row: Row) -> Pending:
    """LedgerRowUnreadableError: nobody can finish its copies."""
    try:
        return Pending(tuple(pending_events(row)), _gone(row))
    except (LedgerError, ValueError, TypeError) as error:
        tenant_id = row.get("tenant_id")
        raise LedgerRowUnreadableError(job_id, str(error), tenant_id=tenant_id) from error


def pending_events(row: Row) -> list[Event]:
    return decode_events(joined("pending", row)) if "pending" in row else []


def current(job: Job) -> Entries:
    """The entries that it has, from their release on."""
    steps = enumerate(job.steps)
    return tuple((at, step.entry) for at, step in steps if step.entry and step.entry.lease_id)


def _left(job: Job, before: Sequence[Step | None]) -> Iterable[tuple[int, Entry]]:
    """One that is withdrawn before it is sent ends there."""
    for index, (step, old) in enumerate(zip(job.steps, before, strict=True)):
        was = old.entry if old is not None else None
        if was is None or not was.lease_id:
            continue
        if step.entry is None or step.entry.lease_id != was.lease_id:
            unsent = was.state is EntryState.RELEASED
            yield index, replace(was, state=EntryState.FAILED_FINAL) if unsent else was


def _name(each: tuple[int, Entry]) -> tuple[int, int, str | None]:
    index, entry = each
    return index, entry.attempt_no, entry.lease_id


def _encoded(index: int, entry: Entry) -> list[Any]:
    times = micros(entry.created_at), maybe_micros(entry.sent_at)
    return [index, entry.attempt_no, entry.lease_id, entry.state.value, *times]


def _gone(row: Row) -> Entries:
    return tuple(
        (
            index,
            Entry(
                EntryState(state),
                attempt_no,
                instant(created),
                lease_id,
                sent_at=instant(sent) if sent is not None else None,
            ),
        )
        for index, attempt_no, lease_id, state, created, sent in orjson.loads(
            joined("gone", row) or b"[]"
        )
    )


HEAD: Final = "JOB"
"""The row that heads a job's steps: whose it is, in which partition of Jobs, and what has been copied."""


@dataclass
class Trace:
    """What this process knows about where a job is, and about its copies."""

    bucket: str
    """The job's partition in Jobs and Outbox."""
    head: str | None = None
    """ETag of the row that heads its steps."""
    copied: str = ""
    """The save whose id the head had, when it was last seen."""
    copied_version: int = 0
    """The version that the head had then."""
    drafted: bool = False
    """Whether the rows of its steps are there, with what never changes."""
    etag: str = ""
    """Of the job's row, as it was last seen here."""
    pending: Pending = NOTHING
    """What the copies lack at that ETag."""
    save_id: str = ""
    """Of the save that made that row."""
    version: int = 0
    ended: bool = False
    """Whether the job was terminal then."""
    entries: dict[str, tuple[str | None, int]] = field(default_factory=dict)
    """ETags of its rows in Outbox, each with the version that it is of."""

    def see(self, head: Row) -> None:
        self.copied_version = int(head["version"])
        self.head, self.copied = head[ETAG], head.get("save_id", "")
        self.drafted = bool(self.copied_version or head.get("drafted"))

    def saw(self, copy: "Copy", etag: str) -> None:
        """The job's row. One that was read before a later save landed says nothing new."""
        if copy.job.version >= self.version:
            self.etag, self.save_id, self.version = etag, copy.save_id, copy.job.version
            self.pending, self.ended = copy.pending, copy.job.terminal

    @property
    def whole(self) -> bool:
        """Whether the last save that was seen here has been copied."""
        return self.copied == self.save_id


@record
class Copy:
    """What is to be copied: a job as one save has left it."""

    job: Job
    save_id: str
    pending: Pending
    trace: Trace


def behind(head: Row, version: int, save_id: str) -> bool:
    """Whether that save is not copied yet."""
    return head["version"] <= version and head.get("save_id") != save_id


def entry_key(job: Job, index: int, entry: Entry) -> str:
    """The id of its directive on the bus."""
    step_id, lease_id = job.plan.steps[index].step_id, entry.lease_id or ""
    return names.key(message_id(job.job_id, step_id, entry.attempt_no, lease_id, "DIRECTIVE"))


def entry_range(job_id: str) -> tuple[str, str]:
    """The keys of all entries of a job. A semicolon sorts right after a colon."""
    return names.key(job_id) + ":", names.key(job_id) + ";"


def step_key(job: Job, index: int) -> str:
    return names.key(f"{index:03}", job.plan.steps[index].step_id)


def step_name(key: str) -> str:
    return "HEAD" if key == HEAD else f"STEP|{key}"


def head_columns(job_id: str, tenant_id: str, bucket: str) -> dict[str, Any]:
    return {"job_id": job_id, "tenant_id": tenant_id, "tenant_bucket": bucket, "version": 0}


def head_row(copy: Copy) -> Row:
    job = copy.job
    said = {"version": job.version, "save_id": copy.save_id}
    columns = {**head_columns(job.job_id, job.tenant_id, copy.trace.bucket), **said}
    return row_of(names.key(job.job_id), HEAD, columns)


def moving_steps(job: Job) -> Iterator[Change]:
    partition = names.key(job.job_id)
    for index in range(len(job.steps)):
        row = row_of(partition, step_key(job, index), step_columns(job, index))
        yield Change(Act.MERGE, row)


def whole_steps(job: Job) -> Iterator[Change]:
    """With what never changes."""
    partition, payloads = names.key(job.job_id), job.plan.payloads()
    for index in range(len(job.steps)):
        columns = {**step_plan_columns(job.plan, index, payloads), **step_columns(job, index)}
        yield Change(Act.UPSERT, row_of(partition, step_key(job, index), columns))


def entry_rows(copy: Copy) -> Iterator[Row]:
    job, bucket = copy.job, copy.trace.bucket
    for index, entry in (*current(job), *copy.pending.gone):
        yield row_of(bucket, entry_key(job, index, entry), entry_columns(job, index, entry))


def guarded(row: Row, trace: Trace) -> Change:
    etag, _ = trace.entries.get(row[ROW], (None, 0))
    return Change(Act.INSERT if etag is None else Act.MERGE, row, etag)


# Jobs whose copies are behind, as far as this process knows, and when each of them is to be copied.

LAG: Final = timedelta(seconds=30)
AT_ONCE: Final = 256
"""Jobs that are copied together."""
CROWD: Final = 1_000
"""Jobs that wait. The oldest of more than these are copied before their time."""
MOST: Final = 2_000
"""Where nobody copies, as in a process that owns no lane, older ones are forgotten: their owner has them."""


@record
class Behind:
    since: datetime
    copy: Copy | None
    """What this process has saved last; none: the job is read when its time comes."""

    @property
    def ended(self) -> bool:
        return self.copy is not None and self.copy.job.terminal


class Late:
    def __init__(self, now: Callable[[], datetime], lag: timedelta) -> None:
        self._now = now
        self.lag: Final = lag
        self._jobs: OrderedDict[str, Behind] = OrderedDict()

    def note(self, job_id: str, copy: Copy | None) -> None:
        """Its time runs from the first save that was not copied. What is known about it stays."""
        known = self._jobs.get(job_id)
        since = known.since if known is not None else self._now()
        self._jobs[job_id] = Behind(since, copy or (known.copy if known is not None else None))
        if len(self._jobs) > MOST:
            self._jobs.popitem(last=False)

    def copied(self, copy: Copy) -> None:
        """As far as that save."""
        known = self._jobs.get(copy.job.job_id)
        if known is not None and known.copy is not None:
            if known.copy.job.version <= copy.job.version:
                del self._jobs[copy.job.job_id]

    def taken(self, *, all_own: bool) -> list[tuple[str, Copy | None]]:
        """Those whose time has come; or all that were saved here. They are waiting no more."""
        if all_own:
            found = [each for each in self._jobs.items() if each[1].copy is not None]
        else:
            found = self._ripe()[:AT_ONCE]
        for job_id, _ in found:
            del self._jobs[job_id]
        return [(job_id, behind.copy) for job_id, behind in found]

    def _ripe(self) -> list[tuple[str, Behind]]:
        """With the first whose time has come go all that have ended: they share its requests."""
        before, crowd = self._now() - self.lag, len(self._jobs) - CROWD
        jobs = list(self._jobs.items())
        if not any(no < crowd or behind.since <= before for no, (_, behind) in enumerate(jobs)):
            return []
        return [
            (job_id, behind)
            for no, (job_id, behind) in enumerate(jobs)
            if no < crowd or behind.since <= before or behind.ended
        ]
