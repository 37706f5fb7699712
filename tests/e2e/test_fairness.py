"""Window and fairness across real processes: two orchestrators, two reconcilers, three services.

One tenant floods a lane, another one on the same lane comes later with a few jobs. Both processes of a
service are frozen until then: so the whole flood waits when the few come, however slow the machine is.
One stays frozen, with what it has, until the few have ended. Counted is who ended before whom:
no clock is read.
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
PATIENCE = 240
NAMES = ("alpha", "alpha_too", "beta", "gamma")
ALPHAS = ("kill_services:alpha --data", "kill_services:alpha_too --data")
SLOW = {"alpha": {"seconds": 2}}
DEAF = {**PATIENT, "LUCIUS_ACK_TIMEOUT_SECONDS": "600"}
"""Nothing that a frozen process has is sent again."""
FLOODER = "flooder"
SMALL = next(name for n in range(1000) if lane_of(name := f"small-{n}") == lane_of(FLOODER))


def command(stack: Stack, tenant_id: str, number: int) -> dict[str, Any]:
    made = stack.command(number, SLOW)
    return {**made, "tenant_id": tenant_id, "idempotency_key": f"{tenant_id}-{number}"}


async def backlog_of(client: Client, service: str) -> list[dict[str, Any]]:
    rows = (await client.ask("GET", "/v1/admin/backlog")).json()["backlog"]
    return [row for row in rows if row["service"] == service and row["lane"] == lane_of(FLOODER)]


async def submitted(stack: Stack, client: Client, tenant_id: str, numbers: range) -> list[str]:
    commands = [command(stack, tenant_id, number) for number in numbers]
    return list(await asyncio.gather(*(client.submit(each) for each in commands)))


class Samples(list[dict[str, Any]]):
    """What the owners of the lane write with their leases, again and again."""

    def most(self, what: str) -> int:
        return max((int(row[what]) for row in self), default=0)

    async def look(self, client: Client) -> None:
        self += await backlog_of(client, "alpha")
        await asyncio.sleep(0.5)

    async def go_on(self, client: Client) -> None:
        while True:
            await self.look(client)

    async def until_held(self, client: Client, count: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while self.most("held") < count:
                await self.look(client)


async def test_a_flood_waits_in_the_ledger_and_holds_up_nobody(tmp_path: Path) -> None:
    services = [f"tests.faults.kill_services:{name}" for name in NAMES]
    seen = Samples()
    with running("azure", tmp_path, services, **DEAF) as stack:
        client = Client(stack)
        sampling = asyncio.create_task(seen.go_on(client))
        frozen = [stack.parts(name)[0] for name in ALPHAS]
        try:
            for pid in frozen:
                pause(pid)
            flood = await submitted(stack, client, FLOODER, range(FLOOD))
            few = await submitted(stack, client, SMALL, range(FLOOD, FLOOD + FEW))
            await seen.until_held(client, FLOOD // 2)
            go_on(frozen[0])
            small = [await client.ended(job_id) for job_id in few]
            go_on(frozen[1])
            large = [await client.ended(job_id) for job_id in flood]
        finally:
            sampling.cancel()
            await client.close()
        assert {job["state"] for job in [*small, *large]} == {"SUCCEEDED"}, stack.log()
        last = max(job["completed_at"] for job in small)
        after = [job for job in large if job["completed_at"] > last]
        assert len(after) > FLOOD // 2, "the few waited for the flood"
        assert seen.most("released") < FLOOD // 2, "the window let the flood out"
