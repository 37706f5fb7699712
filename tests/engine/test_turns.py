"""Subscriptions of one service take turns: none starves another, and nothing is lost on the way."""

import asyncio
from datetime import timedelta

import pytest

from lucius.adapters.buses.memory import MemoryBus
from lucius.core.errors import BusUnavailableError
from lucius.engine.gateway import AT_ONCE, Turns
from lucius.ports.bus import Delivery, Message, Subscription
from tests.virtual import VirtualLoop, run_virtually

TOPIC = "topic"
SOON = timedelta(seconds=30)


async def bus_with(**counts: int) -> MemoryBus:
    """A subscription for each kind, with so many messages in it."""
    bus = MemoryBus()
    await bus.ensure([Subscription(TOPIC, name, {"kind": (name,)}) for name in ("a", "b")])
    for kind, count in counts.items():
        await publish(bus, kind, count)
    return bus


async def publish(bus: MemoryBus, kind: str, count: int = 1) -> None:
    await bus.publish(TOPIC, [Message(f"{kind}{n}", {}, {"kind": kind}) for n in range(count)])


def turns_of(bus: MemoryBus) -> Turns:
    return Turns(bus, ("a", "b"), (TOPIC,))


def kinds(deliveries: "list[Delivery] | tuple[Delivery, ...]") -> str:
    return "".join(sorted(delivery.subscription for delivery in deliveries))


@pytest.mark.parametrize(
    ("a", "b", "limit", "taken"),
    [(9, 9, 4, "aabb"), (9, 1, 4, "aaab"), (0, 9, 4, "bbbb"), (1, 1, 9, "ab"), (0, 0, 4, "")],
)
async def test_each_gets_its_part_and_the_rest_goes_to_whoever_has_more(
    a: int, b: int, limit: int, taken: str
) -> None:
    turns = turns_of(await bus_with(a=a, b=b))
    assert kinds([*await turns.receive(limit, AT_ONCE)]) == taken


async def test_a_worker_with_one_slot_is_given_them_in_turn() -> None:
    turns = turns_of(await bus_with(a=4, b=4))
    one_by_one = [kinds([*await turns.receive(1, AT_ONCE)]) for _ in range(4)]
    assert one_by_one in (["a", "b"] * 2, ["b", "a"] * 2)


@pytest.mark.parametrize("kind", ["a", "b"])
def test_whoever_has_something_first_is_enough(kind: str) -> None:
    async def main(loop: VirtualLoop) -> None:
        bus = await bus_with()
        waiting = asyncio.create_task(turns_of(bus).receive(5, SOON))
        await asyncio.sleep(3)
        await publish(bus, kind)
        assert kinds([*await waiting]) == kind
        assert loop.time() == pytest.approx(3)

    run_virtually(main)


def test_what_comes_beyond_the_limit_is_given_back_at_once() -> None:
    async def main(loop: VirtualLoop) -> None:
        bus = await bus_with()
        turns = turns_of(bus)
        waiting = asyncio.create_task(turns.receive(1, SOON))
        await asyncio.sleep(1)
        await publish(bus, "a")
        await publish(bus, "b")
        first = kinds([*await waiting])
        assert sorted(first + kinds([*await turns.receive(1, AT_ONCE)])) == ["a", "b"]

    run_virtually(main)


def test_nothing_is_lost_on_a_receiver_that_goes_away() -> None:
    async def main(loop: VirtualLoop) -> None:
        bus = await bus_with()
        turns = turns_of(bus)
        waiting = asyncio.create_task(turns.receive(1, SOON))
        await asyncio.sleep(1)
        await publish(bus, "a")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert kinds([*await turns.receive(1, AT_ONCE)]) == "a"

    run_virtually(main)


def test_an_outage_is_told() -> None:
    async def main(loop: VirtualLoop) -> None:
        bus = await bus_with()
        waiting = asyncio.create_task(turns_of(bus).receive(1, SOON))
        await asyncio.sleep(1)
        bus.fail_with(BusUnavailableError("gone"))
        with pytest.raises(BusUnavailableError):
            await waiting

    run_virtually(main)


def test_nothing_comes_of_waiting_for_nothing() -> None:
    async def main(loop: VirtualLoop) -> None:
        assert not await turns_of(await bus_with()).receive(1, SOON)
        assert loop.time() == pytest.approx(30)

    run_virtually(main)
