"""What operators read, held against the job: its columns, its history, its outbox. For `verify`."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from lucius.core.effects import Event
from lucius.core.job import Job
from lucius.core.states import entry_status
from lucius.ledgers.azure import names
from lucius.ledgers.azure.copies import behind, entry_key
from lucius.ledgers.azure.heads import Stored
from lucius.ledgers.azure.pending import pending_events
from lucius.ledgers.azure.store import Row
from lucius.ledgers.stored.event_codec import decode_events
from lucius.ports.ledger import Drift

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
