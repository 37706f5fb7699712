"""The stored form of jobs and events: short JSON, absent where it is the default, instants in microseconds.

The encoder runs on every transition, so it builds plain dictionaries by hand. Fields that this
version does not know are kept in `extra` and written back; a newer schema number is refused. Lists
such as a fault are closed: to make one longer, the schema number is raised.
What an entry shares with its latest execution is written once, with the execution.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from lucius.adapters.ledgers.stored.json_form import (
    Doc,
    dumps,
    extra_of,
    instant,
    loads,
    maybe_micros,
    micros,
)
from lucius.core.effects import Event
from lucius.core.errors import LedgerCorruptError, LedgerTooNewError
from lucius.core.job import (
    AbortReason,
    Entry,
    EntryState,
    Execution,
    ExecutionState,
    Fault,
    Job,
    JobState,
    Owed,
    Step,
    StepState,
)
from lucius.core.plan import Plan

# The stored form of events: one document for all the events of a save.
#
# Fields of a newer version are kept: whoever copies its events to another table copies them whole.

FIELDS: Final = frozenset(("seq", "type", "at", "step", "attempt", "lease", "moves", "data"))


def encode_events(events: Sequence[Event]) -> bytes:
    return dumps([_event(event) for event in events])


def _event(event: Event) -> Doc:
    doc: Doc = dict(event.extra) if event.extra else {}
    doc |= {"seq": event.seq, "type": event.type, "at": micros(event.at)}
    if event.step_id is not None:
        doc["step"] = event.step_id
    if event.attempt_no is not None:
        doc["attempt"] = event.attempt_no
    if event.lease_id is not None:
        doc["lease"] = event.lease_id
    if event.moves:
        doc["moves"] = event.moves
    if event.data is not None:
        doc["data"] = event.data
    return doc


def decode_events(raw: bytes) -> list[Event]:
    try:
        return [_read_event(doc) for doc in loads(raw)]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise LedgerCorruptError(f"events are stored wrongly: {error!r}") from error


def _read_event(doc: Doc) -> Event:
    return Event(
        seq=doc["seq"],
        type=doc["type"],
        at=instant(doc["at"]),
        step_id=doc.get("step"),
        attempt_no=doc.get("attempt"),
        lease_id=doc.get("lease"),
        moves=tuple(doc.get("moves", ())),
        data=doc.get("data"),
        extra=extra_of(doc, FIELDS),
    )


SCHEMA: Final = 1
"""The number of the stored form, and the highest that is read. It is raised only when an older process could
not keep the meaning of a job: while processes are replaced, both versions work on one ledger."""


# -- writing ---------------------------------------------------------------------------------


def encode_job(job: Job) -> bytes:
    """What changes about a job. The plan is stored apart, once."""
    doc: Doc = dict(job.extra) if job.extra else {}
    doc["schema"] = SCHEMA
    doc["version"] = job.version
    doc["state"] = job.state
    doc["seq"] = job.seq
    doc["updated"] = micros(job.updated_at)
    doc["sla"] = micros(job.sla_at)
    if job.due_at is not None:
        doc["due"] = micros(job.due_at)
    if job.first_ack_at is not None:
        doc["acked"] = micros(job.first_ack_at)
    if job.noted:
        doc["noted"] = job.noted
    if job.owed:
        doc["owed"] = [_owed(owed) for owed in job.owed]
    if job.completed_at is not None:
        doc["completed"] = micros(job.completed_at)
    _encode_rare(job, doc)
    doc["steps"] = [_step(step) for step in job.steps]
    return dumps(doc)


def _encode_rare(job: Job, doc: Doc) -> None:
    if job.cancel_requested_at is not None:
        doc["cancel"] = micros(job.cancel_requested_at)
    if job.paused_at is not None:
        doc["paused"] = micros(job.paused_at)
    if job.fault is not None:
        doc["fault"] = [job.fault.code, job.fault.message]
    if job.final_output is not None:
        doc["output"] = job.final_output
    if job.dismissed_at is not None:
        doc["dismissed"] = micros(job.dismissed_at)
    if job.redriven_by is not None:
        doc["redriven"] = job.redriven_by


def _owed(owed: Owed) -> Doc:
    return {
        **(owed.extra or {}),
        "id": owed.owed_id,
        "kind": owed.kind,
        "target": owed.target,
        "attempts": owed.attempts,
        "next": micros(owed.next_at),
        **({"fault": owed.fault} if owed.fault is not None else {}),
    }


def _step(step: Step) -> Doc:
    doc: Doc = dict(step.extra) if step.extra else {}
    doc["state"] = step.state
    if step.attempt_no:
        doc["attempt"] = step.attempt_no
    if step.used:
        doc["used"] = step.used
    if step.returns:
        doc["returns"] = step.returns
    if step.deaths:
        doc["deaths"] = step.deaths
    if step.entry is not None:
        doc["entry"] = _entry(step.entry, step.executions)
    if step.executions:
        doc["runs"] = [_execution(run, at) for at, run in enumerate(step.executions, 1)]
    if step.retry_at is not None:
        doc["retry"] = micros(step.retry_at)
    if step.result_ref is not None:
        doc["result"] = step.result_ref
    if step.fault is not None:
        doc["fault"] = [step.fault.code, step.fault.message]
    if step.updated_at != step.completed_at:
        doc["updated"] = maybe_micros(step.updated_at)
    if step.completed_at is not None:
        doc["completed"] = micros(step.completed_at)
    return doc


def _entry(entry: Entry, executions: tuple[Execution, ...]) -> Doc:
    doc: Doc = dict(entry.extra) if entry.extra else {}
    doc["state"] = entry.state
    if not executions:
        doc["attempt"] = entry.attempt_no
        doc["created"] = micros(entry.created_at)
        lease_id = released_at = sent_at = None
    else:
        run = executions[-1]
        lease_id, released_at, sent_at = run.exec_id, run.leased_at, run.started_at
        if entry.attempt_no != run.attempt_no:
            doc["attempt"] = entry.attempt_no
        if entry.created_at != run.leased_at:
            doc["created"] = micros(entry.created_at)
    if entry.lease_id != lease_id:
        doc["lease"] = entry.lease_id
    if entry.released_at != released_at:
        doc["released"] = maybe_micros(entry.released_at)
    if entry.asked_at != entry.released_at:
        doc["asked"] = maybe_micros(entry.asked_at)
    if entry.sent_at != sent_at:
        doc["sent"] = maybe_micros(entry.sent_at)
    if entry.ready_at is not None:
        doc["ready"] = micros(entry.ready_at)
    return doc


def _execution(run: Execution, place: int) -> Doc:
    doc: Doc = dict(run.extra) if run.extra else {}
    doc["id"] = run.exec_id
    if run.attempt_no != place:
        doc["attempt"] = run.attempt_no
    doc["state"] = run.state
    doc["leased"] = micros(run.leased_at)
    if run.lease_expires_at is not None:
        doc["expires"] = micros(run.lease_expires_at)
    if run.lease_owner is not None:
        doc["owner"] = run.lease_owner
    if run.started_at is not None:
        doc["started"] = micros(run.started_at)
    if run.unclaimed_at is not None:
        doc["unclaimed"] = micros(run.unclaimed_at)
    if run.finished_at is not None:
        doc["finished"] = micros(run.finished_at)
    if run.reason is not None:
        doc["reason"] = run.reason
    if run.final:
        doc["final"] = True
    return doc


# -- reading ---------------------------------------------------------------------------------


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


JOB_FIELDS: Final = _names(
    "schema version state seq updated sla due acked noted owed completed cancel paused fault"
    " output dismissed redriven steps"
)
STEP_FIELDS: Final = _names(
    "state attempt used returns deaths entry runs retry result fault updated completed"
)
ENTRY_FIELDS: Final = _names("state created attempt lease released asked ready sent")
RUN_FIELDS: Final = _names(
    "id attempt state leased expires owner started unclaimed finished reason final"
)
OWED_FIELDS: Final = _names("id kind target attempts next fault")


def decode_job(plan: Plan, raw: bytes) -> Job:
    """LedgerTooNewError where a newer version wrote it, LedgerCorruptError where nobody did."""
    doc = loads(raw)
    try:
        if doc["schema"] > SCHEMA:
            raise too_new(doc["schema"], plan.job_id)
        job = _job(plan, doc)
        if len(job.steps) != len(plan.steps):
            raise ValueError(f"{len(job.steps)} steps where the plan has {len(plan.steps)}")
        return job
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise LedgerCorruptError(f"job {plan.job_id} is stored wrongly: {error!r}") from error


def too_new(schema: int, job_id: str) -> LedgerTooNewError:
    return LedgerTooNewError(f"job {job_id} has schema {schema}; this version reads up to {SCHEMA}")


def _job(plan: Plan, doc: Doc) -> Job:
    return Job(
        plan,
        JobState(doc["state"]),
        tuple(_read_step(step) for step in doc["steps"]),
        updated_at=instant(doc["updated"]),
        sla_at=instant(doc["sla"]),
        due_at=_at(doc, "due"),
        version=_whole(doc["version"]),
        seq=_whole(doc["seq"]),
        noted=doc.get("noted", 0),
        first_ack_at=_at(doc, "acked"),
        cancel_requested_at=_at(doc, "cancel"),
        paused_at=_at(doc, "paused"),
        completed_at=_at(doc, "completed"),
        fault=_fault(doc),
        final_output=doc.get("output"),
        owed=tuple(_read_owed(owed) for owed in doc.get("owed", ())),
        dismissed_at=_at(doc, "dismissed"),
        redriven_by=doc.get("redriven"),
        extra=extra_of(doc, JOB_FIELDS),
    )


def _read_step(doc: Doc) -> Step:
    runs = tuple(_read_execution(run, place) for place, run in enumerate(doc.get("runs", ()), 1))
    completed_at = _at(doc, "completed")
    return Step(
        StepState(doc["state"]),
        attempt_no=doc.get("attempt", 0),
        used=doc.get("used", 0),
        returns=doc.get("returns", 0),
        deaths=doc.get("deaths", 0),
        entry=_read_entry(doc["entry"], runs) if "entry" in doc else None,
        executions=runs,
        retry_at=_at(doc, "retry"),
        result_ref=doc.get("result"),
        fault=_fault(doc),
        updated_at=_at(doc, "updated", completed_at),
        completed_at=completed_at,
        extra=extra_of(doc, STEP_FIELDS),
    )


def _read_entry(doc: Doc, runs: tuple[Execution, ...]) -> Entry:
    """What is absent is as its latest execution has it."""
    run = runs[-1] if runs else None
    released_at = _at(doc, "released", run.leased_at if run else None)
    return Entry(
        EntryState(doc["state"]),
        attempt_no=doc["attempt"] if "attempt" in doc or not run else run.attempt_no,
        created_at=instant(doc["created"]) if "created" in doc or not run else run.leased_at,
        lease_id=doc.get("lease", run.exec_id if run else None),
        ready_at=_at(doc, "ready"),
        released_at=released_at,
        asked_at=_at(doc, "asked", released_at),
        sent_at=_at(doc, "sent", run.started_at if run else None),
        extra=extra_of(doc, ENTRY_FIELDS),
    )


def _read_execution(doc: Doc, place: int) -> Execution:
    return Execution(
        doc["id"],
        doc.get("attempt", place),
        ExecutionState(doc["state"]),
        instant(doc["leased"]),
        lease_expires_at=_at(doc, "expires"),
        lease_owner=doc.get("owner"),
        started_at=_at(doc, "started"),
        unclaimed_at=_at(doc, "unclaimed"),
        finished_at=_at(doc, "finished"),
        reason=AbortReason(doc["reason"]) if "reason" in doc else None,
        final=doc.get("final", False),
        extra=extra_of(doc, RUN_FIELDS),
    )


def _read_owed(doc: Doc) -> Owed:
    return Owed(
        doc["id"],
        doc["kind"],
        doc["target"],
        doc["attempts"],
        instant(doc["next"]),
        doc.get("fault"),
        extra=extra_of(doc, OWED_FIELDS),
    )


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise ValueError(f"{value!r} is not a whole number")
    return value


def _fault(doc: Doc) -> Fault | None:
    return Fault(*doc["fault"]) if "fault" in doc else None


def _at(doc: Doc, name: str, default: datetime | None = None) -> datetime | None:
    if name not in doc:
        return default
    value = doc[name]
    return None if value is None else instant(value)
