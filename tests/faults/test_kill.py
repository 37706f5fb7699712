"""FM_022: a loaded server is killed with SIGKILL at random moments, again and again."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx
import pytest

from lucius.adapters.workspaces.records import Records
from lucius.ports.workspace import COMMITS
from tests.faults.server import STEPS, Server, command, ready

KILLS = 5
IN_FLIGHT = 24
ATTEMPTS = 20
"""The most that there may be. A step is charged for each kill but the first that finds it at work."""


def script(number: int) -> tuple[dict[str, Any], str]:
    """Most jobs succeed, some after a retry, some are meant to fail."""
    if number % 10 == 3:
        return {"beta": {"script": ["fatal"] * ATTEMPTS}}, "FAILED_FINAL"
    if number % 10 == 6:
        return {"beta": {"script": ["retry"], "seconds": 0.01}}, "SUCCEEDED"
    return {"alpha": {"seconds": 0.02}}, "SUCCEEDED"


@dataclass
class Load:
    """Submits without end; a request that got no answer is sent again with the same key."""

    client: httpx.AsyncClient
    server: Server
    accepted: dict[str, str] = field(default_factory=dict)
    by_number: dict[int, set[str]] = field(default_factory=dict)
    progress: asyncio.Condition = field(default_factory=asyncio.Condition)
    stopping: bool = False
    _next: int = 0

    async def run(self) -> None:
        while not self.stopping:
            number, self._next = self._next, self._next + 1
            await self._submit(number)

    async def _submit(self, number: int) -> None:
        payload, expected = script(number)
        while True:
            try:
                answer = await self.client.post(
                    "/v1/orchestrate", json=command(number, payload, self.server)
                )
            except httpx.TransportError:
                await asyncio.sleep(0.05)
                continue
            assert answer.status_code == 202, answer.text
            job_id = answer.json()["jobId"]
            self.by_number.setdefault(number, set()).add(job_id)
            async with self.progress:
                self.accepted[job_id] = expected
                self.progress.notify_all()
            return

    async def more(self, count: int) -> None:
        """Until so many more jobs are accepted."""
        target = len(self.accepted) + count
        async with self.progress:
            await self.progress.wait_for(lambda: len(self.accepted) >= target)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    server = Server(tmp_path / "data", LUCIUS_MAX_ATTEMPTS=str(ATTEMPTS))
    yield server
    server.close()


async def ended(client: httpx.AsyncClient, job_id: str) -> dict[str, Any]:
    while True:
        answer = await client.get(f"/v1/jobs/{job_id}", params={"wait_seconds": 30})
        job: dict[str, Any] = answer.json()
        assert answer.status_code == 200, answer.text
        if job["state"] in ("SUCCEEDED", "FAILED_FINAL", "CANCELLED"):
            return job


async def finished_count(client: httpx.AsyncClient) -> int:
    answer = await client.get("/metrics")
    lines = [
        line for line in answer.text.splitlines() if line.startswith("lucius_jobs_ended_total{")
    ]
    return int(sum(float(line.rsplit(" ", 1)[1]) for line in lines))


async def killed_after_one_job(server: Server) -> int:
    """Submit one job, kill the server on its 202, start it again: the status of reading the job."""
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
        server.start()
        await ready(client, server)
        answer = await client.post(
            "/v1/orchestrate", json=command(0, {"alpha": {"seconds": 60}}, server)
        )
        assert answer.status_code == 202, answer.text
        server.kill()
        server.start()
        await ready(client, server)
        return (await client.get(f"/v1/jobs/{answer.json()['jobId']}")).status_code


async def test_fm_022_reproduce_without_a_durable_ledger_an_accepted_job_is_lost(
    tmp_path: Path,
) -> None:
    server = Server(tmp_path / "data", LUCIUS_STORAGE_BACKEND="memory")
    try:
        assert await killed_after_one_job(server) == 404
    finally:
        server.close()


async def test_fm_022_prevent_a_job_is_durable_before_it_is_accepted(server: Server) -> None:
    assert await killed_after_one_job(server) == 200


async def test_fm_022_recover_every_accepted_job_ends_as_scripted_after_many_kills(
    server: Server,
) -> None:
    random = Random(22)
    limits = httpx.Limits(max_connections=IN_FLIGHT * 2)
    async with httpx.AsyncClient(base_url=server.url, timeout=60, limits=limits) as client:
        load = Load(client, server)
        server.start()
        await ready(client, server)
        workers = [asyncio.create_task(load.run()) for _ in range(IN_FLIGHT)]
        finished_between = 0
        for _ in range(KILLS):
            await load.more(random.randint(1, 60))
            finished_between += await finished_count(client) > 0
            server.kill()
            server.start()
            await ready(client, server)
        load.stopping = True
        await asyncio.gather(*workers)
        jobs = [await ended(client, job_id) for job_id in load.accepted]
        assert server.stop() == 0

    assert all(len(ids) == 1 for ids in load.by_number.values()), "a key made two jobs"
    wrong = {j["jobId"]: j for j in jobs if j["state"] != load.accepted[j["jobId"]]}
    assert not wrong, json.dumps(next(iter(wrong.values())), indent=1)
    assert finished_between >= KILLS // 2, "jobs finish between the kills"
    check_effects(jobs, server.data)
    verified = server.verify()
    assert verified.returncode == 0, verified.stdout


def check_effects(jobs: list[dict[str, Any]], data: Path) -> None:
    """Each finished step has one commit record, and what is promoted is what it names."""
    notes = Records(f"{data}/workspace").below(f"{data}/workspace")
    records = Counter(Path(note).parent.parent.name for note in notes if f"/{COMMITS}/" in note)
    for job in jobs:
        done = [step for step in job["steps"] if step["state"] == "SUCCEEDED"]
        assert records[job["jobId"]] == len(done), job["jobId"]
        for step in done:
            promoted = Path(unquote(urlsplit(step["result_ref"]["uri"]).path)).read_bytes()
            assert sha256(promoted).hexdigest() == step["result_ref"]["sha256"]
    assert len(STEPS) * len(jobs) >= sum(records.values())
