"""Processes of a stack are killed and frozen in turn, under load: every accepted job ends well."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.e2e.stacks import Stack, client_of, ended, go_on, pause, running, submitted

pytestmark = pytest.mark.xdist_group("stacks")

JOBS = 60
PACE = 0.5
PATIENT = {"LUCIUS_MAX_ATTEMPTS": "20", "LUCIUS_LEASE_SECONDS": "6"}
"""Short leases, and attempts enough that on a slow machine no job fails for lack of them."""
SCRIPT = {"alpha": {"seconds": 0.2}, "beta": {"seconds": 0.2}}


async def killed(stack: Stack, *words: str) -> None:
    """Another process takes its place: the stack starts what has ended again."""
    (victim, *_) = stack.parts(*words)
    os.kill(victim, signal.SIGKILL)
    for _ in range(600):
        await asyncio.sleep(0.1)
        if stack.parts(*words) and victim not in stack.parts(*words):
            return
    raise AssertionError(f"nothing took the place of {words}")


async def frozen(stack: Stack, *words: str) -> None:
    """Past its lease, and then it wakes up and believes that nothing has happened."""
    (victim, *_) = stack.parts(*words)
    pause(victim)
    await asyncio.sleep(8)
    go_on(victim)


async def havoc(stack: Stack) -> None:
    await asyncio.sleep(2)
    await killed(stack, "lucius reconciler", "reconciler-1")
    await asyncio.sleep(2)
    await frozen(stack, "lucius reconciler", "reconciler-2")
    for service in ("alpha", "beta", "gamma"):
        await killed(stack, "service run", f"kill_services:{service}")
    await killed(stack, "lucius reconciler", "reconciler-2")


async def havoc_on_temporal(stack: Stack) -> None:
    """The worker, both invokers in turn, and the Temporal server itself."""
    await asyncio.sleep(2)
    await killed(stack, "lucius worker")
    await killed(stack, "lucius invoker", "invoker-1")
    await killed(stack, "server start-dev")
    await frozen(stack, "lucius invoker", "invoker-2")
    await killed(stack, "lucius invoker", "invoker-2")
    await killed(stack, "service run", "kill_services:beta")
    await killed(stack, "lucius worker")


async def submitted_despite_all(stack: Stack, number: int) -> str:
    """A client that repeats its request with the same key until it is answered."""
    async with client_of(stack) as client:
        return await submitted(client, stack.command(number, SCRIPT, tenants=8))


@pytest.mark.parametrize(
    ("name", "backend"), [("azure", "ledger"), ("azure", "table"), ("temporal", "ledger")]
)
async def test_every_accepted_job_survives(tmp_path: Path, name: str, backend: str) -> None:
    with running(name, tmp_path, LUCIUS_STORAGE_BACKEND=backend, **PATIENT) as stack:
        breaking = asyncio.create_task((havoc if name == "azure" else havoc_on_temporal)(stack))
        job_ids = list[str]()
        for number in range(JOBS):
            job_ids.append(await submitted_despite_all(stack, number))
            await asyncio.sleep(PACE)
        await breaking
        async with client_of(stack) as client:
            jobs = [await ended(client, job_id) for job_id in job_ids]
        assert {job["state"] for job in jobs} == {"SUCCEEDED"}
        assert stack.verified() == ""
        assert stack.stop() == 0, stack.log()
