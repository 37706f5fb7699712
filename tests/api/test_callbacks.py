"""Callbacks move exactly the attempt that their token is bound to."""

from typing import Any

import httpx
import pytest

from lucius.core.job import StepState
from tests.api.world import World, accepted, bearer


async def test_an_attempt_goes_from_ack_to_result(client: httpx.AsyncClient, world: World) -> None:
    job_id = await accepted(client)
    reply = await world.out(job_id)
    ack = {**reply, "status": "ACKED", "worker_id": "w-1"}
    answer = await client.post("/v1/callbacks/ack", json=ack, headers=bearer(reply))
    assert (answer.status_code, answer.json()) == (200, {"outcome": "applied"})
    result = {**reply, "status": "SUCCEEDED", "output_ref": {"uri": "s3://b/ocr.txt"}}
    answer = await client.post("/v1/callbacks/result", json=result, headers=bearer(reply))
    assert answer.json() == {"outcome": "applied"}
    step = world.jobs[job_id].steps[0]
    assert (step.state, step.result_ref) == (StepState.SUCCEEDED, {"uri": "s3://b/ocr.txt"})
    assert step.executions[0].lease_owner == "w-1"


async def test_a_repeated_callback_is_a_duplicate(client: httpx.AsyncClient, world: World) -> None:
    reply = await world.out(await accepted(client))
    for outcome in ("applied", "duplicate"):
        answer = await client.post("/v1/callbacks/ack", json=reply, headers=bearer(reply))
        assert answer.json() == {"outcome": outcome}


async def test_a_callback_after_the_end_is_late(client: httpx.AsyncClient, world: World) -> None:
    job_id = await accepted(client)
    reply = await world.out(job_id)
    await client.post(f"/v1/jobs/{job_id}:cancel", json={"immediate": True})
    result = {**reply, "status": "SUCCEEDED"}
    answer = await client.post("/v1/callbacks/result", json=result, headers=bearer(reply))
    assert (answer.status_code, answer.json()) == (200, {"outcome": "late"})


async def test_a_callback_of_an_old_attempt_is_refused(
    client: httpx.AsyncClient, world: World
) -> None:
    job_id = await accepted(client)
    old = await world.out(job_id)
    await client.post("/v1/callbacks/release", json=old, headers=bearer(old))
    await world.out(job_id)
    error = {"code": "GONE", "message": "no such page"}
    result = {**old, "status": "FAILED_FINAL", "error": error, "timestamp": "10:00"}
    answer = await client.post("/v1/callbacks/result", json=result, headers=bearer(old))
    assert (answer.status_code, answer.json()["code"]) == (409, "STALE_ATTEMPT")
    (event,) = (await client.get(f"/v1/jobs/{job_id}/events")).json()["events"][-1:]
    said = {"status": "FAILED_FINAL", "fault": "GONE", "message": "no such page"}
    assert event["payload"] == {"outcome": "stale", **said, "timestamp": "10:00"}


async def test_a_heartbeat_learns_of_its_lease_and_of_a_cancel(
    client: httpx.AsyncClient, world: World
) -> None:
    job_id = await accepted(client)
    reply = await world.out(job_id)
    await client.post("/v1/callbacks/ack", json=reply, headers=bearer(reply))
    world.pass_time(minutes=5)
    answer = await client.post("/v1/callbacks/heartbeat", json=reply, headers=bearer(reply))
    assert answer.json() == {
        "outcome": "applied",
        "lease_expires_at": "2026-01-27T10:20:00Z",
        "cancel_requested": False,
    }
    await client.post(f"/v1/jobs/{job_id}:cancel")
    answer = await client.post("/v1/callbacks/heartbeat", json=reply, headers=bearer(reply))
    assert answer.json()["cancel_requested"] is True


@pytest.mark.parametrize("route", ["ack", "result", "heartbeat", "release"])
@pytest.mark.parametrize(
    "headers", [{}, {"authorization": "Basic eDp5"}, {"authorization": "Bearer "}]
)
async def test_every_callback_needs_a_token(
    client: httpx.AsyncClient, world: World, route: str, headers: dict[str, str]
) -> None:
    job_id = await accepted(client)
    reply = {**await world.out(job_id), "status": "SUCCEEDED"}
    before = world.jobs[job_id]
    answer = await client.post(f"/v1/callbacks/{route}", json=reply, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (401, "CALLBACK_TOKEN_REQUIRED")
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert world.jobs[job_id] is before


@pytest.mark.parametrize(
    "forged",
    [{"jobId": "job_1"}, {"stepId": "sis"}, {"attempt_no": 2}, {"lease_id": "other"}],
)
async def test_a_token_of_another_attempt_moves_nothing(
    client: httpx.AsyncClient, world: World, forged: dict[str, Any]
) -> None:
    job_id = await accepted(client)
    reply = await world.out(job_id)
    before = world.jobs[job_id]
    headers = bearer({**reply, **forged})
    answer = await client.post("/v1/callbacks/ack", json=reply, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (401, "CALLBACK_TOKEN_INVALID")
    assert world.jobs[job_id] is before


async def test_a_tenant_that_the_token_is_not_for_is_refused(
    client: httpx.AsyncClient, world: World
) -> None:
    reply = await world.out(await accepted(client))
    body = {**reply, "tenant_id": "tenant_b"}
    answer = await client.post("/v1/callbacks/ack", json=body, headers=bearer(reply))
    assert answer.json()["code"] == "CALLBACK_TOKEN_INVALID"
    answer = await client.post(
        "/v1/callbacks/ack", json=reply, headers=bearer(reply, tenant_id="tenant_b")
    )
    assert answer.json()["code"] == "CALLBACK_TOKEN_INVALID"


async def test_every_bad_field_of_a_callback_is_named(
    client: httpx.AsyncClient, world: World
) -> None:
    bound = await world.out(await accepted(client))
    body = {"attempt_no": -1, "status": "DONE"}
    answer = await client.post("/v1/callbacks/result", json=body, headers=bearer(bound))
    assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_CALLBACK")
    pointers = {error["pointer"] for error in answer.json()["errors"]}
    assert pointers == {"/jobId", "/stepId", "/lease_id", "/attempt_no", "/status"}


async def test_many_replies_are_judged_one_by_one(client: httpx.AsyncClient, world: World) -> None:
    first = await world.out(await accepted(client))
    second = await world.out(await accepted(client, payload={"n": 2}))
    replies = [
        {**first, "type": "ACK", "callback_token": _token(first)},
        {**second, "type": "ACK", "callback_token": _token(first)},
        {**first, "type": "HEARTBEAT", "callback_token": _token(first)},
        {**second, "type": "RESULT", "status": "SUCCEEDED", "callback_token": _token(second)},
        7,
    ]
    answer = await client.post("/v1/services/ocr-service/replies", json={"replies": replies})
    outcomes = answer.json()["outcomes"]
    assert [outcome["status"] for outcome in outcomes] == [200, 401, 200, 200, 422]
    assert outcomes[0] == {"status": 200, "outcome": "applied"}
    assert outcomes[1]["code"] == "CALLBACK_TOKEN_INVALID"
    assert outcomes[2]["cancel_requested"] is False


def _token(reply: dict[str, Any]) -> str:
    return bearer(reply)["authorization"].removeprefix("Bearer ")
