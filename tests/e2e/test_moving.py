"""A deployment of processes apart moves to Temporal with jobs in flight: each ends on its own engine."""

from pathlib import Path

import httpx
import pytest

from tests.e2e.stacks import Stack, client_of, ended, running, submitted

pytestmark = pytest.mark.xdist_group("stacks")

SHORT = {"LUCIUS_ACK_TIMEOUT_SECONDS": "5", "LUCIUS_MAX_ATTEMPTS": "20"}
"""The bus of the stack forgets what it had when it ends."""


async def in_flight(stack: Stack, client: httpx.AsyncClient) -> tuple[str, str]:
    """One that is paused, and one that is under way."""
    paused = await submitted(client, stack.command(1, {}))
    assert (await client.post(f"/v1/jobs/{paused}:pause")).status_code == 200
    return paused, await submitted(client, stack.command(2, {"alpha": {"seconds": 5}}))


async def test_jobs_in_flight_end_on_the_engine_they_began_with(tmp_path: Path) -> None:
    with running("azure", tmp_path, **SHORT, LUCIUS_DRAIN_SECONDS="1") as before:
        async with client_of(before) as client:
            paused, under_way = await in_flight(before, client)
        assert before.stop() == 0, before.log()
    with running("temporal", tmp_path, **SHORT) as after:
        async with client_of(after) as client:
            new = await submitted(client, after.command(3, {}))
            assert (await client.post(f"/v1/jobs/{paused}:resume")).status_code == 200
            jobs = [await ended(client, job_id) for job_id in (paused, under_way, new)]
        assert [job["engine"] for job in jobs] == ["outbox", "outbox", "temporal"]
        assert {job["state"] for job in jobs} == {"SUCCEEDED"}
        assert after.verified() == ""
        assert after.stop() == 0, after.log()
