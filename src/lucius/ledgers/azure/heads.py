"""The head of a stored job: what the ledger keeps about it beside the job itself, in columns of its row."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final

import orjson

from lucius.core.errors import LedgerError, LedgerRowUnreadableError, LedgerTooNewError
from lucius.core.job import Job
from lucius.core.record import record
from lucius.ledgers.azure.columns import JOB_COLUMNS, job_columns
from lucius.ledgers.azure.store import ETAG, PARTITION, ROW, Row, chunked, joined
from lucius.ledgers.rules import PageEnd
from lucius.ledgers.stored.job_codec import SCHEMA, decode_job, encode_job, too_new
from lucius.ledgers.stored.json_form import maybe_micros, micros
from lucius.ledgers.stored.plan_codec import decode_plan
from lucius.ports.ledger import Claim


@record
class StepsHead:
    claim_hash: str
    body_hash: str
    keyed: bool
    no: int
    """When its rows were planned, in microseconds: orders jobs of one instant."""
    wakeup: str = ""
    """The row by which its lane remembers it; none where nothing is owed."""
    ready: Mapping[str, int] | None = None
    """Places in the ready queues, by step."""
    save_id: str = ""
    """Of the write that made this version."""
    extra: Mapping[str, Any] | None = field(default=None, compare=False)
    """Columns that a newer version has added to the row: they are written back."""

    def claim(self, tenant_id: str) -> Claim:
        return Claim(tenant_id, self.claim_hash, self.body_hash, self.keyed)


@record
class Glance:
    """What indexes are compared with, without reading the job."""

    job_id: str
    tenant_id: str
    state: str
    version: int
    schema: int
    due: int | None
    completed: int | None
    wakeup: str
    etag: str | None
    places: frozenset[int] = frozenset()
    """In the ready queues."""
    tombstone: bool = False
    claim_hash: str = ""
    save_id: str = ""

    @property
    def newer(self) -> bool:
        return self.schema > SCHEMA


@record
class Stored:
    """A job as it lies in its rows."""

    job: Job
    head: StepsHead
    etag: str


GLANCED: Final = (
    "job_id",
    "tenant_id",
    "state",
    "version",
    "schema",
    "due",
    "completed",
    "wakeup",
    "ready",
    "tombstone",
    "claim_hash",
    "save_id",
)


COLUMNS: Final = JOB_COLUMNS | frozenset(
    (PARTITION, ROW, ETAG, *GLANCED, "body_hash", "keyed", "no", "withdrawn")
)
"""Every column of a job's row that this version writes, but for the pieces of long texts."""
DOCUMENTS: Final = ("doc", "pending", "gone")


def job_row(job: Job, head: StepsHead) -> dict[str, Any]:
    """All columns of the row that is a job's commit point."""
    return {
        **(head.extra or {}),
        **job_columns(job),
        "schema": SCHEMA,
        "version": job.version,
        "due": maybe_micros(job.due_at),
        "completed": maybe_micros(job.completed_at),
        "claim_hash": head.claim_hash,
        "body_hash": head.body_hash,
        "keyed": head.keyed,
        "no": head.no,
        "wakeup": head.wakeup,
        "ready": orjson.dumps(dict(head.ready or {})).decode(),
        "save_id": head.save_id,
        **chunked("doc", encode_job(job)),
    }


def glance_of(row: Row) -> Glance:
    return Glance(
        str(row.get("job_id")),
        str(row.get("tenant_id")),
        str(row.get("state")),
        int(row.get("version") or 0),
        int(row.get("schema") or 0),
        row.get("due"),
        row.get("completed"),
        str(row.get("wakeup") or ""),
        row.get(ETAG),
        _places(row.get("ready")),
        bool(row.get("tombstone")),
        str(row.get("claim_hash")),
        str(row.get("save_id")),
    )


def _places(ready: Any) -> frozenset[int]:
    try:
        return frozenset(orjson.loads(ready).values())
    except (ValueError, TypeError, AttributeError):
        return frozenset()  # whoever loads the job is told what is wrong with it


def stored_of(job_id: str, row: Row, plan: Row | None) -> Stored:
    """LedgerTooNewError for what a newer version wrote, LedgerRowUnreadableError for what nobody did."""
    try:
        if int(row["schema"]) > SCHEMA:
            raise too_new(row["schema"], job_id)
        if plan is None:
            raise ValueError("its plan is missing")
        job = decode_job(decode_plan(joined("doc", plan)), joined("doc", row))
        if job.version != row["version"]:
            raise ValueError(f"version {job.version} in a row of version {row['version']}")
        return Stored(job, head_of(row), row[ETAG])
    except LedgerTooNewError:
        raise
    except (LedgerError, KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        tenant_id = row.get("tenant_id")
        raise LedgerRowUnreadableError(job_id, _why(error), tenant_id=tenant_id) from error


def _why(error: Exception) -> str:
    return str(error) if isinstance(error, LedgerError | ValueError) else repr(error)


def head_of(row: Row) -> StepsHead:
    ready = orjson.loads(row["ready"])
    if not isinstance(ready, dict) or not all(type(place) is int for place in ready.values()):
        raise ValueError(f"column ready has {row['ready']!r}")
    return StepsHead(
        row["claim_hash"],
        row["body_hash"],
        bool(row["keyed"]),
        int(row["no"]),
        row.get("wakeup") or "",
        ready,
        row.get("save_id") or "",
        {name: value for name, value in row.items() if not _is_ours(name)} or None,
    )


def _is_ours(column: str) -> bool:
    return column in COLUMNS or column.rstrip("0123456789") in DOCUMENTS


def place_of(job: Job, head: StepsHead) -> PageEnd:
    return PageEnd(micros(job.plan.accepted_at), head.no)
