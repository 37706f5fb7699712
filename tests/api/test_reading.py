"""Reads show the job as committed, wait for commits, and answer 304 for what the caller has."""

import asyncio

import httpx
import pytest

from tests.api.world import World, accepted, bearer


async def test_state_and_status_stand_side_by_side(client: httpx.AsyncClient, world: World) -> None:
    job_id = await accepted(client)
    await world.out(job_id)
    job = (await client.get(f"/v1/jobs/{job_id}")).json()
    assert (job["state"], job["status"]) == ("DISPATCHING", "QUEUED")
    step = job["steps"][0]
    assert (step["state"], step["status"]) == ("AWAITING_ACK", "INITIATED")
    assert step["stepId"] == step["step_id"] == "ocr"
    assert (step["outbox"]["state"], step["outbox"]["sent_at"]) == ("SENT", "2026-01-27T10:00:00Z")
    assert step["lease_expires_at"] == "2026-01-27T10:00:30Z"
    assert job["steps"][1]["outbox"] is None


@pytest.mark.parametrize("tail", ["", "/steps", "/executions", "/events", "/events?stream=true"])
@pytest.mark.parametrize("job_id", ["nope", "x" * 1000, "%00", "%ff", "a%2Fb"])
async def test_an_unknown_job_is_not_found(
    client: httpx.AsyncClient, tail: str, job_id: str
) -> None:
    answer = await client.get(f"/v1/jobs/{job_id}{tail}")
    assert answer.status_code == 404
    assert answer.json()["code"] in ("JOB_NOT_FOUND", "NOT_FOUND")


async def test_one_step_can_be_asked_for(client: httpx.AsyncClient) -> None:
    job_id = await accepted(client)
    answer = await client.get(f"/v1/jobs/{job_id}/steps", params={"step_id": "embedding"})
    assert [step["step_id"] for step in answer.json()["steps"]] == ["embedding"]
    answer = await client.get(f"/v1/jobs/{job_id}/steps", params={"step_id": "nope"})
    assert (answer.status_code, answer.json()["code"]) == (404, "STEP_NOT_FOUND")


async def test_an_etag_saves_the_body_until_the_job_moves(
    client: httpx.AsyncClient, world: World
) -> None:
    path = f"/v1/jobs/{await accepted(client)}"
    etag = (await client.get(path)).headers["etag"]
    for given in (etag, f"W/{etag}", f'"x", {etag}', "*"):
        again = await client.get(path, headers={"if-none-match": given})
        assert (again.status_code, again.content) == (304, b"")
    await world.out("job_0")
    moved = await client.get(path, headers={"if-none-match": etag})
    assert moved.status_code == 200
    assert moved.headers["etag"] != etag


async def test_a_wait_ends_when_the_job_does(client: httpx.AsyncClient, world: World) -> None:
    job_id = await accepted(client)
    waiting = asyncio.create_task(client.get(f"/v1/jobs/{job_id}", params={"wait_seconds": 60}))
    for _ in range(2):
        reply = {**await world.out(job_id), "status": "SUCCEEDED"}
        named = {**reply, "output_ref": {"uri": "s3://bucket/out.json"}}
        await client.post("/v1/callbacks/result", json=named, headers=bearer(reply))
    job = (await waiting).json()
    assert job["state"] == "SUCCEEDED"
    assert job["final_output"] == {"uri": "s3://bucket/out.json"}
    assert job["explanation"] == "all 2 steps succeeded"


async def test_a_wait_that_is_over_answers_with_the_job_as_it_is(
    client: httpx.AsyncClient,
) -> None:
    answer = await client.get(f"/v1/jobs/{await accepted(client)}", params={"wait_seconds": "0.01"})
    assert answer.json()["state"] == "DISPATCHING"


@pytest.mark.parametrize("seconds", ["-1", "61", "nan", "inf", "x", "", "１"])
async def test_a_wait_that_is_no_wait_is_refused(client: httpx.AsyncClient, seconds: str) -> None:
    job_id = await accepted(client)
    answer = await client.get(f"/v1/jobs/{job_id}", params={"wait_seconds": seconds})
    assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_PARAMETER")
    assert answer.json()["errors"][0]["parameter"] == "wait_seconds"


async def test_events_come_in_pages_without_gaps(client: httpx.AsyncClient, world: World) -> None:
    job_id = await accepted(client)
    await world.out(job_id)
    path = f"/v1/jobs/{job_id}/events"
    first = (await client.get(path, params={"limit": 2})).json()["events"]
    rest = (await client.get(path, params={"after": first[-1]["seq"]})).json()["events"]
    assert [event["seq"] for event in first + rest] == [1, 2, 3]
    assert first[0]["event_type"] == "submitted"
    assert "job QUEUED->DISPATCHING" in first[0]["moves"]


@pytest.mark.parametrize(
    "query", [{"after": "-1"}, {"after": "x"}, {"limit": "0"}, {"limit": "501"}, {"stream": "x"}]
)
async def test_a_bad_page_is_refused(client: httpx.AsyncClient, query: dict[str, str]) -> None:
    job_id = await accepted(client)
    answer = await client.get(f"/v1/jobs/{job_id}/events", params=query)
    assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_PARAMETER")
