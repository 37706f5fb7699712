"""Who may do what: every route asks the one hook, and what is not the caller's does not exist."""

from typing import Any

import httpx
from starlette.requests import Request

from lucius.api.app import ROUTES
from lucius.api.context import Caller, Role
from lucius.api.problems import Problem
from lucius.api.routing import ApiRoute
from tests.api.world import ENVELOPE, World, accepted, client_of, context_of

GUARDED = [route for route in ROUTES if route.access.role is not None]
BY_TENANT = [op for op in GUARDED if "{jobId}" in op.path]


def known(**callers: Caller) -> Any:
    async def authenticate(request: Request) -> Caller:
        caller = callers.get(request.headers.get("authorization", ""))
        if caller is None:
            raise Problem("UNAUTHENTICATED", headers={"www-authenticate": "Bearer"})
        return caller

    return authenticate


def caller(*roles: Role, tenants: frozenset[str] | None = None) -> Caller:
    return Caller("test", frozenset(roles), tenants)


async def asked(client: httpx.AsyncClient, route: ApiRoute, name: str) -> httpx.Response:
    path = route.path.replace("{jobId}", "job_0").replace("{service}", "ocr-service")
    body = b"{}" if route.method == "POST" else None
    return await client.request(route.method, path, content=body, headers={"authorization": name})


async def test_a_caller_submits_only_for_its_tenants(world: World) -> None:
    authenticate = known(b=caller(*Role, tenants=frozenset({"tenant_b"})))
    async with client_of(context_of(world, authenticate=authenticate)) as client:
        client.headers["authorization"] = "b"
        answer = await client.post("/v1/orchestrate", json=ENVELOPE)
        assert (answer.status_code, answer.json()["code"]) == (403, "TENANT_FORBIDDEN")
        assert answer.json()["detail"] == "this key or token is for tenant_b, not for tenant_a"
        assert world.jobs == {}
        await accepted(client, tenant_id="tenant_b")


async def test_a_list_shows_only_the_callers_tenants(world: World) -> None:
    authenticate = known(b=caller(*Role, tenants=frozenset({"tenant_b"})), all=caller(*Role))
    async with client_of(context_of(world, authenticate=authenticate)) as client:
        await world.submit(ENVELOPE)
        await world.submit({**ENVELOPE, "tenant_id": "tenant_b"})
        for name, query, found in (
            ("all", {}, 2),
            ("b", {}, 1),
            ("b", {"tenant_id": "tenant_a"}, 0),
            ("b", {"tenant_id": "tenant_a,tenant_b"}, 1),
        ):
            headers = {"authorization": name}
            answer = await client.get("/v1/jobs", params=query, headers=headers)
            assert len(answer.json()["jobs"]) == found
