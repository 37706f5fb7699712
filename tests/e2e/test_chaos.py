"""Every process of a deployment is killed or frozen in turn, under load: every accepted job ends well."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.stacks import LEASE, WAIT, Stack, go_on, pause, running

pytestmark = pytest.mark.xdist_group("stacks")

CLIENTS = 6
"""Each has one job under way, for as long as something is being killed: a slow machine gets less to do."""
PATIENT = {"LUCIUS_MAX_ATTEMPTS": "20", "LUCIUS_LEASE_SECONDS": "10"}
"""Short leases, and attempts enough that on a slow machine no job fails for lack of them."""
SCRIPT = {"alpha": {"seconds": 0.2}, "beta": {"seconds": 0.2}}
TENANTS = 8
TRIES = 300
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
        for _ in range(5):
            path, wait = f"/v1/jobs/{job_id}", {"wait_seconds": WAIT}
            job: dict[str, Any] = (await self.ask("GET", path, params=wait)).json()
            if job.get("completed_at"):
                return job
        raise AssertionError(job)

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()


async def kill(stack: Stack, *victims: str) -> None:
    """Others take their places: the stack starts what has ended again."""
    dead = {victim: stack.parts(victim)[0] for victim in victims}
    for pid in dead.values():
        os.kill(pid, signal.SIGKILL)
    for _ in range(1200):
        await asyncio.sleep(0.1)
        if all(set(stack.parts(victim)) - {pid} for victim, pid in dead.items()):
            return
    raise AssertionError(f"nothing took the place of {victims}")


async def freeze(stack: Stack, victim: str) -> None:
    """Past its lease, and then it wakes up and believes that nothing has happened."""
    (pid, *_) = stack.parts(victim)
    pause(pid)
    await asyncio.sleep(1.5 * float(LEASE))
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


Numbers = Iterator[int]
"""Of jobs: no two are alike."""


async def one_job(stack: Stack, client: Client, numbers: Numbers) -> str:
    """From its submission to its end; how it ended."""
    command = stack.command(next(numbers), SCRIPT, tenants=TENANTS)
    return str((await client.ended(await client.submit(command)))["state"])


async def havoc(stack: Stack, client: Client, numbers: Numbers) -> None:
    """After each blow, and before the next one, a job that comes then ends well."""
    for blow, victims in BLOWS[stack.name]:
        await blow(stack, *victims)
        assert await one_job(stack, client, numbers) == "SUCCEEDED", victims


async def load(
    stack: Stack, client: Client, numbers: Numbers, until: "asyncio.Task[None]"
) -> Counter[str]:
    ends: Counter[str] = Counter()
    while not until.done():
        ends[await one_job(stack, client, numbers)] += 1
    return ends


@pytest.mark.parametrize(
    ("name", "storage", "bus"),
    [
        ("azure", "ledger", "servicebus"),
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
        client, numbers = Client(stack), count()
        breaking = asyncio.create_task(havoc(stack, client, numbers))
        try:
            loads = (load(stack, client, numbers, breaking) for _ in range(CLIENTS))
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
