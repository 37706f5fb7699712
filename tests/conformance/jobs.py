"""Jobs for the suites, built and moved by the real core alone."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID, uuid5

from lucius.core.decide import decide, submit
from lucius.core.effects import Decision, Event
from lucius.core.inputs import (
    AckReceived,
    EntryReleased,
    Input,
    ResultReceived,
    ResultStatus,
)
from lucius.core.job import Fault, Job
from lucius.core.plan import DecisionSource, Mode, Plan, StepPlan
from lucius.core.routing import route
from lucius.ports.ledger import Claim

START = datetime(2026, 1, 1, tzinfo=UTC)
SERVICES = {"OCR": "ocr-service", "EMBEDDING": "embedding-service", "SIS": "sis-service"}
THREE = ("OCR", "EMBEDDING", "SIS")
NAMES = UUID("7f9c7dd0-50a5-4b0e-9d6c-0b8d6f0f5b7d")


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def name_of(*parts: object) -> str:
    """An id that looks like a real one and is the same every time."""
    return str(uuid5(NAMES, ":".join(map(str, parts))))


def steps_of(types: Sequence[str]) -> tuple[StepPlan, ...]:
    return tuple(
        StepPlan(kind.lower(), kind, SERVICES.get(kind, f"{kind.lower()}-service"), stage)
        for stage, kind in enumerate(types)
    )


def plan_of(
    key: object,
    tenant: str = "tenant_a",
    *,
    types: Sequence[str] = THREE,
    now: datetime = START,
    mode: Mode = Mode.DEFAULT,
    **changes: Any,
) -> Plan:
    decided = (mode, DecisionSource.REQUEST, "the test says so")
    plan = Plan(
        job_id=name_of("job", key),
        tenant_id=tenant,
        request_type="->".join(types),
        protocol_id="-".join(types).lower() + "-v1",
        schema_version="1.0",
        input_ref=f"s3://bucket/{key}.pdf",
        output_ref=f"s3://bucket/out/{key}/",
        payload={"language": "en", "pages": 3},
        steps=steps_of(types),
        routing=route(tenant, f"doc-{key}", decided),
        accepted_at=now,
        workspace_ref=f"file:///workspace/lucius/{tenant}/{key}/",
        doc_id=f"doc-{key}",
    )
    return replace(plan, **changes)


def claim_of(key: object, tenant: str = "tenant_a", *, keyed: bool = False) -> Claim:
    body = sha256(f"body {key}".encode()).hexdigest()
    claim = sha256(f"key {key}".encode()).hexdigest() if keyed else body
    return Claim(tenant, claim, body, keyed)


@dataclass(frozen=True)
class Made:
    """A job fresh from `submit`, with what the ledger needs to create it."""

    claim: Claim
    job: Job
    events: tuple[Event, ...]


def make(
    key: object,
    tenant: str = "tenant_a",
    *,
    keyed: bool = False,
    released: bool = False,
    now: datetime = START,
    **plan: Any,
) -> Made:
    decision = submit(plan_of(key, tenant, now=now, **plan), now)
    job, events = decision.job, decision.events
    if released:
        first = decide(job, release_of(job), now)
        job = replace(first.job, version=job.version)
        events = (*events, *first.events)
    return Made(claim_of(key, tenant, keyed=keyed), job, events)


def release_of(job: Job, index: int = 0) -> EntryReleased:
    attempt = len(job.steps[index].executions) + 1
    return EntryReleased(
        job.plan.steps[index].step_id, name_of("lease", job.job_id, index, attempt)
    )


def _lease(job: Job, index: int) -> tuple[str, int, str]:
    execution = job.steps[index].executions[-1]
    return job.plan.steps[index].step_id, execution.attempt_no, execution.exec_id


def ack_of(job: Job, index: int = 0) -> AckReceived:
    return AckReceived(*_lease(job, index), worker_id="worker-1")


def success_of(job: Job, index: int = 0) -> ResultReceived:
    step_id, attempt_no, lease_id = _lease(job, index)
    result = f"{job.plan.workspace_ref}{step_id}/output.json"
    return ResultReceived(step_id, attempt_no, lease_id, ResultStatus.SUCCEEDED, result)


def failure_of(job: Job, index: int = 0, *, final: bool = True) -> ResultReceived:
    status = ResultStatus.FAILED_FINAL if final else ResultStatus.FAILED_RETRY
    fault = Fault("BROKEN", "the page cannot be read")
    return ResultReceived(*_lease(job, index), status, fault=fault)


def life_of(job: Job, seconds: float = 0) -> list[Decision]:
    """A released job to its success, a decision for each save: ACK, then RESULT with the next release."""
    decisions: list[Decision] = []
    for index in range(len(job.steps)):
        for received in (ack_of, success_of):
            seconds += 1
            decision = decide(job, received(job, index), at(seconds))
            if received is success_of and index + 1 < len(job.steps):
                decision = then(decision, release_of(decision.job, index + 1), at(seconds))
            decisions.append(decision)
            job = decision.job
    return decisions


def then(first: Decision, received: Input, now: datetime) -> Decision:
    """Two inputs in one save, as an engine does when the window has room."""
    second = decide(first.job, received, now)
    job = replace(second.job, version=first.job.version)
    return replace(second, job=job, events=(*first.events, *second.events))
