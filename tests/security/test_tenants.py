"""One tenant cannot see, move, count or even guess at the jobs of another, whatever route it takes."""

from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from lucius.core.errors import LedgerRowUnreadableError
from lucius.core.inputs import ResultReceived, ResultStatus
from lucius.core.job import Fault, JobState
from lucius.http.context import Caller, Role
from lucius.ports.ledger import JobQuery
from lucius.ports.redrives import RedriveRules
from tests.api.world import ENVELOPE, World, client_of, context_of
from tests.security.routes import GUARDED, DocumentedRoute

OURS, THEIRS = "tenant_a", "tenant_b"
BOUND = [route for route in GUARDED if not route.for_every_tenant]
OF_A_JOB = [route for route in BOUND if route.of_a_job]
OTHERS = [route for route in BOUND if not route.of_a_job]


async def bound_caller(request: Request) -> Caller:
    return Caller("theirs", frozenset(Role), frozenset({THEIRS}))


def context(world: World, **more: Any) -> Any:
    return context_of(world, authenticate=bound_caller, **more)


async def our_jobs(world: World) -> None:
    """One that runs, one that failed: both of the other tenant."""
    await world.submit(ENVELOPE)
    failed = (await world.submit({**ENVELOPE, "payload": {"n": 1}})).job_id
    await fail(world, failed)


async def fail(world: World, job_id: str) -> None:
    reply = await world.out(job_id)
    bound = (reply["stepId"], reply["attempt_no"], reply["lease_id"])
    fault = Fault("BROKEN", "it is broken")
    await world.apply(job_id, ResultReceived(*bound, ResultStatus.FAILED_FINAL, None, fault))


def same(one: httpx.Response, other: httpx.Response) -> bool:
    return (one.status_code, one.content, one.headers) == (
        other.status_code,
        other.content,
        other.headers,
    )


@pytest.mark.parametrize(
    ("tenant_id", "status", "code"),
    [(OURS, 404, "JOB_NOT_FOUND"), (THEIRS, 500, "LEDGER_ROW_UNREADABLE")],
)
async def test_a_job_that_cannot_be_read_is_named_to_its_own_tenant_only(
    world: World, tenant_id: str, status: int, code: str
) -> None:
    world.ledger.failing = LedgerRowUnreadableError("job_0", "what it holds", tenant_id=tenant_id)
    async with client_of(context(world)) as client:
        answer = await client.get("/v1/jobs/job_0")
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert "what it holds" not in answer.text


@pytest.mark.parametrize("route", OF_A_JOB, ids=str)
async def test_a_job_of_another_tenant_looks_like_none_at_all(
    world: World, route: DocumentedRoute
) -> None:
    await our_jobs(world)
    before = dict(world.jobs)
    async with client_of(context(world)) as client:
        for job_id in ("job_0", "job_1"):
            theirs = await route.ask(client, None, job_id)
            missing = await route.ask(client, None, "job_9")
            assert theirs.status_code == 404
            assert same(theirs, missing)
    assert world.jobs == before


@pytest.mark.parametrize(
    "query", ["stream=true", "after=0&limit=1", "wait_seconds=1", "step_id=ocr"]
)
@pytest.mark.parametrize("path", ["", "/events", "/steps", "/executions"])
async def test_no_parameter_makes_a_difference_between_them(
    world: World, path: str, query: str
) -> None:
    await our_jobs(world)
    async with client_of(context(world)) as client:
        theirs = await client.get(f"/v1/jobs/job_0{path}?{query}")
        assert same(theirs, await client.get(f"/v1/jobs/job_9{path}?{query}"))


Check = Callable[[World, httpx.AsyncClient, DocumentedRoute], Awaitable[None]]


async def _submits_nothing(world: World, client: httpx.AsyncClient, route: DocumentedRoute) -> None:
    answer = await route.ask(client, None)
    assert (answer.status_code, answer.json()["code"]) == (403, "TENANT_FORBIDDEN")


async def _lists_nothing(world: World, client: httpx.AsyncClient, route: DocumentedRoute) -> None:
    for query in ({}, {"tenant_id": OURS}, {"tenant_id": f"{OURS},{THEIRS}"}):
        answer = await client.get(route.path, params=query)
        assert answer.json() == {"jobs": [], "next_cursor": None}


async def _moves_nothing(world: World, client: httpx.AsyncClient, route: DocumentedRoute) -> None:
    for given in ({}, {"tenant_id": OURS}, {"tenant_id": [OURS, THEIRS]}):
        for dry_run in (True, False):
            body = {"filter": given, "dry_run": dry_run}
            answer = await client.post(route.path, json=body)
            assert answer.json()["matched"] == 0


async def _names_no_tenant(world: World, client: httpx.AsyncClient, route: DocumentedRoute) -> None:
    answer = await route.ask(client, None)
    assert OURS not in answer.text


async def _counts_nothing(world: World, client: httpx.AsyncClient, route: DocumentedRoute) -> None:
    answer = await route.ask(client, None)
    assert answer.status_code == 200
    for service in answer.json()["services"]:
        numbers = (service["waiting"], service["sent"], service["running"], service["failure_rate"])
        assert (numbers, service["workers"]) == ((None,) * 4, [])


