"""Health, readiness, metrics, and the parts that a process may run without."""

import asyncio

import httpx
import pytest
from starlette.requests import Request

from lucius.http.context import ApiOptions, Caller, Role
from lucius.http.limits import HostCheck
from lucius.http.problems import Problem
from lucius.ports.engine import BacklogRow
from tests.api.world import World, accepted, client_of, context_of


async def well() -> None: ...


async def ill() -> None:
    raise RuntimeError("the disk is full")


async def test_a_process_that_answers_is_alive(client: httpx.AsyncClient) -> None:
    answer = await client.get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


async def test_readiness_names_what_is_down(world: World) -> None:
    async with client_of(context_of(world, checks={"ledger": well, "bus": ill})) as client:
        answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()["code"]) == (503, "NOT_READY")
    assert answer.json()["detail"] == "bus: the disk is full"
    assert answer.json()["checks"] == {"ledger": "ok", "bus": "the disk is full"}


async def slow() -> None:
    await asyncio.Future()


CHECKS = {"ledger": well, "bus": ill, "reconciler": slow}
IN_FULL = {"ledger": "ok", "bus": "the disk is full", "reconciler": "no answer within 0.01 s"}
IN_SHORT = {"ledger": "ok", "bus": "failed", "reconciler": "no answer in time"}


async def by_role(request: Request) -> Caller:
    role = request.headers.get("x-role")
    if role is None:
        raise Problem("UNAUTHENTICATED")
    return Caller(role, frozenset((Role(role),)))


@pytest.mark.parametrize("role", [None, *Role])
async def test_why_something_is_down_is_told_to_operators_and_to_the_log(
    world: World, role: Role | None, caplog: pytest.LogCaptureFixture
) -> None:
    options = ApiOptions(check_seconds=0.01)
    context = context_of(world, checks=CHECKS, authenticate=by_role, options=options)
    async with client_of(context) as client:
        headers = {"x-role": role.value} if role else {}
        for _ in range(3):
            answer = await client.get("/readyz", headers=headers)
    operator = role in (Role.OPERATE, Role.ADMIN)
    assert answer.status_code == 503
    assert answer.json()["checks"] == (IN_FULL if operator else IN_SHORT)
    assert ("the disk is full" in answer.text) is operator
    said = [record.getMessage() for record in caplog.records if "check of bus" in record.message]
    assert said == ["the check of bus says: the disk is full"], "once, not at each request"


async def test_without_authentication_everyone_is_told_why(world: World) -> None:
    options = ApiOptions(check_seconds=0.01)
    async with client_of(context_of(world, checks=CHECKS, options=options)) as client:
        assert (await client.get("/readyz")).json()["checks"] == IN_FULL


async def test_a_process_whose_dependencies_are_well_is_ready(world: World) -> None:
    async with client_of(context_of(world, checks={"ledger": well})) as client:
        answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()["checks"]) == (200, {"ledger": "ok"})


async def test_requests_are_counted_by_route_and_status(client: httpx.AsyncClient) -> None:
    await accepted(client)
    await client.get("/v1/jobs/nope")
    text = (await client.get("/metrics")).text
    counted = 'lucius_http_requests_total{method="%s",route="%s",status="%s"} 1.0'
    assert counted % ("POST", "/v1/orchestrate", "202") in text
    assert counted % ("GET", "/v1/jobs/{jobId}", "404") in text


def backlog_row(service: str, mode: str, lane: int, held: int) -> BacklogRow:
    return BacklogRow(
        service=service,
        mode=mode,
        lane=lane,
        held=held,
        released=1,
        in_progress=2,
        window=4,
        oldest_seconds=0.0,
    )


