"""JSON views of the aggregate, as clients read it. Pure; moments are RFC 3339 with Z once they are sent."""

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel

from lucius.contract.models.base import JsonObject
from lucius.contract.models.jobs import ExecutionView
from lucius.contract.models.services import ProtocolStepView, ProtocolView
from lucius.core.effects import Event
from lucius.core.job import (
    TERMINAL_STEP,
    Entry,
    Execution,
    Job,
    JobState,
    Owed,
    Step,
    StepState,
    entry_status,
    job_status,
    notices_of,
    phase_of,
    step_status,
)
from lucius.core.plan import Plan, StepPlan
from lucius.ports.config import JobProtocol

# Why a job is where it is, in one sentence for people. A pure function of the job.


@lru_cache(maxsize=16_384)
def instant(at: datetime) -> str:
    """RFC 3339 in UTC, with Z. Remembered: in one view of a job most instants come up several times."""
    if at.tzinfo is not UTC:
        at = at.astimezone(UTC)
    return at.isoformat()[:-6] + "Z"


def explain(job: Job) -> str:
    match job.state:
        case JobState.SUCCEEDED:
            return f"all {len(job.steps)} steps succeeded" if len(job.steps) > 1 else "it succeeded"
        case JobState.FAILED_FINAL:
            return _failed(job)
        case JobState.CANCELLED:
            return f"cancelled{_since(job.cancel_requested_at)}{_sequel(job)}"
        case JobState.CANCELLING:
            return f"cancel was requested{_since(job.cancel_requested_at)}; {_waiting(job)}"
        case JobState.PAUSING:
            return f"pause was requested{_since(job.paused_at)}; {_waiting(job)}"
        case JobState.PAUSED:
            return f"paused{_since(job.paused_at)}; resume continues with {_next_step(job)}"
        case _:
            return _waiting(job)


def _failed(job: Job) -> str:
    fault = f": {job.fault.code}: {job.fault.message}" if job.fault else ""
    for plan, step in zip(job.plan.steps, job.steps, strict=True):
        if step.state is StepState.FAILED_FINAL:
            tries = _attempt(step.attempt_no, plan, step)
            return f"step {plan.step_id} failed for good ({tries}){fault}{_sequel(job)}"
    return f"the job failed{fault}{_sequel(job)}"


def _sequel(job: Job) -> str:
    if job.redriven_by is not None:
        return f"; redriven by {job.redriven_by}"
    if job.dismissed_at is not None:
        return f"; dismissed at {instant(job.dismissed_at)}"
    return ""


def _since(at: datetime | None) -> str:
    return f" at {instant(at)}" if at is not None else ""


def _next_step(job: Job) -> str:
    index = job.current_index
    return f"step {job.plan.steps[index].step_id}" if index is not None else "its end"


def _waiting(job: Job) -> str:
    parts = [
        _step(job, plan, step)
        for plan, step in zip(job.plan.steps, job.steps, strict=True)
        if step.state is not StepState.PENDING and step.state not in TERMINAL_STEP
    ]
    return "; ".join(parts) or "nothing is under way yet"


def _step(job: Job, plan: StepPlan, step: Step) -> str:
    name, used = f"step {plan.step_id}", _attempt(step.used, plan, step)
    after = f" after {step.fault.code} ({used})" if step.fault and step.used else ""
    entry, execution = step.entry, step.execution
    if step.state is StepState.FAILED_RETRY:
        return f"{name} waits for a retry{_since(step.retry_at)}{after}"
    if step.held and entry is not None:
        if entry.ready_at is not None:
            return f"{name} waits to be published again{_since(entry.ready_at)}{after}"
        return (
            f"{name} waits for its turn with {plan.service}{after};"
            f" `lucius why {job.job_id}` says its place in line"
        )
    attempt = _attempt(step.attempt_no, plan, step)
    until = execution.lease_expires_at if execution is not None else None
    by = f" by {instant(until)}" if until is not None else ""
    if step.state is StepState.DISPATCHING:
        return f"{name} is on its way to {plan.service} ({attempt})"
    if step.state is StepState.AWAITING_ACK:
        return f"{name} waits for {plan.service} to acknowledge it{by} ({attempt})"
    owner = execution.lease_owner if execution is not None else None
    worker = f"{plan.service} ({owner})" if owner else plan.service
    silent = f"; if the worker stays silent until {instant(until)}, the step is retried"
    return f"{name} runs on {worker}{silent if until is not None else ''} ({attempt})"


def _attempt(number: int, plan: StepPlan, step: Step) -> str:
    """The latest attempt. One that nobody was there for is not merely a slow one."""
    latest, known = step.execution, f"attempt {number} of {plan.policy.max_attempts}"
    if latest is None or latest.unclaimed_at is None or latest.started_at is not None:
        return known
    return f"{known}, which no service was subscribed to take"


def picked(model: type[BaseModel], value: object, **other: Any) -> JsonObject:
    """The fields of a model, from what has them by the same names; `other` are those that it has not."""
    return {
        name: other[name] if name in other else getattr(value, name) for name in model.model_fields
    }


def etag_of(job: Job) -> str:
    return f'"{job.version}"'


