"""Failures in groups: what failed alike, how often, since when, for whom, and an example."""

from dataclasses import replace
from typing import Annotated, Final

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from lucius.contract.models.base import JsonObject, MayMiss
from lucius.contract.models.insight import (
    MAX_FILTER,
    FailureGroupView,
    FailuresView,
    PlanFilter,
    RedrivePlansView,
    RedrivePlanView,
    StartRedriveBody,
)
from lucius.core.idempotency import canonical_json
from lucius.core.job import JobState
from lucius.http.context import ApiContext, Caller, Role
from lucius.http.parameters import (
    AnyOrder,
    PlanIdInPath,
    WordsParameter,
    job_filter,
    reason_in,
    tenants_asked,
)
from lucius.http.problems import Problem, header, offered, problems
from lucius.http.routing import ApiRoute, Context, KnownCaller, json_response, needs
from lucius.http.views import picked
from lucius.ports.failures import FailureGroup
from lucius.ports.ledger import JobQuery, looks_inside
from lucius.ports.redrives import RedrivePlan, RedriveRules

router = APIRouter(route_class=ApiRoute, tags=["failures"], dependencies=[needs(Role.READ)])
_SHOWN_TENANTS: Final = 20


class FailuresQuery(BaseModel):
    """What the groups can be narrowed by."""

    tenant_id: MayMiss[WordsParameter] = Field(
        None, description="Only failures of this tenant; several with commas"
    )
    service: MayMiss[WordsParameter] = Field(
        None, description="Only failures of this service; several with commas"
    )
    step: MayMiss[WordsParameter] = Field(
        None, description="Only failures of this step; several with commas"
    )
    code: MayMiss[WordsParameter] = Field(
        None, description="Only failures of this code; several with commas"
    )

    def takes(self, group: FailureGroup) -> bool:
        asked = ((self.service, group.service), (self.step, group.step_id), (self.code, group.code))
        return all(not named or value in named for named, value in asked)


async def groups_for(
    context: ApiContext, caller: Caller, asked: frozenset[str] = frozenset()
) -> list[FailureGroup]:
    """What the caller may see: failures of its own tenants, or of all."""
    tenants = tenants_asked(asked, caller)
    return list(await offered(context.failures).groups(tenants))


@router.get(
    "/v1/failures",
    summary="Failed attempts in groups, the latest first",
    description="Attempts are one group if step, code, place in the service's code and message are the"
    " same, whatever numbers, ids and names the message has. Counts may be ten seconds old.",
    response_model=FailuresView,
    response_description="The groups with failures of the caller's tenants",
    responses=problems("NOT_SUPPORTED"),
)
async def list_failures(
    context: Context, caller: KnownCaller, asked: Annotated[FailuresQuery, Query()]
) -> Response:
    groups = await groups_for(context, caller, frozenset(asked.tenant_id or ()))
    return json_response({"groups": [group_view(group) for group in groups if asked.takes(group)]})


@router.get(
    "/v1/failures/{group}",
    summary="One group of failures",
    response_model=FailureGroupView,
    response_description="The group",
    responses=problems("GROUP_NOT_FOUND", "NOT_SUPPORTED"),
)
async def get_failure_group(
    context: Context,
    caller: KnownCaller,
    group: Annotated[str, Path(min_length=1, description="The group's id")],
) -> Response:
    for each in await groups_for(context, caller):
        if each.group == group:
            return json_response(group_view(each))
    raise no_group(group)


def no_group(name: str) -> Problem:
    return Problem(
        "GROUP_NOT_FOUND",
        f"no failures are grouped as {name[:64]!r}; `lucius failures` lists groups",
    )


def group_view(group: FailureGroup) -> JsonObject:
    shown, count = group.tenants[:_SHOWN_TENANTS], len(group.tenants)
    return picked(FailureGroupView, group, tenants=shown, tenant_count=count)


# Redrive plans: start one for what failed alike, see how far it is, and stop it.

redrives_router = APIRouter(route_class=ApiRoute, tags=["failures"])


@redrives_router.post(
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


@redrives_router.get(
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


@redrives_router.post(
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


@redrives_router.get(
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
