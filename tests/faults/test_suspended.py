"""FM_016: a real server is stopped past the leases of its own services, and goes on."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx

from tests.faults.server import Server, command, ready
from tests.faults.test_kill import ended

JOBS = 5
PAST = timedelta(seconds=3)
"""How long after the end of the leases the process goes on."""


async def lease_ends(client: httpx.AsyncClient, job_id: str) -> datetime:
    """When the lease of the first step ends, once a service is at work on it."""
    while True:
        answer = await client.get(f"/v1/jobs/{job_id}/executions")
        for execution in answer.json()["executions"]:
            if execution["state"] == "IN_PROGRESS":
                return datetime.fromisoformat(execution["lease_expires_at"])


async def test_fm_016_recover_a_stopped_server_goes_on_with_the_work_of_its_services(
    tmp_path: Path,
) -> None:
    server = Server(tmp_path / "data", LUCIUS_LEASE_SECONDS="2", LUCIUS_MAX_ATTEMPTS="1")
    try:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
            server.start()
            await ready(client, server)
            payload = {"alpha": {"seconds": 8}}
            answers = [
                await client.post("/v1/orchestrate", json=command(number, payload, server))
                for number in range(JOBS)
            ]
            job_ids = [answer.json()["jobId"] for answer in answers]
            at = max([await lease_ends(client, job_id) for job_id in job_ids])
            server.suspend()
            await asyncio.sleep((at + PAST - datetime.now(UTC)).total_seconds())
            server.go_on()
            jobs = [await ended(client, job_id) for job_id in job_ids]
            assert "stood still" in server.log()
        assert {job["state"] for job in jobs} == {"SUCCEEDED"}, jobs[0]
    finally:
        server.close()
