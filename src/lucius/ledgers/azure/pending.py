"""What a job's row in Jobs keeps for whoever finishes its copies: what the job itself does not say."""

from collections.abc import Sequence
from typing import Any

import orjson

from lucius.core.effects import Event
from lucius.core.errors import LedgerError, LedgerRowUnreadableError
from lucius.core.job import Entry, Job, Step
from lucius.core.states import EntryState
from lucius.ledgers.azure.heads import Stored
from lucius.ledgers.azure.projections import Copy
from lucius.ledgers.azure.single import changed_entries
from lucius.ledgers.azure.store import Row, chunked, joined
from lucius.ledgers.stored.event_codec import decode_events, encode_events
from lucius.ledgers.stored.json_form import instant, micros

Entries = list[tuple[int, Entry]]
"""Outbox entries with the index of their step."""


def changed(job: Job, before: Sequence[Step | None]) -> Entries:
    pairs = enumerate(zip(job.steps, before, strict=True))
    return [(at, entry) for at, (step, old) in pairs for entry in changed_entries(step, old)]


def pending_columns(job: Job, events: Sequence[Event], entries: Entries) -> dict[str, Any]:
    """The events of this save, and the entries that it withdrew: the job has them no more."""
    withdrawn = [
        [index, entry.attempt_no, entry.lease_id, micros(entry.created_at)]
        for index, entry in entries
        if entry is not job.steps[index].entry
    ]
    written = orjson.dumps(withdrawn).decode() if withdrawn else None
    return {"withdrawn": written, **chunked("pending", encode_events(events))}


def pending_events(row: Row) -> list[Event]:
    return decode_events(joined("pending", row)) if "pending" in row else []


def copy_of(stored: Stored, row: Row) -> Copy:
    """All that the last save may have left to be copied. LedgerRowUnreadableError: nobody knows."""
    job = stored.job
    try:
        entries = _current(job) + _withdrawn(row)
        return Copy(job, stored.head.save_id, pending_events(row), entries)
    except (LedgerError, ValueError, TypeError) as error:
        raise LedgerRowUnreadableError(job.job_id, str(error), tenant_id=job.tenant_id) from error


def _current(job: Job) -> Entries:
    steps = enumerate(job.steps)
    return [(at, step.entry) for at, step in steps if step.entry and step.entry.lease_id]


def _withdrawn(row: Row) -> Entries:
    return [
        (index, Entry(EntryState.FAILED_FINAL, attempt_no, instant(created), lease_id))
        for index, attempt_no, lease_id, created in orjson.loads(row.get("withdrawn") or "[]")
    ]
