"""Redrive plans: start one for what failed alike, see how far it is, and stop it."""

from dataclasses import replace

from fastapi import APIRouter
from starlette.responses import Response

from lucius.api.context import ApiContext, Caller, Role
from lucius.api.declared import header, problems
from lucius.api.filters import job_filter
from lucius.api.orders import AnyOrder, reason_in
from lucius.api.parameters import PlanIdInPath
from lucius.api.problems import Problem, offered
from lucius.api.routes.failures import groups_for, no_group
from lucius.api.routing import ApiRoute, Context, KnownCaller, json_response, needs
from lucius.api.views import picked
from lucius.contract.models.base import JsonObject
from lucius.contract.models.insight import (
    MAX_FILTER,
    PlanFilter,
    RedrivePlansView,
    RedrivePlanView,
    StartRedriveBody,
)
from lucius.core.idempotency import canonical_json
from lucius.core.states import JobState
from lucius.ports.ledger import JobQuery, looks_inside
from lucius.ports.redrives import RedrivePlan, RedriveRules

router = APIRouter(route_class=ApiRoute, tags=["failures"])


@router.post(
    "/v1/redrives",
    summary="Redrive failed jobs by a plan: a few first, then the rest at a pace, until too many fail again",
    description="It survives a restart, keeps to the limits of the tenants, and stops by itself.",
    dependencies=[needs(Role.OPERATE)],
    status_code=202,
    response_model=RedrivePlanView,
    response_description="The plan is durable",
    responses={
        202: {"headers": header("Location", "The plan")},
        **problems(
            "GROUP_NOT_FOUND",
            "NOTHING_TO_REDRIVE",
            "PLAN_UNDER_WAY",
            "TOO_MANY_PLANS",
            "FILTER_TOO_WIDE",
            "NOT_SUPPORTED",
        ),
    },
)
async def start_redrive(context: Context, caller: KnownCaller, body: StartRedriveBody) -> Response:
    query = _query(body.filter, caller)
    if query.group is not None:
        known = {group.group for group in await groups_for(context, caller)}
        if query.group not in known:
            raise no_group(query.group)
    rules, bound = _rules(body), caller.tenants is not None
    plan = await offered(context.redrives).start(
        query, rules, caller.known_as, reason_in(body), bound=bound
    )
    location = {"location": f"/v1/redrives/{plan.plan_id}"}
    return json_response(plan_view(plan), 202, location)


def _query(given: PlanFilter, caller: Caller) -> JobQuery:
    if len(canonical_json(given.model_dump(exclude_unset=True))) > MAX_FILTER:
        detail = f"must have at most {MAX_FILTER} characters as JSON"
        raise Problem("INVALID_BODY", errors=[{"pointer": "/filter", "detail": detail}])
    query = replace(job_filter(given, caller, (JobState.FAILED_FINAL,)), states=None, dlq=True)
    if not (looks_inside(query) or query.request_type or given.tenant_id is not None):
        detail = "must name what should be redriven"
        raise Problem("FILTER_TOO_WIDE", errors=[{"pointer": "/filter", "detail": detail}])
    return query


def _rules(body: StartRedriveBody) -> RedriveRules:
    stop_after, counts = _stop_after(str(body.stop_after))
    return RedriveRules(body.canary, body.rate, stop_after, counts)


def _stop_after(text: str) -> tuple[float, bool]:
    if text.endswith("%"):
        return int(text.removesuffix("%")) / 100, False
    return float(text), True


@router.get(
    "/v1/redrives",
    summary="Redrive plans, the newest first",
    dependencies=[needs(Role.READ)],
    response_model=RedrivePlansView,
    response_description="The plans that concern only tenants of the caller",
    responses=problems("NOT_SUPPORTED"),
)
async def list_redrives(context: Context, caller: KnownCaller) -> Response:
    plans = [plan for plan in await offered(context.redrives).plans() if _may_see(caller, plan)]
    return json_response({"plans": [plan_view(plan) for plan in plans]})


@router.post(
    "/v1/redrives/{planId}:stop",
    summary="Stop a redrive plan; what it has redriven goes on",
    dependencies=[needs(Role.OPERATE)],
    response_model=RedrivePlanView,
    response_description="The plan",
    responses=problems("PLAN_NOT_FOUND", "NOT_SUPPORTED"),
)
async def stop_redrive(
    context: Context, caller: KnownCaller, plan_id: PlanIdInPath, body: AnyOrder = None
) -> Response:
    plan = await _visible_plan(context, plan_id, caller)
    stopped = await offered(context.redrives).stop(plan.plan_id, caller.known_as)
    if stopped is None:
        raise Problem("PLAN_NOT_FOUND")
    return json_response(plan_view(stopped))


@router.get(
    "/v1/redrives/{planId}",
    summary="A redrive plan and how far it is",
    dependencies=[needs(Role.READ)],
    response_model=RedrivePlanView,
    response_description="The plan",
    responses=problems("PLAN_NOT_FOUND", "NOT_SUPPORTED"),
)
async def get_redrive(context: Context, caller: KnownCaller, plan_id: PlanIdInPath) -> Response:
    return json_response(plan_view(await _visible_plan(context, plan_id, caller)))


async def _visible_plan(context: ApiContext, plan_id: str, caller: Caller) -> RedrivePlan:
    for plan in await offered(context.redrives).plans():
        if plan.plan_id == plan_id and _may_see(caller, plan):
            return plan
    raise Problem("PLAN_NOT_FOUND")


def _may_see(caller: Caller, plan: RedrivePlan) -> bool:
    """A plan counts the jobs of all of its tenants, so who is bound must be bound to all of them."""
    if caller.tenants is None:
        return True
    return plan.tenants is not None and caller.tenants.issuperset(plan.tenants)


def plan_view(plan: RedrivePlan) -> JsonObject:
    rules = plan.rules
    named = {"tenant_id": sorted(plan.tenants)} if plan.tenants is not None else {}
    return picked(
        RedrivePlanView,
        plan,
        planId=plan.plan_id,
        filter={**plan.filters, **named},
        canary=rules.canary,
        rate=rules.rate,
        stop_after=f"{rules.stop_after:g}" if rules.counts else f"{rules.stop_after:.0%}",
    )
