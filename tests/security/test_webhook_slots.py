"""A receiver that is dead delays no other tenant's webhooks, and few of its own tenant's."""

import asyncio
from collections import Counter
from dataclasses import replace

import httpcore
import pytest

from lucius.core.decide import submit
from lucius.core.job import Job
from lucius.operations.webhooks import PER_TENANT, Slots, Webhooks
from lucius.system.outside import AT_ONCE, GuardedBackend, SocketOptions, guarded_transport
from tests.core.explore.configurations import small_plan
from tests.core.explore.world import NOW
from tests.security.receiver import PUBLIC_ADDRESS
from tests.virtual import VirtualLoop, run_virtually

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
GOOD = "https://good.example/hook"


class Wire(httpcore.AsyncNetworkBackend):
    """Names that begin with `dead` lead to an address that never answers; all others take it at once."""

    async def look_up(self, host: str, port: int) -> list[str]:
        return ["93.184.215.66" if host.startswith("dead") else PUBLIC_ADDRESS]

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: SocketOptions | None = None,
    ) -> httpcore.AsyncNetworkStream:
        if host != PUBLIC_ADDRESS:
            await asyncio.sleep(timeout or 3600)
            raise httpcore.ConnectTimeout("silence")
        return httpcore.AsyncMockStream([b"HTTP/1.1 204 No Content\r\n\r\n"])

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def job_of(tenant_id: str) -> Job:
    plan = replace(small_plan(0, 1, attempts=3), tenant_id=tenant_id, job_id=f"job_{tenant_id}")
    return submit(plan, NOW).job


async def delay_of(
    loop: VirtualLoop, tenant_id: str, tenants: int, hosts: int, count: int
) -> float:
    """How long a webhook to a good host waits behind `count` others, whose hosts are dead.

    The guarded transport is as it is: only the network below it is the test's.
    """
    wire = Wire()
    transport = guarded_transport(GuardedBackend(wire, wire.look_up))
    hooks, jobs = (
        Webhooks(SECRET, now=loop.now, transport=transport),
        list(map(dead, range(tenants))),
    )
    waiting = [
        asyncio.create_task(
            hooks.notify(jobs[n % tenants], f"owed-{n}", f"https://dead{n % hosts}.example/hook")
        )
        for n in range(count)
    ]
    await asyncio.sleep(0.1)
    begun = loop.time()
    assert await hooks.notify(job_of(tenant_id), "owed", GOOD)
    took = loop.time() - begun
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    await hooks.close()
    return took


def dead(number: int) -> Job:
    return job_of(f"dead_{number}")


@pytest.mark.parametrize("hosts", [1, 300], ids=["one dead host", "many dead hosts"])
def test_dead_hosts_of_one_tenant_do_not_delay_another_s_webhook(hosts: int) -> None:
    assert run_virtually(lambda loop: delay_of(loop, "b", 1, hosts, 300)) == pytest.approx(
        0, abs=0.01
    )


def test_nor_the_same_tenant_s_other_host() -> None:
    assert run_virtually(lambda loop: delay_of(loop, "dead_0", 1, 1, 300)) == pytest.approx(
        0, abs=0.01
    )


def test_where_the_dead_fill_every_slot_the_next_free_one_goes_to_who_has_none() -> None:
    tenants = AT_ONCE // PER_TENANT
    took = run_virtually(lambda loop: delay_of(loop, "b", tenants, 300, 2000))
    assert 0 < took <= 5, "the time one connection may take, however many wait"


# -- the slots themselves --------------------------------------------------------------------


async def test_no_host_and_no_tenant_has_more_than_its_part() -> None:
    slots, held, most = Slots(at_once=6, tenant=4, host=2), Counter[str](), Counter[str]()

    async def use(tenant: str, host: str) -> None:
        async with slots.one(tenant, host):
            names = (tenant, f"{tenant}/{host}", "all")
            held.update(names)
            most.update(
                {name: held[name] - most[name] for name in names if held[name] > most[name]}
            )
            await asyncio.sleep(0)
            held.subtract(names)

    users = [use(tenant, host) for tenant in "ab" for host in "xyz" for _ in range(9)]
    await asyncio.gather(*users)
    assert most["all"] == 6
    assert max(most["a"], most["b"]) <= 4
    assert max(most[f"{tenant}/{host}"] for tenant in "ab" for host in "xyz") == 2


async def test_a_wait_that_is_cancelled_costs_no_slot() -> None:
    slots = Slots(at_once=1, tenant=1, host=1)
    async with slots.one("a", "x"):
        waiting = [asyncio.create_task(_used(slots)) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.sleep(0)
    waiting[1].cancel()  # it was just given the slot, and has not woken up yet
    assert await asyncio.gather(*waiting, return_exceptions=True) != []
    assert await _used(slots)


async def _used(slots: Slots) -> bool:
    async with slots.one("b", "y"):
        return True
