"""Workers are seen by the process that owns their lane; every other process learns of them."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.stacks import client_of, ended, running, submitted
from tests.faults.server import STEPS

pytestmark = pytest.mark.xdist_group("stacks")
PATIENCE = 180
"""Seconds: a process writes down what it has seen every ten."""


async def services_at(url: str) -> dict[str, Any]:
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        answer = await client.get("/v1/services")
    assert answer.status_code == 200, answer.text
    return {each["service"]: each for each in answer.json()["services"]}


async def seen_at(url: str, names: set[str]) -> dict[str, Any]:
    """When all of them were seen, by this process or by another."""
    async with asyncio.timeout(PATIENCE):
        while True:
            known = await services_at(url)
            if all(known[name]["workers"] for name in names):
                return known
            await asyncio.sleep(1)


async def test_each_process_knows_the_workers_that_others_have_seen(tmp_path: Path) -> None:
    with running("azure", tmp_path) as stack:
        assert len(stack.urls) >= 2, "two processes answer"
        async with client_of(stack) as client:
            job_id = await submitted(client, stack.command(1, {}))
            assert (await ended(client, job_id))["state"] == "SUCCEEDED", stack.log()
        names = {step.lower() for step in STEPS}
        seen = [await seen_at(url, names) for url in stack.urls]
        for name in names:
            workers = [{each["worker_id"] for each in known[name]["workers"]} for known in seen]
            assert set.intersection(*workers), "the same worker everywhere"
