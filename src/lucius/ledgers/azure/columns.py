"""The columns that operators read: every name of the data model, computed from the job.

What the ledger itself reads is elsewhere: the documents `doc`, and the head of a job's row.
"""

from collections.abc import Mapping
from typing import Any, Final

from lucius.core.effects import Event
from lucius.core.job import Entry, Execution, Job
from lucius.core.limits import fits_property
from lucius.core.plan import Plan
from lucius.core.states import entry_status, job_status, step_status
from lucius.ledgers.azure.names import bucket
from lucius.ledgers.stored.event_codec import encode_events
from lucius.ledgers.stored.json_form import dumps

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
