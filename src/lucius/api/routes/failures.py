"""Failures in groups: what failed alike, how often, since when, for whom, and an example."""

from typing import Annotated, Final

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from lucius.api.context import ApiContext, Caller, Role
from lucius.api.declared import problems
from lucius.api.filters import tenants_asked
from lucius.api.parameters import WordsParameter
from lucius.api.problems import Problem, offered
from lucius.api.routing import ApiRoute, Context, KnownCaller, json_response, needs
from lucius.api.views import picked
from lucius.contract.models.base import JsonObject, MayMiss
from lucius.contract.models.insight import FailureGroupView, FailuresView
from lucius.ports.failures import FailureGroup

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
