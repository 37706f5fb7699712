"""What a job's copies still lack, beside what the job itself says. The job's row in Jobs keeps it."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

import orjson

from lucius.core.effects import Event
from lucius.core.errors import LedgerError, LedgerRowUnreadableError
from lucius.core.job import Entry, Job, Step
from lucius.core.record import record
from lucius.core.states import EntryState
from lucius.ledgers.azure.store import Row, chunked, joined
from lucius.ledgers.stored.event_codec import decode_events, encode_events
from lucius.ledgers.stored.json_form import instant, maybe_micros, micros

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
