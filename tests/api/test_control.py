"""Control: what is asked for happens once; repeating it is 200, what cannot be is 409."""

import httpx
import pytest

from lucius.core.inputs import ResultReceived, ResultStatus
from lucius.core.job import Fault
from tests.api.world import World, accepted


async def failed(client: httpx.AsyncClient, world: World) -> str:
    """A job whose second step failed for good."""
    job_id = await accepted(client)
    first = await world.out(job_id)
    bound = (first["stepId"], first["attempt_no"], first["lease_id"])
    await world.apply(job_id, ResultReceived(*bound, ResultStatus.SUCCEEDED, "s3://b/ocr.txt"))
    second = await world.out(job_id)
    bound = (second["stepId"], second["attempt_no"], second["lease_id"])
    fault = Fault("MODEL_GONE", "no such model")
    await world.apply(job_id, ResultReceived(*bound, ResultStatus.FAILED_FINAL, None, fault))
    return job_id


async def test_a_job_that_is_out_is_cancelling_until_its_step_ends(
    client: httpx.AsyncClient, world: World
) -> None:
    job_id = await accepted(client)
    await world.out(job_id)
    answer = await client.post(f"/v1/jobs/{job_id}:cancel")
    assert answer.status_code == 200
    assert (answer.json()["state"], answer.json()["outcome"]) == ("CANCELLING", "applied")
    again = await client.post(f"/v1/jobs/{job_id}:cancel", json={})
    assert (again.status_code, again.json()["outcome"]) == (200, "already")
    now = await client.post(f"/v1/jobs/{job_id}:cancel", json={"immediate": True})
    assert now.json()["state"] == "CANCELLED"


async def test_a_job_pauses_and_resumes(client: httpx.AsyncClient, world: World) -> None:
    job_id = await accepted(client)
    for verb, state in (("pause", "PAUSED"), ("resume", "DISPATCHING")):
        for outcome in ("applied", "already"):
            answer = await client.post(f"/v1/jobs/{job_id}:{verb}")
            assert answer.status_code == 200
            assert (answer.json()["state"], answer.json()["outcome"]) == (state, outcome)


@pytest.mark.parametrize("verb", ["cancel", "pause", "resume"])
async def test_a_job_that_has_ended_takes_no_orders(
    client: httpx.AsyncClient, world: World, verb: str
) -> None:
    answer = await client.post(f"/v1/jobs/{await failed(client, world)}:{verb}")
    assert (answer.status_code, answer.json()["code"]) == (409, "JOB_TERMINAL")


async def test_cancel_beats_pause(client: httpx.AsyncClient, world: World) -> None:
    job_id = await accepted(client)
    await world.out(job_id)
    await client.post(f"/v1/jobs/{job_id}:cancel")
    answer = await client.post(f"/v1/jobs/{job_id}:pause")
    assert (answer.status_code, answer.json()["code"]) == (409, "JOB_CANCELLING")


async def test_a_failed_job_is_redriven_once(client: httpx.AsyncClient, world: World) -> None:
    job_id = await failed(client, world)
    first = await client.post(f"/v1/jobs/{job_id}:redrive", json={"payload": {"model": "b"}})
    assert first.status_code == 202
    new_id = first.json()["jobId"]
    assert first.headers["location"] == f"/v1/jobs/{new_id}"
    assert first.json()["redrive_of"] == job_id
    again = await client.post(f"/v1/jobs/{job_id}:redrive")
    assert (again.status_code, again.json()["jobId"]) == (200, new_id)
    job = (await client.get(f"/v1/jobs/{new_id}")).json()
    assert (job["redrive_of"], job["current_step_id"]) == (job_id, "embedding")
    assert job["steps"][0]["result_ref"] == "s3://b/ocr.txt"


async def test_a_live_job_is_not_redriven(client: httpx.AsyncClient) -> None:
    answer = await client.post(f"/v1/jobs/{await accepted(client)}:redrive")
    assert (answer.status_code, answer.json()["code"]) == (409, "NOT_REDRIVABLE")


async def test_a_failed_job_is_in_the_dlq_until_it_is_dismissed(
    client: httpx.AsyncClient, world: World
) -> None:
    job_id = await failed(client, world)
    await accepted(client, payload={"n": 2})
    dlq = (await client.get("/v1/admin/dlq")).json()["jobs"]
    assert [job["jobId"] for job in dlq] == [job_id]
    assert dlq[0]["explanation"] == (
        "step embedding failed for good (attempt 1 of 3): MODEL_GONE: no such model"
    )
    for outcome in ("applied", "already"):
        answer = await client.post(f"/v1/admin/dlq/{job_id}:dismiss")
        assert (answer.status_code, answer.json()["outcome"]) == (200, outcome)
    assert (await client.get("/v1/admin/dlq")).json() == {"jobs": [], "next_cursor": None}


async def test_a_live_job_cannot_be_dismissed(client: httpx.AsyncClient) -> None:
    answer = await client.post(f"/v1/admin/dlq/{await accepted(client)}:dismiss")
    assert (answer.status_code, answer.json()["code"]) == (409, "NOT_IN_DLQ")


@pytest.mark.parametrize("verb", ["cancel", "pause", "resume", "redrive"])
async def test_an_unknown_job_takes_no_orders(client: httpx.AsyncClient, verb: str) -> None:
    answer = await client.post(f"/v1/jobs/nope:{verb}")
    assert (answer.status_code, answer.json()["code"]) == (404, "JOB_NOT_FOUND")


@pytest.mark.parametrize(
    ("verb", "body", "pointer"),
    [("cancel", {"immediate": "yes"}, "/immediate"), ("redrive", {"payload": 3}, "/payload")],
)
async def test_a_bad_order_names_the_field(
    client: httpx.AsyncClient, verb: str, body: dict[str, object], pointer: str
) -> None:
    answer = await client.post(f"/v1/jobs/{await accepted(client)}:{verb}", json=body)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)
