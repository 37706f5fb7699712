"""Who gave an order and why is in its event, without any secret; and a backoff can be ended."""

import httpx
import pytest
from starlette.requests import Request

from lucius.core.inputs import ResultReceived, ResultStatus
from lucius.http.context import Caller, Role
from tests.api.world import World, accepted, client_of, context_of

ANNA = Caller("anna", frozenset(Role), key_id="k7")


async def anna(request: Request) -> Caller:
    return ANNA


async def waiting(world: World, client: httpx.AsyncClient) -> str:
    """A job whose first step waits for its second attempt."""
    job_id = await accepted(client)
    reply = await world.out(job_id)
    bound = (reply["stepId"], reply["attempt_no"], reply["lease_id"])
    await world.apply(job_id, ResultReceived(*bound, ResultStatus.FAILED_RETRY))
    return job_id


async def last_event(client: httpx.AsyncClient, job_id: str) -> dict[str, object]:
    events = (await client.get(f"/v1/jobs/{job_id}/events")).json()["events"]
    found: dict[str, object] = events[-1]
    return found


@pytest.mark.parametrize("order", ["pause", "retry", "cancel"])
async def test_the_event_names_the_caller_its_key_and_the_reason(world: World, order: str) -> None:
    async with client_of(context_of(world, authenticate=anna)) as client:
        job_id = await waiting(world, client)
        answer = await client.post(f"/v1/jobs/{job_id}:{order}", json={"reason": "look first"})
        assert answer.json()["outcome"] == "applied"
        event = await last_event(client, job_id)
    assert event["event_type"] == order
    assert event["payload"] == {"by": "anna (key k7)", "reason": "look first"}


async def test_orders_for_many_say_it_in_every_job(world: World) -> None:
    async with client_of(context_of(world, authenticate=anna)) as client:
        jobs = [await waiting(world, client) for _ in range(1)]
        body = {"filter": {}, "reason": "the index is back"}
        assert (await client.post("/v1/jobs:retry", json=body)).json()["applied"] == 1
        event = await last_event(client, jobs[0])
    assert event["payload"] == {"by": "anna (key k7)", "reason": "the index is back"}


async def test_a_redrive_and_a_dismissal_say_it_too(world: World) -> None:
    async with client_of(context_of(world, authenticate=anna)) as client:
        job_id = await accepted(client)
        await client.post(f"/v1/jobs/{job_id}:cancel")
        new = await client.post(f"/v1/jobs/{job_id}:redrive", json={"reason": "mended"})
        events = (await client.get(f"/v1/jobs/{new.json()['jobId']}/events")).json()["events"]
    assert events[0]["payload"] == {"by": "anna (key k7)", "reason": "mended"}


async def test_what_looks_like_a_secret_in_a_reason_is_left_out(world: World) -> None:
    async with client_of(context_of(world)) as client:
        job_id = await waiting(world, client)
        secret = "lk_0123456789ab_" + "x" * 43
        await client.post(f"/v1/jobs/{job_id}:pause", json={"reason": f"password=geheim {secret}"})
        event = await last_event(client, job_id)
    assert "geheim" not in str(event)
    assert secret not in str(event)


async def test_why_says_who_paused_the_job(world: World) -> None:
    async with client_of(context_of(world, authenticate=anna)) as client:
        job_id = await waiting(world, client)
        await client.post(f"/v1/jobs/{job_id}:pause", json={"reason": "look first"})
        answer = (await client.get(f"/v1/jobs/{job_id}/why")).json()
    assert (answer["cause"], answer["severity"]) == ("JOB_PAUSED", "WAITS")
    assert "anna (key k7) (look first)" in answer["summary"]
    assert answer["command"] == f"lucius job resume {job_id}"


@pytest.mark.parametrize("reason", [7, ["a"], "x" * 501])
async def test_a_reason_that_is_no_short_text_moves_nothing(world: World, reason: object) -> None:
    async with client_of(context_of(world)) as client:
        job_id = await waiting(world, client)
        before = world.jobs[job_id]
        for order in ("pause", "resume", "retry", "cancel", "redrive"):
            answer = await client.post(f"/v1/jobs/{job_id}:{order}", json={"reason": reason})
            assert answer.status_code == 422
            assert answer.json()["errors"][0]["pointer"] == "/reason"
        assert world.jobs[job_id] is before
