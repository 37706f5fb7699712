"""Window and fairness across real processes: two orchestrators, two reconcilers, three services.

One tenant floods a lane, another one on the same lane comes later with a few jobs. One of two processes
of a service is frozen meanwhile, with what it has. Counted is who ended before whom; no clock is read.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from lucius.core.routing import lane_of
from tests.e2e.stacks import Stack, go_on, pause, running
from tests.e2e.test_chaos import PATIENT, Client

pytestmark = pytest.mark.xdist_group("stacks")

FLOOD, FEW = 40, 4
NAMES = ("alpha", "alpha_too", "beta", "gamma")
"""Eight slots of three seconds: the flood takes a while, also on a quick machine."""
SLOW = {"alpha": {"seconds": 3}}
FLOODER = "flooder"
SMALL = next(name for n in range(1000) if lane_of(name := f"small-{n}") == lane_of(FLOODER))


def command(stack: Stack, tenant_id: str, number: int) -> dict[str, Any]:
    made = stack.command(number, SLOW)
    return {**made, "tenant_id": tenant_id, "idempotency_key": f"{tenant_id}-{number}"}


async def backlog_of(client: Client, service: str) -> list[dict[str, Any]]:
    rows = (await client.ask("GET", "/v1/admin/backlog")).json()["backlog"]
    return [row for row in rows if row["service"] == service and row["lane"] == lane_of(FLOODER)]


async def flooded(stack: Stack, client: Client) -> tuple[list[str], list[str]]:
    """Submit the flood, freeze a process of the first service, then submit the few."""
    flood = await asyncio.gather(*(client.submit(command(stack, FLOODER, n)) for n in range(FLOOD)))
    (frozen,) = stack.parts("alpha_too")
    pause(frozen)
    few = await asyncio.gather(
        *(client.submit(command(stack, SMALL, FLOOD + n)) for n in range(FEW))
    )
    return list(flood), list(few)


async def sampled(client: Client, seen: list[dict[str, Any]]) -> None:
    """What the owners of the lane write with their leases, again and again."""
    while True:
        seen += await backlog_of(client, "alpha")
        await asyncio.sleep(0.5)


async def test_a_flood_waits_in_the_ledger_and_holds_up_nobody(tmp_path: Path) -> None:
    services = [f"tests.faults.kill_services:{name}" for name in NAMES]
    seen: list[dict[str, Any]] = []
    with running("azure", tmp_path, services, **PATIENT) as stack:
        client = Client(stack)
        sampling = asyncio.create_task(sampled(client, seen))
        try:
            flood, few = await flooded(stack, client)
            small = [await client.ended(job_id) for job_id in few]
            go_on(*stack.parts("alpha_too"))
            large = [await client.ended(job_id) for job_id in flood]
        finally:
            sampling.cancel()
            await client.close()
        assert {job["state"] for job in [*small, *large]} == {"SUCCEEDED"}, stack.log()
        last = max(job["completed_at"] for job in small)
        came = min(job["created_at"] for job in small)
        waiting = [job for job in large if job["completed_at"] > came]
        after = [job for job in waiting if job["completed_at"] > last]
        assert len(waiting) > FLOOD // 2, "the flood was no flood"
        assert len(after) > len(waiting) // 2, "the few waited for the flood"
        assert max(row["held"] for row in seen) > FLOOD // 4, "the ledger held nothing back"
        assert max(row["released"] for row in seen) < FLOOD // 2, "the window let the flood out"
