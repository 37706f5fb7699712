"""Every process of a deployment is killed or frozen in turn, under load: every accepted job ends well."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from lucius.core.routing import LANES, lane_of
from tests.e2e.stacks import WAIT, Stack, go_on, pause, running

pytestmark = pytest.mark.xdist_group("stacks")

CLIENTS = 6
"""Each has one job under way, for as long as something is being killed: a slow machine gets less to do."""
PATIENT = {"LUCIUS_MAX_ATTEMPTS": "20", "LUCIUS_LEASE_SECONDS": "10"}
"""Short leases, and attempts enough that on a slow machine no job fails for lack of them."""
SCRIPT = {"alpha": {"seconds": 0.2}, "beta": {"seconds": 0.2}}
TENANTS = {lane_of(name): name for name in (f"tenant-{n}" for n in range(1000))}
"""One on every lane."""
TRIES = 1200
"""Of a client that asks again whenever the process that it has asked is gone."""


class Client:
    """It knows every address of the API, and turns to the next where one does not answer."""

    def __init__(self, stack: Stack) -> None:
        timeout = httpx.Timeout(WAIT + 10, connect=5)
        self._clients = [httpx.AsyncClient(base_url=url, timeout=timeout) for url in stack.urls]
        self.turned = 0

    async def ask(self, method: str, path: str, **how: Any) -> httpx.Response:
        """Requests may be repeated: a submission carries its key."""
        for attempt in range(TRIES):
            client = self._clients[(self.turned + attempt) % len(self._clients)]
            try:
                answer = await client.request(method, path, **how)
            except httpx.TransportError:
                await asyncio.sleep(0.2)
            else:
                if answer.status_code != 503:
                    self.turned += attempt
                    return answer
                await asyncio.sleep(0.2)
        raise AssertionError(f"nobody answers {method} {path}")

    async def submit(self, command: dict[str, Any]) -> str:
        answer = await self.ask("POST", "/v1/orchestrate", json=command)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["jobId"])

    async def ended(self, job_id: str) -> dict[str, Any]:
        """A job whose invoker froze between release and publish is looked at after 310 seconds."""
        for _ in range(8):
            path, wait = f"/v1/jobs/{job_id}", {"wait_seconds": WAIT}
            job: dict[str, Any] = (await self.ask("GET", path, params=wait)).json()
            if job.get("completed_at"):
                return job
        raise AssertionError(job)

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()


class Jobs:
    """Of one stack, each from its submission to its end; no two are alike."""

    def __init__(self, stack: Stack, client: Client) -> None:
        self.stack = stack
        self._client = client
        self._numbers = count()

    async def one(self, lane: int | None = None) -> str:
        """How it ended."""
        number = next(self._numbers)
        tenant_id = TENANTS[number % LANES if lane is None else lane]
        command = {**self.stack.command(number, SCRIPT), "tenant_id": tenant_id}
        return str((await self._client.ended(await self._client.submit(command)))["state"])

    async def one_on_every_lane(self) -> list[str]:
        return list(await asyncio.gather(*(self.one(lane) for lane in range(LANES))))

    async def until(self, breaking: "asyncio.Task[None]") -> Counter[str]:
        ends: Counter[str] = Counter()
        while not breaking.done():
            ends[await self.one()] += 1
        return ends


async def kill(jobs: Jobs, *victims: str) -> None:
    """Others take their places: the stack starts what has ended again."""
    dead = {victim: jobs.stack.parts(victim)[0] for victim in victims}
    for pid in dead.values():
        os.kill(pid, signal.SIGKILL)
    for _ in range(600):
        await asyncio.sleep(0.4)
        if all(set(jobs.stack.parts(victim)) - {pid} for victim, pid in dead.items()):
            return
    raise AssertionError(f"nothing took the place of {victims}")


async def freeze(jobs: Jobs, victim: str) -> None:
    """Until jobs have ended on its lanes too: others own them, so it is past its lease.

    Then it wakes up and believes that nothing has happened.
    """
    (pid, *_) = jobs.stack.parts(victim)
    pause(pid)
    assert set(await jobs.one_on_every_lane()) == {"SUCCEEDED"}
    go_on(pid)


Blow = tuple[Callable[..., Awaitable[None]], tuple[str, ...]]
SERVICES = tuple(f"run tests.faults.kill_services:{name}" for name in ("alpha", "beta", "gamma"))
BLOWS: dict[str, tuple[Blow, ...]] = {
    "azure": (
        (kill, ("/reconciler-1",)),
        (kill, ("/orchestrator-1",)),
        (freeze, ("/reconciler-2",)),
        (kill, SERVICES),
        (kill, ("/orchestrator-2", "/reconciler-2")),
    ),
    "temporal": (
        (kill, ("lucius worker",)),
        (kill, ("/invoker-1", "/orchestrator-1")),
        (kill, ("server start-dev",)),
        (freeze, ("/invoker-2",)),
        (kill, SERVICES),
        (kill, ("/orchestrator-2", "/invoker-2")),
    ),
}
"""Who is hit: what only its command line has."""


async def havoc(jobs: Jobs) -> None:
    """After each blow, and before the next one, a job that comes then ends well."""
    for blow, victims in BLOWS[jobs.stack.name]:
        await blow(jobs, *victims)
        assert await jobs.one() == "SUCCEEDED", victims


@pytest.mark.parametrize(
    ("name", "storage", "bus"),
    [
        ("azure", "table", "nats"),
        ("temporal", "ledger", "servicebus"),
    ],
)
async def test_every_accepted_job_survives(
    tmp_path: Path, name: str, storage: str, bus: str
) -> None:
    settings = {"LUCIUS_STORAGE_BACKEND": storage, "LUCIUS_BUS_BACKEND": bus, **PATIENT}
    with running(name, tmp_path, **settings) as stack:
        assert len(stack.urls) == 2
        client = Client(stack)
        jobs = Jobs(stack, client)
        breaking = asyncio.create_task(havoc(jobs))
        try:
            loads = (jobs.until(breaking) for _ in range(CLIENTS))
            ends = sum(await asyncio.gather(*loads), Counter[str]())
            await breaking
        finally:
            breaking.cancel()
            await client.close()
        assert set(ends) == {"SUCCEEDED"}
        assert ends.total() >= CLIENTS
        assert client.turned > 0, "no client has met a dead orchestrator"
        assert stack.verified() == ""
        assert stack.stop() == 0, stack.log()
