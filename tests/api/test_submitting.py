"""Ingress over HTTP: 202 once durable, duplicates find their job, faults are named."""

import httpx
import pytest

from lucius.core.errors import LedgerUnavailableError, RequestError
from tests.api.world import ENVELOPE, World, accepted


@pytest.mark.parametrize("route", ["/v1/orchestrate", "/v1/commands"])
async def test_a_command_is_accepted_with_a_location(
    client: httpx.AsyncClient, world: World, route: str
) -> None:
    answer = await client.post(route, json=ENVELOPE)
    assert answer.status_code == 202
    assert answer.json() == {"jobId": "job_0", "state": "DISPATCHING", "duplicate": False}
    assert answer.headers["location"] == "/v1/jobs/job_0"
    assert list(world.jobs) == ["job_0"]


async def test_the_same_command_again_is_a_duplicate(client: httpx.AsyncClient) -> None:
    first = await accepted(client)
    answer = await client.post("/v1/orchestrate", json=ENVELOPE)
    assert answer.status_code == 202
    assert answer.json() == {"jobId": first, "state": "DISPATCHING", "duplicate": True}


async def test_the_header_counts_as_the_key(client: httpx.AsyncClient) -> None:
    headers = {"Idempotency-Key": "k-1"}
    first = await client.post("/v1/orchestrate", json=ENVELOPE, headers=headers)
    again = await client.post("/v1/orchestrate", json=ENVELOPE, headers=headers)
    other = await client.post("/v1/orchestrate", json={**ENVELOPE, "idempotency_key": "k-2"})
    assert again.json()["jobId"] == first.json()["jobId"] != other.json()["jobId"]


async def test_trace_and_correlation_headers_reach_the_job(
    client: httpx.AsyncClient, world: World
) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    headers = {"traceparent": trace, "X-Correlation-Id": "corr-1"}
    await client.post("/v1/orchestrate", json=ENVELOPE, headers=headers)
    plan = world.jobs["job_0"].plan
    assert (plan.traceparent, plan.correlation_id) == (trace, "corr-1")


async def test_a_malformed_trace_header_is_ignored(client: httpx.AsyncClient, world: World) -> None:
    await client.post("/v1/orchestrate", json=ENVELOPE, headers={"traceparent": "x"})
    assert world.jobs["job_0"].plan.traceparent is None


async def test_a_refused_command_names_the_field(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/orchestrate", json={**ENVELOPE, "request_type": "X"})
    assert answer.status_code == 422
    assert answer.json() == {
        "type": "urn:lucius:problem:UNKNOWN_REQUEST_TYPE",
        "title": "No protocol serves this request type",
        "status": 422,
        "code": "UNKNOWN_REQUEST_TYPE",
        "detail": "no protocol serves this request type",
        "errors": [{"pointer": "/request_type", "detail": "must be one of OCR->EMBEDDING"}],
    }


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (RequestError("TENANT_SATURATED", "full", status=429), 429, "TENANT_SATURATED"),
        (LedgerUnavailableError("the disk is full"), 503, "LEDGER_UNAVAILABLE"),
    ],
)
async def test_what_may_be_repeated_says_when(
    client: httpx.AsyncClient, world: World, error: Exception, status: int, code: str
) -> None:
    world.ledger.failing = error
    answer = await client.post("/v1/orchestrate", json=ENVELOPE)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert int(answer.headers["retry-after"]) >= 1


async def test_a_defect_is_a_problem_that_gives_nothing_away(
    client: httpx.AsyncClient, world: World
) -> None:
    world.ledger.failing = ZeroDivisionError("secret detail")
    for answer in (
        await client.post("/v1/orchestrate", json=ENVELOPE),
        await client.get("/v1/jobs/job_0"),
    ):
        assert (answer.status_code, answer.json()["code"]) == (500, "INTERNAL_ERROR")
        assert "secret" not in answer.text