async def _groups_nothing(world: World, client: httpx.AsyncClient, route: DocumentedRoute) -> None:
    (ours,) = await world.activity.failures.groups(None)
    assert (await client.get("/v1/failures")).json() == {"groups": []}
    assert (await client.get(f"/v1/failures?tenant_id={OURS}")).json() == {"groups": []}
    theirs = await client.get(f"/v1/failures/{ours.group}")
    assert (theirs.status_code, theirs.json()["code"]) == (404, "GROUP_NOT_FOUND")


async def _plans_nothing(world: World, client: httpx.AsyncClient, route: DocumentedRoute) -> None:
    """Neither for the jobs of another tenant, nor a plan of theirs."""
    (ours,) = await world.activity.failures.groups(None)
    query = JobQuery(dlq=True, group=ours.group)
    plan = await world.insight.redrives.start(query, RedriveRules(), "anna", None)
    for given in ({"code": "BROKEN"}, {"tenant_id": OURS}, {"group": ours.group}):
        answer = await client.post("/v1/redrives", json={"filter": given})
        assert answer.json()["code"] in ("NOTHING_TO_REDRIVE", "GROUP_NOT_FOUND")
    assert (await client.get("/v1/redrives")).json() == {"plans": []}
    for asked in (
        await client.get(f"/v1/redrives/{plan.plan_id}"),
        await client.post(f"/v1/redrives/{plan.plan_id}:stop"),
    ):
        assert (asked.status_code, asked.json()["code"]) == (404, "PLAN_NOT_FOUND")


CHECKS: dict[str, Check] = {
    "POST /v1/orchestrate": _submits_nothing,
    "POST /v1/commands": _submits_nothing,
    "GET /v1/jobs": _lists_nothing,
    "GET /v1/admin/dlq": _lists_nothing,
    "POST /v1/jobs:cancel": _moves_nothing,
    "POST /v1/jobs:pause": _moves_nothing,
    "POST /v1/jobs:resume": _moves_nothing,
    "POST /v1/jobs:retry": _moves_nothing,
    "POST /v1/jobs:redrive": _moves_nothing,
    "POST /v1/jobs:dismiss": _moves_nothing,
    "GET /v1/protocols": _names_no_tenant,
    "GET /v1/services": _counts_nothing,
    "GET /v1/why": _names_no_tenant,
    "GET /v1/webhooks": _names_no_tenant,
    "GET /v1/failures": _groups_nothing,
    "GET /v1/failures/{group}": _groups_nothing,
    "POST /v1/redrives": _plans_nothing,
    "GET /v1/redrives": _plans_nothing,
    "GET /v1/redrives/{planId}": _plans_nothing,
    "POST /v1/redrives/{planId}:stop": _plans_nothing,
    "POST /v1/services/{service}/directives:pull": _names_no_tenant,
    "POST /v1/services/{service}/replies": _names_no_tenant,
}
"""What a route that is not about one job must keep to itself. A route that is new has to be listed."""


@pytest.mark.parametrize("route", OTHERS, ids=str)
async def test_nothing_of_another_tenant_is_shown_or_moved(
    world: World, route: DocumentedRoute
) -> None:
    await our_jobs(world)
    before = dict(world.jobs)
    async with client_of(context(world)) as client:
        await CHECKS[str(route)](world, client, route)
    assert world.jobs == before


async def test_a_worker_pulls_only_for_its_tenants(world: World) -> None:
    asked: list[Any] = []

    class Gateway:
        async def admit(self, *given: object) -> None:
            """Everyone may pull."""

        async def pull(self, *given: Any) -> list[Any]:
            asked.append(given[3])
            return []

    async with client_of(context(world, gateway=Gateway())) as client:
        await client.post("/v1/services/ocr-service/directives:pull", json={})
    assert asked == [frozenset({THEIRS})]


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/admin/dlq"])
async def test_a_cursor_of_another_tenant_is_refused(world: World, path: str) -> None:
    for number in range(4):
        made = await world.submit({**ENVELOPE, "payload": {"n": number}})
        await fail(world, made.job_id)
    async with client_of(context_of(world)) as everyone:
        cursor = (await everyone.get(f"{path}?limit=2")).json()["next_cursor"]
        named = (await everyone.get(f"{path}?limit=2&tenant_id={THEIRS},{OURS}")).json()
    assert cursor
    async with client_of(context(world)) as client:
        for stolen in (cursor, named["next_cursor"], "x." + cursor.partition(".")[2]):
            answer = await client.get(path, params={"limit": 2, "cursor": stolen})
            assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_CURSOR")


async def test_the_guard_is_what_keeps_them_apart(world: World) -> None:
    """The same questions, asked by a caller of both tenants, find everything."""
    await our_jobs(world)
    async with client_of(context_of(world)) as client:
        assert (await client.get("/v1/jobs/job_0")).status_code == 200
        assert len((await client.get("/v1/jobs")).json()["jobs"]) == 2
        dead = (await client.get("/v1/admin/dlq")).json()["jobs"]
    assert [job["state"] for job in dead] == [JobState.FAILED_FINAL]
