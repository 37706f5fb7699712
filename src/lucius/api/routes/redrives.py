"""Redrive plans: start one for what failed alike, see how far it is, and stop it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from lucius.api.body import field_problem, json_object, number_in, optional_object, whole_in
from lucius.api.context import ApiContext, Caller, Role
from lucius.api.explain import instant
from lucius.api.filters import FILTER, job_filter
from lucius.api.openapi import path_parameter
from lucius.api.operation import Answer, Operation
from lucius.api.orders import REASON, reason_in
from lucius.api.problems import Problem
from lucius.api.routes.failures import groups_for, no_group
from lucius.api.routing import Context, KnownCaller, json_response
from lucius.contract.shapes import RedrivePlanShape, RedrivePlansShape
from lucius.core.bounds import Whole
from lucius.core.idempotency import canonical_json
from lucius.core.states import JobState
from lucius.ports.ledger import JobQuery, looks_inside
from lucius.ports.redrives import RATE, RedrivePlan, RedriveRules, Redrives

CANARY: Final = Whole(0, 100)
MAX_FILTER: Final = 16_384
"""Characters of a plan's filter: it is stored, and read every second while the plan runs."""
_COUNT: Final = Whole(0, 999_999)
_NOT_HERE: Final = ("state", "live", "stuck")
_FILTER: Final[dict[str, Any]] = {
    **FILTER,
    "description": "Which jobs of the dead-letter view; it must name something, and have at most"
    f" {MAX_FILTER} characters as JSON",
    "properties": {n: rule for n, rule in FILTER["properties"].items() if n not in _NOT_HERE},
    "anyOf": [
        {"required": [name]}
        for name in ("group", "code", "step", "service", "request_type", "tenant_id")
    ],
}
_PLAN_ID: Final = path_parameter("planId", "The plan's id")
_BODY: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["filter"],
    "properties": {
        "filter": _FILTER,
        "canary": {
            **CANARY.schema,
            "default": 5,
            "description": "So many are redriven first; the rest waits for how they end",
        },
        "rate": {
            **RATE.schema,
            "default": 10,
            "description": "Jobs that are redriven in a second",
        },
        "stop_after": {
            "anyOf": [
                {"type": "string", "pattern": "^([0-9]{1,6}|[0-9]{1,2}%|100%)$"},
                _COUNT.schema,
            ],
            "default": "10%",
            "description": "Stop when more have failed again: a part of those that ended (`10%`), or a count",
        },
        **REASON,
    },
}


def _redrives(context: ApiContext) -> Redrives:
    if context.redrives is None:
        raise Problem("NOT_SUPPORTED")
    return context.redrives


async def start_redrive(context: Context, request: Request, caller: KnownCaller) -> Response:
    body = await json_object(request, context.options.max_body_bytes)
    rules, reason = _rules(body), reason_in(body)
    query = _query(body, caller)
    if query.group is not None:
        known = {group.group for group in await groups_for(context, caller)}
        if query.group not in known:
            raise no_group(query.group)
    bound = caller.tenants is not None
    plan = await _redrives(context).start(query, rules, caller.known_as, reason, bound=bound)
    location = {"location": f"/v1/redrives/{plan.plan_id}"}
    return json_response(plan_view(plan), 202, location)


def _query(body: Mapping[str, Any], caller: Caller) -> JobQuery:
    given = body.get("filter")
    for name in _NOT_HERE:
        if isinstance(given, dict) and name in given:
            raise field_problem(f"/filter/{name}", "a plan takes jobs of the dead-letter view only")
    if isinstance(given, dict) and len(canonical_json(given)) > MAX_FILTER:
        raise field_problem("/filter", f"must have at most {MAX_FILTER} characters as JSON")
    failed = (JobState.FAILED_FINAL,)
    query = replace(job_filter(body, caller, failed, failed), states=None, dlq=True)
    named = isinstance(given, dict) and "tenant_id" in given
    if not (looks_inside(query) or query.request_type or named):
        raise Problem("FILTER_TOO_WIDE")
    return query


def _rules(body: Mapping[str, Any]) -> RedriveRules:
    canary, rate = whole_in(body, "canary", CANARY, 5), number_in(body, "rate", RATE, 10)
    stop_after, counts = _stop_after(body.get("stop_after", "10%"))
    return RedriveRules(canary, rate, stop_after, counts)


