"""One request submits a command and is answered with the job at its end."""

import asyncio
from typing import Any

import httpx
import pytest
from aiohttp import web

from lucius.client import Client
from lucius.http.context import Caller, Role
from lucius.http.limits import WaitLimit
from tests.api.provoking import called_by
from tests.api.world import ENVELOPE, World, bearer, client_of, context_of
from tests.client.answering import answering, through

WAIT = "/v1/orchestrate?wait_seconds=60"


async def succeed(client: httpx.AsyncClient, world: World, job_id: str = "job_0") -> None:
    for _ in range(2):
        reply = {**await world.out(job_id), "status": "SUCCEEDED"}
        named = {**reply, "output_ref": {"uri": "s3://bucket/out.json"}}
        await client.post("/v1/callbacks/result", json=named, headers=bearer(reply))


async def is_there(client: httpx.AsyncClient) -> None:
    """Return once there is a job."""
    while True:
        page = (await client.get("/v1/jobs")).json()
        if page["jobs"]:
            return
        await asyncio.sleep(0)


async def submitted(client: httpx.AsyncClient) -> asyncio.Task[httpx.Response]:
    """A request that waits; its job is there."""
    waiting = asyncio.create_task(client.post(WAIT, json=ENVELOPE))
    await is_there(client)
    return waiting


async def test_it_is_answered_with_the_job_as_a_read_shows_it(
    client: httpx.AsyncClient, world: World
) -> None:
    waiting = await submitted(client)
    await succeed(client, world)
    answer = await waiting
    assert answer.status_code == 200
    assert answer.json()["state"] == "SUCCEEDED"
    read = await client.get(answer.headers["location"])
    assert (read.json(), read.headers["etag"]) == (answer.json(), answer.headers["etag"])


async def test_a_job_that_goes_on_is_accepted_as_without_the_wait(
    client: httpx.AsyncClient,
) -> None:
    answer = await client.post("/v1/orchestrate?wait_seconds=0.01", json=ENVELOPE)
    assert answer.status_code == 202
    assert answer.json() == {"jobId": "job_0", "state": "DISPATCHING", "duplicate": False}
    assert answer.headers["location"] == "/v1/jobs/job_0"


async def test_the_same_request_again_waits_for_the_same_job(
    client: httpx.AsyncClient, world: World
) -> None:
    first = await submitted(client)
    again = asyncio.create_task(client.post(WAIT, json=ENVELOPE))
    await asyncio.sleep(0)
    await succeed(client, world)
    assert (await first).json() == (await again).json()


async def test_warnings_are_told_at_once(client: httpx.AsyncClient) -> None:
    slip = {**ENVELOPE, "correlation_idd": "c"}
    answer = await client.post(WAIT, json=slip)
    assert answer.status_code == 202
    assert answer.json()["warnings"]


@pytest.mark.parametrize("seconds", ["-1", "61", "nan", "x", ""])
async def test_a_wait_that_is_no_wait_is_refused_and_nothing_is_done(
    client: httpx.AsyncClient, seconds: str
) -> None:
    answer = await client.post(f"/v1/orchestrate?wait_seconds={seconds}", json=ENVELOPE)
    assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_PARAMETER")
    assert (await client.get("/v1/jobs")).json()["jobs"] == []


async def test_who_may_not_read_jobs_may_not_wait_for_them(world: World) -> None:
    caller = Caller("submitter", frozenset({Role.SUBMIT}))
    async with client_of(context_of(world, authenticate=called_by(caller))) as client:
        refused = await client.post(WAIT, json=ENVELOPE)
        assert (refused.status_code, refused.json()["code"]) == (403, "FORBIDDEN")
        assert (await client.post("/v1/orchestrate", json=ENVELOPE)).status_code == 202


async def test_where_too_many_wait_no_job_is_made(world: World) -> None:
    async with client_of(context_of(world, waits=WaitLimit(0))) as client:
        refused = await client.post(WAIT, json=ENVELOPE)
        assert (refused.status_code, refused.json()["code"]) == (429, "TOO_MANY_WAITING")
        assert (await client.get("/v1/jobs")).json()["jobs"] == []


async def test_the_python_client_runs_a_job_with_one_request(
    client: httpx.AsyncClient, world: World
) -> None:
    asked: list[str] = []
    handle = through(client)

    async def counted(request: Any) -> Any:
        asked.append(f"{request.method} {request.path_qs}")
        return await handle(request)

    async with answering(counted) as url, Client(url) as lucius:
        running = asyncio.create_task(lucius.run(ENVELOPE))
        await is_there(client)
        await succeed(client, world)
        assert (await running).state == "SUCCEEDED"
    assert asked == ["POST /v1/orchestrate?wait_seconds=30"]


async def test_the_python_client_goes_on_waiting_where_the_answer_is_an_acceptance(
    client: httpx.AsyncClient, world: World
) -> None:
    told: list[str] = []
    async with answering(through(client)) as url, Client(url, on_warning=told.append) as lucius:
        running = asyncio.create_task(lucius.run({**ENVELOPE, "correlation_idd": "c"}))
        await is_there(client)
        await succeed(client, world)
        assert (await running).state == "SUCCEEDED"
    assert len(told) == 1


async def test_the_python_client_runs_a_job_on_a_server_that_cannot_wait(
    client: httpx.AsyncClient, world: World
) -> None:
    handle = through(client)

    async def earlier(request: Any) -> Any:
        if request.method == "POST" and request.query_string:
            problem = {"code": "UNKNOWN_PARAMETER", "detail": "wait_seconds", "status": 422}
            return web.json_response(problem, status=422)
        return await handle(request)

    async with answering(earlier) as url, Client(url) as lucius:
        running = asyncio.create_task(lucius.run(ENVELOPE))
        await is_there(client)
        await succeed(client, world)
        assert (await running).state == "SUCCEEDED"


async def test_a_run_that_takes_too_long_is_given_up_and_the_job_goes_on(
    client: httpx.AsyncClient,
) -> None:
    async with answering(through(client)) as url, Client(url) as lucius:
        with pytest.raises(TimeoutError):
            await lucius.run(ENVELOPE, timeout_seconds=0.2)
    (job,) = (await client.get("/v1/jobs")).json()["jobs"]
    assert job["state"] == "DISPATCHING"
