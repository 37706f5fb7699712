"""The stored form of a plan: written once, when its job is created, and never again."""

from datetime import timedelta
from typing import Any, Final

from lucius.adapters.ledgers.stored.json_form import (
    MICROSECOND,
    Doc,
    dumps,
    instant,
    loads,
    micros,
    pack,
)
from lucius.core.errors import LedgerCorruptError
from lucius.core.plan import (
    BACKOFFS,
    EMPTY,
    Carried,
    DecisionSource,
    Json,
    Mode,
    Plan,
    RetryPolicy,
    Routing,
    Sla,
    StepPlan,
)
from lucius.core.record import Packed

DEFAULT_POLICY: Final = RetryPolicy()
DEFAULT_SLA: Final = Sla()
PLAIN: Final = (
    "job_id",
    "tenant_id",
    "request_type",
    "protocol_id",
    "schema_version",
    "input_ref",
    "output_ref",
    "payload",
    "workspace_ref",
    "engine",
    "doc_id",
    "correlation_id",
    "traceparent",
    "idempotency_key",
    "idempotency_hash",
    "redrive_of",
    "redrive_no",
    "root_job_id",
    "moved_output",
    "extra",
)
"""Fields that are stored as they are."""


def encode_plan(plan: Plan) -> bytes:
    doc: Doc = {}
    for name in PLAIN:
        value = getattr(plan, name)
        if type(value) is Packed or (value is not None and value != {} and value != 0):
            doc[name] = value
    doc["accepted"] = micros(plan.accepted_at)
    doc["steps"] = [_step(step) for step in plan.steps]
    doc["routing"] = _routing(plan.routing)
    if plan.callback_urls:
        doc["callback_urls"] = plan.callback_urls
    if plan.sla != DEFAULT_SLA:
        doc["sla"] = _sla(plan.sla)
    if plan.carried:
        doc["carried"] = {key: [c.job_id, c.result_ref] for key, c in plan.carried.items()}
    return dumps(doc)


def _step(step: StepPlan) -> Doc:
    doc: Doc = {
        "id": step.step_id,
        "type": step.step_type,
        "service": step.service,
        "stage": step.stage,
    }
    if step.policy != DEFAULT_POLICY:
        doc["policy"] = _policy(step.policy)
    if step.pool is not None:
        doc["pool"] = step.pool
    return doc


def _policy(policy: RetryPolicy) -> Doc:
    return {
        "attempts": policy.max_attempts,
        "ack": policy.ack_timeout // MICROSECOND,
        "lease": policy.lease // MICROSECOND,
        **{name: [wait // MICROSECOND for wait in getattr(policy, name)] for name in BACKOFFS},
    }


def _routing(routing: Routing) -> Doc:
    return {
        "mode": routing.resolved_mode,
        "lane": routing.lane,
        "key": routing.routing_key_used,
        "source": routing.decision_source,
        "reason": routing.decision_reason,
        "topic": routing.topic,
        "reply_topic": routing.reply_topic,
    }


def _sla(sla: Sla) -> Doc:
    return {
        "job": sla.job // MICROSECOND,
        "pause": sla.pause // MICROSECOND,
        "fail_job": sla.fail_job,
        "fail_pause": sla.fail_pause,
        **({"limit": sla.limit // MICROSECOND} if sla.limit is not None else {}),
    }


def decode_plan(raw: bytes) -> Plan:
    doc = loads(raw)
    try:
        return _plan(doc)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise LedgerCorruptError(f"a plan is stored wrongly: {error!r}") from error


def _plan(doc: Doc) -> Plan:
    fields = {name: doc[name] for name in PLAIN if name in doc}
    fields = {"input_ref": None, "output_ref": None, **fields}
    fields["payload"] = _payload(doc.get("payload") or EMPTY)
    return Plan(
        **fields,
        steps=tuple(_read_step(step) for step in doc["steps"]),
        routing=_read_routing(doc["routing"]),
        accepted_at=instant(doc["accepted"]),
        callback_urls=tuple(doc.get("callback_urls", ())),
        sla=_read_sla(doc["sla"]) if "sla" in doc else DEFAULT_SLA,
        carried={
            key: Carried(result_ref, job_id)
            for key, (job_id, result_ref) in doc.get("carried", {}).items()
        },
    )


def _payload(value: Any) -> Json:
    if not isinstance(value, dict):
        raise TypeError("the payload is no object")
    return pack(value) if value else EMPTY


def _read_step(doc: Doc) -> StepPlan:
    policy = _read_policy(doc["policy"]) if "policy" in doc else DEFAULT_POLICY
    return StepPlan(
        doc["id"], doc["type"], doc["service"], doc["stage"], policy, pool=doc.get("pool")
    )


def _read_policy(doc: Doc) -> RetryPolicy:
    return RetryPolicy(
        max_attempts=doc["attempts"],
        ack_timeout=_span(doc["ack"]),
        lease=_span(doc["lease"]),
        **{name: _spans(doc[name]) for name in BACKOFFS},
    )


def _read_routing(doc: Doc) -> Routing:
    return Routing(
        resolved_mode=Mode(doc["mode"]),
        lane=doc["lane"],
        routing_key_used=doc["key"],
        decision_source=DecisionSource(doc["source"]),
        decision_reason=doc["reason"],
        topic=doc["topic"],
        reply_topic=doc["reply_topic"],
    )


def _read_sla(doc: Doc) -> Sla:
    return Sla(
        _span(doc["job"]),
        _span(doc["pause"]),
        doc["fail_job"],
        doc["fail_pause"],
        limit=_span(doc["limit"]) if "limit" in doc else None,
    )


def _span(value: int) -> timedelta:
    return timedelta(microseconds=value)


def _spans(values: Any) -> tuple[timedelta, ...]:
    return tuple(_span(value) for value in values)
