"""One suite for every stack: what a client sees does not depend on what LUCIUS stands on."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from lucius.contract.causes import CAUSES, Severity
from tests.e2e.stacks import STACKS, Stack, client_of, ended, running, submitted

pytestmark = [
    pytest.mark.parametrize("stack", STACKS, indirect=True, scope="module"),
    pytest.mark.xdist_group("stacks"),
]


@pytest.fixture(scope="module")
def stack(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    folder: Path = tmp_path_factory.mktemp(f"stack-{request.param}")
    with running(request.param, folder) as started:
        yield started
        assert started.verified() == ""
        assert started.stop() == 0, started.log()


async def test_a_job_succeeds_and_says_how(stack: Stack) -> None:
    async with client_of(stack) as client:
        assert (await client.get("/readyz")).json()["status"] == "ready"
        job_id = await submitted(client, stack.command(1, {}))
        job = await ended(client, job_id)
        assert (job["state"], len(job["steps"])) == ("SUCCEEDED", 3)
        events = (await client.get(f"/v1/jobs/{job_id}/events")).json()["events"]
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        assert (stack.server.outputs / "1.json").exists()


async def test_a_failure_is_retried_and_a_final_one_can_be_redriven(stack: Stack) -> None:
    async with client_of(stack) as client:
        retried = await submitted(client, stack.command(3, {"alpha": {"script": ["retry"]}}))
        job = await ended(client, retried)
        assert (job["state"], job["steps"][0]["attempt_no"]) == ("SUCCEEDED", 2)
        fatal = await submitted(client, stack.command(4, {"beta": {"script": ["fatal"]}}))
        job = await ended(client, fatal)
        assert (job["state"], job["steps"][1]["last_error_code"]) == ("FAILED_FINAL", "SCRIPTED")
        body: dict[str, Any] = {"payload": {"steps": {}}}
        redriven = await client.post(f"/v1/jobs/{fatal}:redrive", json=body)
        assert redriven.status_code == 202, redriven.text
        job = await ended(client, redriven.json()["jobId"])
        assert (job["state"], job["redrive_of"]) == ("SUCCEEDED", fatal)


async def test_orders_are_obeyed(stack: Stack) -> None:
    async with client_of(stack) as client:
        paused = await submitted(client, stack.command(5, {"alpha": {"seconds": 5}}))
        assert (await client.post(f"/v1/jobs/{paused}:pause")).status_code == 200
        cancelled = await submitted(client, stack.command(6, {"alpha": {"seconds": 5}}))
        assert (await client.post(f"/v1/jobs/{cancelled}:cancel")).status_code == 200
        assert (await ended(client, cancelled))["state"] == "CANCELLED"
        job = (await client.get(f"/v1/jobs/{paused}")).json()
        assert job["state"] in ("PAUSING", "PAUSED")
        assert (await client.post(f"/v1/jobs/{paused}:resume")).status_code == 200
        assert (await ended(client, paused))["state"] == "SUCCEEDED"


async def test_jobs_are_listed_by_tenant_and_the_backlog_is_one_number(stack: Stack) -> None:
    async with client_of(stack) as client:
        job_ids = [
            await submitted(client, {**stack.command(n, {}), "tenant_id": "lister"})
            for n in range(20, 25)
        ]
        for job_id in job_ids:
            await ended(client, job_id)
        found = (await client.get("/v1/jobs", params={"tenant_id": "lister"})).json()["jobs"]
        assert {job["jobId"] for job in found} == set(job_ids)
        backlog = await client.get("/v1/admin/backlog/alpha")
        assert isinstance(backlog.json()["backlog"], int)
        stream = await client.get(
            f"/v1/jobs/{job_ids[0]}/events", headers={"accept": "text/event-stream"}
        )
        assert "SUCCEEDED" in stream.text


async def until(client: httpx.AsyncClient, path: str, holds: Callable[[Any], bool]) -> Any:
    """What is answered once it holds. Processes apart hear of each other a little later."""
    for _ in range(600):
        found = (await client.get(path)).json()
        if holds(found):
            return found
        await asyncio.sleep(0.2)
    raise AssertionError(found)


async def test_what_goes_on_is_known_to_whoever_asks(stack: Stack) -> None:
    """Why a job is where it is, who works on it, and what is wrong: nothing."""
    async with client_of(stack) as client:
        job_id = await submitted(client, stack.command(30, {"alpha": {"seconds": 30}}))
        path = f"/v1/jobs/{job_id}"
        await until(client, path, lambda job: job["steps"][0]["state"] == "IN_PROGRESS")
        why = (await client.get(f"{path}/why")).json()
        assert CAUSES[why["cause"]].severity <= Severity.WAITS, why
        await until(client, "/v1/why", lambda found: "LANE_UNOWNED" not in str(found))
        await client.post(f"{path}:cancel", json={"immediate": True})
        await ended(client, job_id)


async def test_a_plan_redrives_what_has_failed(stack: Stack) -> None:
    async with client_of(stack) as client:
        command = stack.command(31, {"beta": {"script": ["fatal"]}})
        failed = await submitted(client, {**command, "tenant_id": "planner"})
        assert (await ended(client, failed))["state"] == "FAILED_FINAL"
        await until(client, "/v1/admin/dlq?tenant_id=planner", lambda found: bool(found["jobs"]))
        order = {"filter": {"tenant_id": "planner"}, "canary": 0}
        answer = await client.post("/v1/redrives", json=order)
        assert answer.status_code == 202, answer.text
        plan_id = answer.json()["planId"]

        def is_through(found: Any) -> bool:
            (plan,) = [each for each in found["plans"] if each["planId"] == plan_id]
            return plan["state"] in ("DONE", "STOPPED") and bool(plan["redriven"] == 1)

        await until(client, "/v1/redrives", is_through)
