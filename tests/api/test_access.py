"""Who may do what: every route asks the one hook, and what is not the caller's does not exist."""

from typing import Any

import httpx
import pytest
from starlette.requests import Request

from lucius.http.app import ROUTES
from lucius.http.context import Caller, Role
from lucius.http.problems import Problem
from lucius.http.routing import ApiRoute
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


@pytest.mark.parametrize("route", GUARDED, ids=lambda op: f"{op.method} {op.path}")
async def test_a_route_is_closed_without_credentials_and_without_the_role(
    world: World, route: ApiRoute
) -> None:
    assert route.access.role is not None
    others = caller(*(role for role in Role if role not in route.access.roles))
    authenticate = known(others=others)
    async with client_of(context_of(world, authenticate=authenticate)) as client:
        answer = await asked(client, route, "nobody")
        assert (answer.status_code, answer.json()["code"]) == (401, "UNAUTHENTICATED")
        answer = await asked(client, route, "others")
        assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN")


@pytest.mark.parametrize("route", BY_TENANT, ids=lambda op: f"{op.method} {op.path}")
async def test_a_job_of_another_tenant_cannot_be_told_from_one_that_is_not(
    world: World, route: ApiRoute
) -> None:
    authenticate = known(b=caller(*Role, tenants=frozenset({"tenant_b"})))
    async with client_of(context_of(world, authenticate=authenticate)) as client:
        missing = await asked(client, route, "b")
        await world.submit(ENVELOPE)
        theirs = await asked(client, route, "b")
    assert missing.status_code == theirs.status_code == 404
    assert missing.content == theirs.content
    assert world.jobs["job_0"].version == 1


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


async def test_a_cursor_of_another_caller_is_refused(world: World) -> None:
    tenants = frozenset({"tenant_b"})
    authenticate = known(b=caller(*Role, tenants=tenants), all=caller(*Role))
    async with client_of(context_of(world, authenticate=authenticate)) as client:
        for number in range(2):
            await world.submit({**ENVELOPE, "payload": {"n": number}})
        page = await client.get("/v1/jobs?limit=1", headers={"authorization": "all"})
        query = {"limit": "1", "cursor": page.json()["next_cursor"]}
        answer = await client.get("/v1/jobs", params=query, headers={"authorization": "b"})
        assert answer.json()["code"] == "INVALID_CURSOR"


async def test_of_pulls_that_were_refused_only_those_of_services_are_remembered(
    world: World,
) -> None:
    """Strangers may name anything, and what is remembered is stored."""
    async with client_of(context_of(world, authenticate=known())) as client:
        for service in ("ocr-service", "o" * 2000, "no-service"):
            await client.post(f"/v1/services/{service}/directives:pull", json={})
    assert list(world.activity.refusals.record()["pulls"]) == ["ocr-service"]
