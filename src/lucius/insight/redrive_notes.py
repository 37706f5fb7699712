"""Redrive plans as notes: what is stored of one, and which jobs it asks for."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from lucius.insight.notebook import Note
from lucius.ports.ledger import JobQuery
from lucius.ports.redrives import ENDED_PLAN, PlanState, RedrivePlan, RedriveRules


@dataclass(slots=True)
class TakenJobs:
    """Jobs that a plan has taken. `pending`: by the old job, the new one that has not ended.

    None stands for one that is about to be made.
    """

    pending: dict[str, str | None]
    refused: list[str]


def taken_of(note: Note) -> TakenJobs:
    return TakenJobs(dict(note["pending"]), list(note.get("refused", ())))


def filters_of(query: JobQuery) -> dict[str, Any]:
    """What the plan asks for, as a filter of the API says it."""
    several = {"code": query.codes, "step": query.steps, "service": query.services}
    single = {"group": query.group, "request_type": query.request_type}
    times = {"created_from": query.created_from, "created_to": query.created_to}
    found: dict[str, Any] = {n: sorted(v) for n, v in several.items() if v is not None}
    found |= {name: value for name, value in single.items() if value is not None}
    return found | {name: at.isoformat() for name, at in times.items() if at is not None}


def query_of(plan: RedrivePlan) -> JobQuery:
    given = plan.filters

    def some(name: str) -> frozenset[str] | None:
        return frozenset(given[name]) if name in given else None

    def moment(name: str) -> datetime | None:
        return datetime.fromisoformat(given[name]) if name in given else None

    return JobQuery(
        tenant_ids=plan.tenants,
        request_type=given.get("request_type"),
        created_from=moment("created_from"),
        created_to=moment("created_to"),
        dlq=True,
        codes=some("code"),
        steps=some("step"),
        services=some("service"),
        group=given.get("group"),
    )


def note_of(plan: RedrivePlan, taken: TakenJobs, fresh: list[str]) -> dict[str, Any]:
    return {
        "state": plan.state.value,
        "filters": dict(plan.filters),
        "tenants": sorted(plan.tenants) if plan.tenants is not None else None,
        "rules": [plan.rules.canary, plan.rules.rate, plan.rules.stop_after, plan.rules.counts],
        "created": plan.created_at.timestamp(),
        "updated": plan.updated_at.timestamp(),
        "paced": plan.paced_at.timestamp(),
        "by": plan.by,
        "reason": plan.reason,
        "counts": [plan.matched, plan.redriven, plan.succeeded, plan.failed, plan.refused],
        "said": plan.said,
        "pending": {**taken.pending, **dict.fromkeys(fresh)},
        "refused": taken.refused,
        "bound": plan.bound,
    }


def plan_shown(name: str, note: Note) -> RedrivePlan:
    """As `plan_of`. A note that cannot be read is a plan that has stopped, and hides no other."""
    try:
        return plan_of(name, note)
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        said = f"this plan cannot be read, start another one: {error!r}"
        never, rules = datetime.fromtimestamp(0, UTC), RedriveRules()
        return RedrivePlan(
            name, PlanState.STOPPED, {}, None, rules, never, never, never, "", said=said
        )


def is_through(note: Note) -> bool:
    """Ended, and the outcome of all that it redrove is known."""
    return note.get("state") in ENDED_PLAN and not note.get("pending")


def plan_of(name: str, note: Note) -> RedrivePlan:
    tenants, (matched, redriven, succeeded, failed, refused) = note["tenants"], note["counts"]
    return RedrivePlan(
        name,
        PlanState(note["state"]),
        note["filters"],
        frozenset(tenants) if tenants is not None else None,
        RedriveRules(*note["rules"]),
        datetime.fromtimestamp(note["created"], UTC),
        datetime.fromtimestamp(note["updated"], UTC),
        datetime.fromtimestamp(note.get("paced", note["updated"]), UTC),
        note["by"],
        note["reason"],
        matched,
        redriven,
        succeeded,
        failed,
        refused,
        under_way=len(note["pending"]),
        said=note["said"],
        bound=note.get("bound", False),
    )