def _stop_after(value: Any) -> tuple[float, bool]:
    text = value.strip() if isinstance(value, str) else str(_COUNT.read(value))
    number = text.removesuffix("%")
    if not number.isascii() or not number.isdigit() or len(number) > 6:
        raise field_problem("/stop_after", "must be a part such as 10%, or a count such as 25")
    if text.endswith("%"):
        if int(number) > 100:
            raise field_problem("/stop_after", "must be at most 100%")
        return int(number) / 100, False
    return float(number), True


async def list_redrives(context: Context, request: Request, caller: KnownCaller) -> Response:
    plans = [plan for plan in await _redrives(context).plans() if _may_see(caller, plan)]
    answer: RedrivePlansShape = {"plans": [plan_view(plan) for plan in plans]}
    return json_response(answer)


async def get_redrive(context: Context, request: Request, caller: KnownCaller) -> Response:
    return json_response(plan_view(await _visible_plan(context, request, caller)))


async def stop_redrive(context: Context, request: Request, caller: KnownCaller) -> Response:
    body = await optional_object(request, context.options.max_body_bytes)
    reason_in(body)
    plan = await _visible_plan(context, request, caller)
    stopped = await _redrives(context).stop(plan.plan_id, caller.known_as)
    if stopped is None:
        raise Problem("PLAN_NOT_FOUND")
    return json_response(plan_view(stopped))


async def _visible_plan(context: ApiContext, request: Request, caller: Caller) -> RedrivePlan:
    for plan in await _redrives(context).plans():
        if plan.plan_id == request.path_params["planId"] and _may_see(caller, plan):
            return plan
    raise Problem("PLAN_NOT_FOUND")


def _may_see(caller: Caller, plan: RedrivePlan) -> bool:
    """A plan counts the jobs of all of its tenants, so who is bound must be bound to all of them."""
    if caller.tenants is None:
        return True
    return plan.tenants is not None and caller.tenants.issuperset(plan.tenants)


def plan_view(plan: RedrivePlan) -> RedrivePlanShape:
    rules = plan.rules
    named = {"tenant_id": sorted(plan.tenants)} if plan.tenants is not None else {}
    return {
        "planId": plan.plan_id,
        "state": plan.state.value,
        "filter": {**plan.filters, **named},
        "canary": rules.canary,
        "rate": rules.rate,
        "stop_after": f"{rules.stop_after:g}" if rules.counts else f"{rules.stop_after:.0%}",
        "created_at": instant(plan.created_at),
        "updated_at": instant(plan.updated_at),
        "by": plan.by,
        "reason": plan.reason,
        "matched": plan.matched,
        "redriven": plan.redriven,
        "succeeded": plan.succeeded,
        "failed": plan.failed,
        "refused": plan.refused,
        "under_way": plan.under_way,
        "said": plan.said,
    }


OPERATIONS: Final = (
    Operation(
        "POST",
        "/v1/redrives",
        start_redrive,
        "Redrive failed jobs by a plan: a few first, then the rest at a pace, until too many fail again",
        "failures",
        Role.OPERATE,
        {202: Answer("The plan is durable", RedrivePlanShape, headers={"Location": "The plan"})},
        body=_BODY,
        description="It survives a restart, keeps to the limits of the tenants, and stops by itself.",
    ),
    Operation(
        "GET",
        "/v1/redrives",
        list_redrives,
        "Redrive plans, the newest first",
        "failures",
        Role.READ,
        {200: Answer("The plans that concern only tenants of the caller", RedrivePlansShape)},
    ),
    Operation(
        "POST",
        "/v1/redrives/{planId}:stop",
        stop_redrive,
        "Stop a redrive plan; what it has redriven goes on",
        "failures",
        Role.OPERATE,
        {200: Answer("The plan", RedrivePlanShape)},
        parameters=(_PLAN_ID,),
        body={"type": "object", "properties": REASON},
        body_required=False,
    ),
    Operation(
        "GET",
        "/v1/redrives/{planId}",
        get_redrive,
        "A redrive plan and how far it is",
        "failures",
        Role.READ,
        {200: Answer("The plan", RedrivePlanShape)},
        parameters=(_PLAN_ID,),
    ),
)
