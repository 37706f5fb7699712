"""Causes, groups of failures and redrive plans."""

from typing import Any

from typing_extensions import TypedDict


class EvidenceShape(TypedDict):
    """One fact that led to a cause, and when it was so."""

    what: str
    at: str | None


class NextShape(TypedDict):
    """What happens by itself, and when, if that is known."""

    what: str
    at: str | None


class WhyShape(TypedDict):
    """A cause. `cause` is stable and has a reference page; `severity` is FINE, WAITS, PROBLEM or OUTAGE."""

    cause: str
    severity: str
    summary: str
    since: str | None
    evidence: list[EvidenceShape]
    next: NextShape
    command: str
    service: str | None


class JobWhyShape(WhyShape):
    jobId: str


class SystemWhyShape(TypedDict):
    causes: list[WhyShape]


class FailureGroupShape(TypedDict):
    """Failed attempts that are alike, of the tenants that the caller may see. `message` is what they have in
    common; `trend` counts each five minutes of the last hour, the latest last; `example` failed so last.
    `tenants` names the first twenty, `tenant_count` says how many there are.
    """

    group: str
    step_id: str
    service: str
    code: str
    message: str
    place: str | None
    count: int
    first_at: str
    last_at: str
    tenants: list[str]
    tenant_count: int
    trend: list[int]
    example: str


class FailuresShape(TypedDict):
    groups: list[FailureGroupShape]


class RedrivePlanShape(TypedDict):
    """A redrive of many. `state` is CANARY, RUNNING, DONE or STOPPED. `matched`: jobs at the start;
    `redriven`, `succeeded`, `failed`, `refused` and `under_way` count what became of them. `said`: why it
    stopped, or what it waits for.
    """

    planId: str
    state: str
    filter: dict[str, Any]
    canary: int
    rate: float
    stop_after: str
    created_at: str
    updated_at: str
    by: str
    reason: str | None
    matched: int
    redriven: int
    succeeded: int
    failed: int
    refused: int
    under_way: int
    said: str


class RedrivePlansShape(TypedDict):
    plans: list[RedrivePlanShape]
