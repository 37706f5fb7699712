"""The copies of a job in Steps and Outbox as rows, and what a process knows about them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from lucius.core.job import Entry, Job
from lucius.core.record import record
from lucius.core.wire import message_id
from lucius.ledgers.azure import names
from lucius.ledgers.azure.columns import entry_columns, step_columns, step_plan_columns
from lucius.ledgers.azure.pending import NOTHING, Pending, current
from lucius.ledgers.azure.store import ETAG, ROW, Act, Change, Row, row_of

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