def job_view(job: Job, *, steps: bool = True) -> JsonObject:
    plan, index = job.plan, job.current_index
    view: JsonObject = {
        "jobId": plan.job_id,
        "tenant_id": plan.tenant_id,
        "request_type": plan.request_type,
        "protocol_id": plan.protocol_id,
        "schema_version": plan.schema_version,
        "mode": plan.routing.resolved_mode.value,
        "lane": plan.routing.lane,
        "doc_id": plan.doc_id,
        "engine": plan.engine,
        "state": job.state.value,
        "status": job_status(job.state),
        "phase": phase_of(job).value,
        "explanation": explain(job),
        "version": job.version,
        "idempotency_key": plan.idempotency_key,
        "idempotency_hash": plan.idempotency_hash,
        "current_step_id": plan.steps[index].step_id if index is not None else None,
        "current_step_index": index,
        "attempts_total": job.attempts_total,
        "retry_at": _at(job.retry_at),
        "due_at": _at(job.due_at),
        "created_at": instant(plan.accepted_at),
        "updated_at": instant(job.updated_at),
        "completed_at": _at(job.completed_at),
        "cancel_requested_at": _at(job.cancel_requested_at),
        "paused_at": _at(job.paused_at),
        "dismissed_at": _at(job.dismissed_at),
        "error_code": job.fault.code if job.fault else None,
        "error_message": job.fault.message if job.fault else None,
        "correlation_id": plan.correlation_id,
        "traceparent": plan.traceparent,
        "input_ref": plan.input_ref,
        "output_ref": plan.output_ref,
        "workspace_ref": plan.workspace_ref,
        "final_output": job.final_output,
        "redrive_of": plan.redrive_of,
        "redriven_by": job.redriven_by,
        "webhooks": [_webhook_view(owed) for owed in notices_of(job)] if job.owed else [],
    }
    if steps:
        view["steps"] = step_views(job)
    return view


def _webhook_view(owed: Owed) -> JsonObject:
    return {
        "host": urlsplit(owed.target).hostname or "?",
        "tries": owed.attempts,
        "next_at": instant(owed.next_at),
        "error": owed.fault,
    }


def step_views(job: Job) -> list[JsonObject]:
    pairs, payloads = zip(job.plan.steps, job.steps, strict=True), job.plan.payloads()
    return [
        _step_view(job.plan, index, planned, step, payloads[planned.step_id])
        for index, (planned, step) in enumerate(pairs)
    ]


def _step_view(plan: Plan, index: int, planned: StepPlan, step: Step, payload: Any) -> JsonObject:
    routing = plan.routing
    execution = step.attempt
    return {
        "stepId": planned.step_id,
        "step_id": planned.step_id,
        "step_index": index,
        "step_type": planned.step_type,
        "service": planned.service,
        "stage": planned.stage,
        "state": step.state.value,
        "status": step_status(step.state),
        "attempt_no": step.attempt_no,
        "max_attempts": planned.policy.max_attempts,
        "lease_id": execution.exec_id if execution else None,
        "lease_expires_at": _at(execution.lease_expires_at) if execution else None,
        "lease_owner": execution.lease_owner if execution else None,
        "resolved_mode": routing.resolved_mode.value,
        "lane": routing.lane,
        "routing_key_used": routing.routing_key_used,
        "decision_source": routing.decision_source.value,
        "decision_reason": routing.decision_reason,
        "input_ref": plan.input_ref,
        "workspace_ref": plan.workspace_ref,
        "output_ref": plan.output_ref,
        "payload": payload,
        "result_ref": step.result_ref,
        "retry_at": _at(step.retry_at),
        "last_error_code": step.fault.code if step.fault else None,
        "last_error_message": step.fault.message if step.fault else None,
        "created_at": instant(plan.accepted_at),
        "started_at": _at(execution.started_at) if execution else None,
        "updated_at": _at(step.updated_at),
        "completed_at": _at(step.completed_at),
        "outbox": _outbox_view(plan, step.entry) if step.entry else None,
    }


def _outbox_view(plan: Plan, entry: Entry) -> JsonObject:
    return {
        "state": entry_status(entry.state),
        "held": entry.released_at is None and entry.state.value == "HELD",
        "attempt_no": entry.attempt_no,
        "lease_id": entry.lease_id,
        "topic": plan.routing.topic,
        "partition": plan.routing.lane,
        "created_at": instant(entry.created_at),
        "released_at": _at(entry.released_at),
        "sent_at": _at(entry.sent_at),
        "next_attempt_at": _at(entry.ready_at),
    }


def executions_view(job: Job) -> JsonObject:
    pairs = zip(job.plan.steps, job.steps, strict=True)
    executions = [
        _execution_view(job.job_id, plan, e) for plan, step in pairs for e in step.executions
    ]
    return {"phase": phase_of(job).value, "executions": executions}


def _execution_view(job_id: str, planned: StepPlan, execution: Execution) -> JsonObject:
    ids = {"jobId": job_id, "stepId": planned.step_id, "step_id": planned.step_id}
    return picked(ExecutionView, execution, **ids, status=execution.state)


def event_view(job_id: str, event: Event) -> JsonObject:
    return {
        "seq": event.seq,
        "event_type": event.type,
        "created_at": instant(event.at),
        "jobId": job_id,
        "stepId": event.step_id,
        "attempt_no": event.attempt_no,
        "lease_id": event.lease_id,
        "moves": list(event.moves),
        "payload": dict(event.data) if event.data is not None else None,
    }


def protocol_view(protocol: JobProtocol) -> JsonObject:
    steps = [
        picked(
            ProtocolStepView,
            step,
            stepId=step.step_id,
            max_attempts=step.policy.max_attempts,
            ack_timeout_seconds=step.policy.ack_timeout.total_seconds(),
            lease_seconds=step.policy.lease.total_seconds(),
            payload_schema=protocol.schemas.get(step.step_id),
        )
        for step in protocol.steps
    ]
    return picked(ProtocolView, protocol, steps=steps)


def _at(at: datetime | None) -> str | None:
    return instant(at) if at is not None else None
