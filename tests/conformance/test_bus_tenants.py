"""What a bus must do that can choose by tenant: take nothing from those who were not asked for."""

import asyncio
from datetime import timedelta

from lucius.ports.bus import Delivery
from tests.conformance.bus_registry import ADAPTERS, BY_TENANT, Harness
from tests.conformance.on_every import on_every

A = frozenset({"a"})
where_tenants_can_be_chosen = on_every(ADAPTERS, BY_TENANT)


async def receive(h: Harness, *tenants: str, wait: timedelta = timedelta()) -> list[Delivery]:
    found = await h.bus.receive("worker", [h.topic()], 10, wait, frozenset(tenants))
    return list(found)


def ids(deliveries: list[Delivery]) -> list[str]:
    return [delivery.message.message_id for delivery in deliveries]


@where_tenants_can_be_chosen
async def test_only_the_messages_of_the_tenants_are_received(h: Harness) -> None:
    await h.subscribe()
    for tenant_id in ("b", "a", "b", "c"):
        await h.publish(f"of {tenant_id}", tenant_id=tenant_id)
    await h.publish("of nobody")
    assert ids(await receive(h, "a", "c")) == ["of a", "of c"]
    assert not await receive(h)


@where_tenants_can_be_chosen
async def test_the_messages_of_others_are_not_touched(h: Harness) -> None:
    """However often someone asks who may not have them."""
    await h.subscribe(max_deliveries=2)
    await h.publish("1", "2", tenant_id="b")
    for _ in range(20):
        assert not await receive(h, "a")
    found = await receive(h, "b")
    assert [(d.message.message_id, d.count) for d in found] == [("1", 1), ("2", 1)]


@where_tenants_can_be_chosen
async def test_forty_receivers_of_one_tenant_take_nothing_from_another(h: Harness) -> None:
    await h.subscribe()
    polls = [asyncio.create_task(receive(h, "a", wait=timedelta(seconds=30))) for _ in range(40)]
    await asyncio.sleep(0)
    await h.publish(*map(str, range(20)), tenant_id="b")
    assert ids(await receive(h, "b", wait=h.patience)) == [str(n) for n in range(10)]
    for poll in polls:
        poll.cancel()
    await asyncio.wait(polls)
    assert len(await receive(h, "b")) == 10


@where_tenants_can_be_chosen
async def test_a_receiver_that_waits_for_one_tenant_is_woken_by_its_message(h: Harness) -> None:
    await h.subscribe()
    of_a = asyncio.create_task(receive(h, "a", wait=h.patience))
    of_all = asyncio.create_task(h.bus.receive("worker", [h.topic()], 1, h.patience))
    await asyncio.sleep(0)
    await h.publish("for all", tenant_id="b")
    await h.publish("for a", tenant_id="a")
    assert ids(await of_a) + ids(list(await of_all)) == ["for a", "for all"]
