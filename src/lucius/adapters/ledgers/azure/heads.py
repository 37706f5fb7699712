"""The head of a stored job: what the ledger keeps about it beside the job itself, in columns of its row."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, Protocol

import orjson

from lucius.adapters.ledgers.azure.names import bucket
from lucius.adapters.ledgers.azure.store import ETAG, PARTITION, ROW, Refused, Row, chunked, joined
from lucius.adapters.ledgers.rules import PageEnd
from lucius.adapters.ledgers.stored.job_codec import (
    SCHEMA,
    decode_job,
    encode_events,
    encode_job,
    too_new,
)
from lucius.adapters.ledgers.stored.json_form import dumps, maybe_micros, micros
from lucius.adapters.ledgers.stored.plan_codec import decode_plan
from lucius.core.effects import Event
from lucius.core.errors import LedgerError, LedgerRowUnreadableError, LedgerTooNewError
from lucius.core.job import Entry, Execution, Job, Step, entry_status, job_status, step_status
from lucius.core.limits import fits_property
from lucius.core.plan import Plan
from lucius.core.record import record
from lucius.ports.ledger import Claim, Drift

# The columns that operators read: every name of the data model, computed from the job.
#
# What the ledger itself reads is elsewhere: the documents `doc`, and the head of a job's row.

Columns = dict[str, Any]
CUT: Final = "…"
ROOM: Final = 30_000
"""Characters of a column that only repeats what a document has whole."""


JOB_COLUMNS: Final = frozenset(
    [
        "job_id",
        "tenant_id",
        "tenant_bucket",
        "request_type",
        "protocol_id",
        "doc_id",
        "mode",
        "state",
        "status",
        "idempotency_key",
        "idempotency_hash",
        "current_step_id",
        "current_step_index",
        "attempts_total",
        "created_at",
        "updated_at",
        "completed_at",
        "error_code",
        "error_message",
        "correlation_id",
        "traceparent",
        "final_output",
    ]
)
"""What `job_columns` writes, where there is a value."""


def job_columns(job: Job) -> Columns:
    plan, at = job.plan, job.current_index
    return {
        "job_id": job.job_id,
        "tenant_id": job.tenant_id,
        "tenant_bucket": bucket(job.tenant_id, job.job_id),
        "request_type": plan.request_type,
        "protocol_id": plan.protocol_id,
        "doc_id": plan.doc_id,
        "mode": plan.routing.resolved_mode.value,
        "state": job.state.value,
        "status": job_status(job.state),
        "idempotency_key": plan.idempotency_key,
        "idempotency_hash": plan.idempotency_hash,
        "current_step_id": plan.steps[at].step_id if at is not None else None,
        "current_step_index": at,
        "attempts_total": job.attempts_total,
        "created_at": plan.accepted_at,
        "updated_at": job.updated_at,
        "completed_at": job.completed_at,
        "error_code": job.fault.code if job.fault else None,
        "error_message": text(job.fault.message) if job.fault else None,
        "correlation_id": plan.correlation_id,
        "traceparent": plan.traceparent,
        "final_output": text(job.final_output),
    }


def step_plan_columns(plan: Plan, index: int, payloads: Mapping[str, Any]) -> Columns:
    """What never changes about a step: written once, with the job."""
    step = plan.steps[index]
    return {
        "job_id": plan.job_id,
        "tenant_id": plan.tenant_id,
        "step_id": step.step_id,
        "step_index": index,
        "step_type": step.step_type,
        "service": step.service,
        "input_ref": text(plan.input_ref),
        "workspace_ref": plan.workspace_ref,
        "output_ref": text(plan.output_ref),
        "payload": text(payloads[step.step_id]),
        "created_at": plan.accepted_at,
        **_routing(plan),
    }


def step_columns(job: Job, index: int) -> Columns:
    """What changes. Merged into a row, so a value that is gone is written as empty, not left out."""
    step = job.steps[index]
    run = step.attempt
    return {
        "state": step.state.value,
        "status": step_status(step.state),
        "attempt_no": step.attempt_no,
        "lease_id": run.exec_id if run else "",
        "lease_expires_at": (run.lease_expires_at or "") if run else None,
        "result_ref": text(step.result_ref),
        "last_error_code": step.fault.code if step.fault else "",
        "last_error_message": text(step.fault.message) if step.fault else "",
        "updated_at": step.updated_at,
        "completed_at": step.completed_at,
        "version": job.version,
    }


def execution_columns(job: Job, index: int, run: Execution) -> Columns:
    return {
        "job_id": job.job_id,
        "tenant_id": job.tenant_id,
        "step_id": job.plan.steps[index].step_id,
        "step_index": index,
        "exec_id": run.exec_id,
        "attempt_no": run.attempt_no,
        "state": run.state.value,
        "leased_at": run.leased_at,
        "lease_expires_at": run.lease_expires_at,
        "lease_owner": run.lease_owner,
        "started_at": run.started_at,
        "finished_at": run.finished_at,
        "reason": run.reason.value if run.reason else None,
        "version": job.version,
    }


def entry_columns(job: Job, index: int, entry: Entry) -> Columns:
    """The directive is made when it is sent; `payload` says which one it is."""
    plan, step = job.plan, job.plan.steps[index]
    pinned = {
        "type": "DIRECTIVE",
        "jobId": job.job_id,
        "stepId": step.step_id,
        "attempt_no": entry.attempt_no,
        "lease_id": entry.lease_id,
        "step_type": step.step_type,
        "service": step.service,
    }
    return {
        "jobId": job.job_id,
        "stepId": step.step_id,
        "tenant_id": job.tenant_id,
        "attempt_no": entry.attempt_no,
        "lease_id": entry.lease_id,
        "state": entry_status(entry.state),
        "topic": plan.routing.topic,
        "partition": plan.routing.lane,
        "payload": text(pinned),
        "created_at": entry.created_at,
        "sent_at": entry.sent_at,
        "updated_at": job.steps[index].updated_at,
        "version": job.version,
        **_routing(plan),
    }


def event_columns(event: Event) -> Columns:
    """`payload` is the event as the ledger reads it."""
    return {
        "event_type": event.type,
        "payload": encode_events([event]).decode(),
        "created_at": event.at,
    }


def _routing(plan: Plan) -> Columns:
    routing = plan.routing
    return {
        "resolved_mode": routing.resolved_mode.value,
        "lane": routing.lane,
        "routing_key_used": routing.routing_key_used,
        "decision_source": routing.decision_source.value,
        "decision_reason": routing.decision_reason,
    }


def text(value: Any) -> str | None:
    """A value as one column; cut, with a mark, where it would not fit."""
    if value is None:
        return None
    said = value if isinstance(value, str) else dumps(value).decode().strip()
    fits = fits_property(said.encode("utf-8", "surrogatepass"))
    return said if fits else said[: ROOM // 2] + CUT


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


# How the rows of one job lie: the one thing in which the two Azure ledgers differ.


class Layout(Protocol):
    @property
    def tables(self) -> Sequence[str]:
        """Their names."""

    @property
    def apart(self) -> bool:
        """Whether a save leaves rows to be copied, so that a wake-up must stand until they are."""

    async def read(self, job_id: str, tenant_id: str | None = None) -> Stored | None:
        """The job as last committed; none where there is none, or a tombstone."""

    async def glance(self, job_id: str, tenant_id: str) -> Glance | None: ...

    async def events(self, job_id: str, after: int, limit: int) -> list[Event]: ...

    def walk(self) -> AsyncIterator[tuple[str, Sequence[Row]]]:
        """Every job's rows, for `verify`: `JOB`, `JOB|PLAN`, `STEP|..`, `EVENT|..` and others."""

    def drifts(self, stored: Stored, rows: Mapping[str, Row], *, woken: bool) -> Iterator[Drift]:
        """Where rows of a job contradict it. `woken`: a row of its lane will bring it up."""

    async def insert(self, job: Job, head: StepsHead, events: Sequence[Event]) -> str | Refused:
        """The ETag of the new job; refused where its id is taken."""

    async def replace(
        self,
        stored_steps: Sequence[Step],
        etag: str,
        job: Job,
        head: StepsHead,
        events: Sequence[Event],
    ) -> str | Refused:
        """The new ETag; refused where the stored one is another. `stored_steps`: what is there now."""

    async def touch(self, glance: Glance, wakeup: str) -> str | Refused:
        """Let the job rely on another wake-up row. It fences: whoever has the old ETag lands no more."""

    async def finish(self, glance: Glance) -> bool:
        """Copy what saves of this job have left to be copied, where its rows lie apart. False: it failed."""

    def is_copied(self, job_id: str) -> bool:
        """Whether the last save here has left nothing to be copied."""

    async def copy_late(self, *, all_own: bool = False) -> list[Job]:
        """Copy what has waited long enough, or all that was saved here. The jobs that are whole now."""

    async def bury(self, job_id: str, tenant_id: str) -> bool:
        """A tombstone where the job would be. False: something is there."""

    async def delete(self, job_id: str, tenant_id: str) -> None: ...