async def test_operators_see_the_backlog_and_push_the_outbox(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        backlog_row("ocr-service", "DEFAULT", 3, 2),
        backlog_row("ocr-service", "DEFAULT", 4, 10),
        backlog_row("ocr-service", "BURST", 3, 100),
        backlog_row("sis-service", "DEFAULT", 3, 1000),
    ]

    async def backlog() -> list[BacklogRow]:
        return rows

    async def retry() -> dict[str, int]:
        return {"published": 2, "pending": 1, "failed": 0}

    monkeypatch.setattr(world.engine, "backlog", backlog)
    async with client_of(context_of(world, retry_outbox=retry)) as client:
        assert (await client.get("/v1/admin/backlog")).json() == {"backlog": rows}
        for query, number in (("", 121), ("?mode=DEFAULT", 18), ("?mode=BURST", 103)):
            answer = await client.get(f"/v1/admin/backlog/ocr-service{query}")
            assert answer.json() == {"backlog": number}
        assert (await client.get("/v1/admin/backlog/ocr-service?mode=FAST")).status_code == 422
        missing = await client.get("/v1/admin/backlog/no-such-service")
        assert (missing.status_code, missing.json()["code"]) == (404, "SERVICE_NOT_FOUND")
        answer = await client.post("/v1/admin/outbox/retry")
        assert answer.json() == {"published": 2, "pending": 1, "failed": 0}


async def test_workers_pull_directives(world: World) -> None:
    asked: list[tuple[object, ...]] = []

    class Gateway:
        async def admit(self, *given: object) -> None:
            """Everyone may pull."""

        async def pull(self, *given: object) -> list[dict[str, object]]:
            asked.append(given[:4])
            return []

    async with client_of(context_of(world, gateway=Gateway())) as client:
        body = {"max": 3, "wait_seconds": 0.5}
        answer = await client.post("/v1/services/ocr-service/directives:pull", json=body)
        assert answer.json() == {"directives": []}
        assert asked == [("ocr-service", 3, 0.5, None)]
        for bad in ({"max": 0}, {"max": True}, {"max": "1"}, {"wait_seconds": 61}):
            answer = await client.post("/v1/services/ocr-service/directives:pull", json=bad)
            assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_BODY")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/admin/outbox/retry"),
        ("POST", "/v1/services/ocr/directives:pull"),
    ],
)
async def test_a_part_that_is_not_there_says_so(
    client: httpx.AsyncClient, method: str, path: str
) -> None:
    answer = await client.request(method, path)
    assert (answer.status_code, answer.json()["code"]) == (501, "NOT_SUPPORTED")


async def test_what_the_router_refuses_is_a_problem_too(client: httpx.AsyncClient) -> None:
    answer = await client.get("/nope")
    assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND")
    answer = await client.delete("/v1/jobs")
    assert (answer.status_code, answer.json()["code"]) == (405, "METHOD_NOT_ALLOWED")
    assert answer.headers["allow"] == "GET"
    answer = await client.options("/v1/jobs/x:cancel")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


async def test_what_no_route_takes_is_counted_under_one_name(world: World) -> None:
    context = context_of(world, hosts=HostCheck(["lucius"]))
    assert context.registry is not None
    async with client_of(context) as client:
        for number in range(3):
            assert (await client.get(f"/nothing/{number}")).status_code == 404
        assert (await client.delete("/v1/orchestrate")).status_code == 405
        assert (await client.request("BREW", "/v1/orchestrate")).status_code == 405
        assert (await client.get("/healthz", headers={"host": "evil.test"})).status_code == 421
        await client.get("/v1/jobs/unknown")
    counted = {
        tuple(sample.labels[name] for name in ("method", "route", "status")): sample.value
        for family in context.registry.collect()
        for sample in family.samples
        if sample.name == "lucius_http_requests_total"
    }
    assert counted == {
        ("GET", "(unrouted)", "404"): 3,
        ("DELETE", "(unrouted)", "405"): 1,
        ("OTHER", "(unrouted)", "405"): 1,
        ("GET", "(unrouted)", "421"): 1,
        ("GET", "/v1/jobs/{jobId}", "404"): 1,
    }
