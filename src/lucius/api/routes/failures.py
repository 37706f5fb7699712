"""Failures in groups: what failed alike, how often, since when, for whom, and an example."""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from lucius.api.context import ApiContext, Caller, Role
from lucius.api.explain import instant
from lucius.api.openapi import path_parameter, query_parameter
from lucius.api.operation import Answer, Operation
from lucius.api.problems import Problem
from lucius.api.queries import REPEATABLE
from lucius.api.requests import words
from lucius.api.routing import Context, KnownCaller, json_response
from lucius.contract.shapes import FailureGroupShape, FailuresShape
from lucius.ports.failures import FailureGroup

_SHOWN_TENANTS: Final = 20
_FILTERS: Final = tuple(
    query_parameter(
        name,
        f"Only failures of {about}; several with commas",
        {"type": "string", "pattern": r"[^,\s]"},
    )
    | {REPEATABLE: True}
    for name, about in (
        ("tenant_id", "this tenant"),
        ("service", "this service"),
        ("step", "this step"),
        ("code", "this code"),
    )
)


async def groups_for(
    context: ApiContext, caller: Caller, asked: frozenset[str] = frozenset()
) -> list[FailureGroup]:
    """What the caller may see: failures of its own tenants, or of all."""
    if context.failures is None:
        raise Problem("NOT_SUPPORTED")
    tenants = asked or caller.tenants
    if caller.tenants is not None and asked:
        tenants = asked & caller.tenants
    return list(await context.failures.groups(tenants))


async def list_failures(context: Context, request: Request, caller: KnownCaller) -> Response:
    asked = {name: frozenset(words(request, name)) for name in ("service", "step", "code")}
    groups = await groups_for(context, caller, frozenset(words(request, "tenant_id")))
    kept = [
        group
        for group in groups
        if (not asked["service"] or group.service in asked["service"])
        and (not asked["step"] or group.step_id in asked["step"])
        and (not asked["code"] or group.code in asked["code"])
    ]
    answer: FailuresShape = {"groups": [group_view(group) for group in kept]}
    return json_response(answer)


async def get_failure_group(context: Context, request: Request, caller: KnownCaller) -> Response:
    name: str = request.path_params["group"]
    for group in await groups_for(context, caller):
        if group.group == name:
            return json_response(group_view(group))
    raise no_group(name)


def no_group(name: str) -> Problem:
    return Problem(
        "GROUP_NOT_FOUND",
        f"no failures are grouped as {name[:64]!r}; `lucius failures` lists groups",
    )


def group_view(group: FailureGroup) -> FailureGroupShape:
    return {
        "group": group.group,
        "step_id": group.step_id,
        "service": group.service,
        "code": group.code,
        "message": group.message,
        "place": group.place,
        "count": group.count,
        "first_at": instant(group.first_at),
        "last_at": instant(group.last_at),
        "tenants": list(group.tenants[:_SHOWN_TENANTS]),
        "tenant_count": len(group.tenants),
        "trend": list(group.trend),
        "example": group.example,
    }


OPERATIONS: Final = (
    Operation(
        "GET",
        "/v1/failures",
        list_failures,
        "Failed attempts in groups, the latest first",
        "failures",
        Role.READ,
        {200: Answer("The groups with failures of the caller's tenants", FailuresShape)},
        parameters=_FILTERS,
        description="Attempts are one group if step, code, place in the service's code and message are the"
        " same, whatever numbers, ids and names the message has. Counts may be ten seconds old.",
    ),
    Operation(
        "GET",
        "/v1/failures/{group}",
        get_failure_group,
        "One group of failures",
        "failures",
        Role.READ,
        {200: Answer("The group", FailureGroupShape)},
        parameters=(path_parameter("group", "The group's id"),),
    ),
)
