"""What is particular to the memory bus: how little it does for each message."""

import asyncio
from datetime import timedelta

from lucius.adapters.buses.memory import MemoryBus
from lucius.ports.bus import Message, Subscription
from tests.virtual import VirtualLoop, run_virtually

TOPICS = [f"t{n}" for n in range(16)]
LOCK = timedelta(seconds=10)


async def _bus(*names: str) -> MemoryBus:
    bus = MemoryBus()
    await bus.ensure([Subscription(t, name, lock=LOCK) for t in TOPICS for name in names])
    return bus


def test_topics_take_turns() -> None:
    async def main(loop: VirtualLoop) -> list[str]:
        bus = await _bus("w")
        for topic in ("t3", "t1", "t2"):
            await bus.publish(topic, [Message(f"{topic}.{n}", {}) for n in range(3)])
        taken = await bus.receive("w", TOPICS, 9, timedelta(0))
        await bus.close()
        return [delivery.topic for delivery in taken]

    assert run_virtually(main) == ["t3", "t1", "t2"] * 3


def test_tenants_take_turns_whatever_they_have_and_on_however_many_topics() -> None:
    async def main(loop: VirtualLoop) -> list[str]:
        bus = await _bus("w")
        for topic in TOPICS[:3]:
            await bus.publish(topic, [_of("large", n) for n in range(5)])
        for tenant_id in ("small", "smaller"):
            await bus.publish("t1", [_of(tenant_id, n) for n in range(2)])
        taken = await bus.receive("w", TOPICS, 8, timedelta(0))
        await bus.close()
        return [str(delivery.message.properties["tenant_id"]) for delivery in taken]

    turns = ["large", "small", "smaller"]
    assert run_virtually(main) == [*turns, *turns, "large", "large"]


def _of(tenant_id: str, number: int) -> Message:
    return Message(f"{tenant_id} {number}", {}, {"tenant_id": tenant_id})


def test_what_is_given_back_again_and_again_holds_up_no_other_tenant() -> None:
    async def main(loop: VirtualLoop) -> list[str]:
        bus = await _bus("w")
        await bus.publish("t1", [_of("storm", 0)])
        await bus.publish("t1", [_of("quiet", n) for n in range(3)])
        done: list[str] = []
        for _ in range(6):
            (delivery,) = await bus.receive("w", TOPICS, 1, timedelta(0))
            if delivery.message.properties["tenant_id"] == "storm":
                await bus.abandon(delivery)
            else:
                await bus.complete(delivery)
                done.append(delivery.message.message_id)
        await bus.close()
        return done

    assert run_virtually(main) == ["quiet 0", "quiet 1", "quiet 2"]


def test_locks_run_out_in_their_order_and_settled_ones_stay_settled() -> None:
    async def main(loop: VirtualLoop) -> None:
        bus = await _bus("w")
        await bus.publish("t1", [Message("a", {}), Message("b", {})])
        (a,) = await bus.receive("w", TOPICS, 1, timedelta(0))
        await asyncio.sleep(4)
        await bus.receive("w", TOPICS, 1, timedelta(0))
        await bus.complete(a)
        await asyncio.sleep(7)
        assert not await bus.receive("w", TOPICS, 1, timedelta(0))
        (again,) = await bus.receive("w", TOPICS, 1, timedelta(seconds=60))
        assert (again.message.message_id, again.count, loop.time()) == ("b", 2, 14.0)
        await bus.close()

    run_virtually(main)


def test_whoever_leaves_messages_behind_wakes_the_next() -> None:
    """A receiver of two topics may take the message that another could not have been woken for."""

    async def main(loop: VirtualLoop) -> None:
        bus = await _bus("w")
        wait = timedelta(seconds=60)
        both = asyncio.create_task(bus.receive("w", ["t1", "t2"], 1, wait))
        await asyncio.sleep(0.1)
        only = asyncio.create_task(bus.receive("w", ["t1"], 1, wait))
        await asyncio.sleep(0.1)
        await bus.publish("t2", [Message("x", {})])
        await bus.publish("t1", [Message("y", {})])
        await asyncio.gather(both, only)
        assert loop.time() < 1.0
        await bus.close()

    run_virtually(main)


def test_a_woken_receiver_that_is_cancelled_passes_the_message_on() -> None:
    async def main(loop: VirtualLoop) -> None:
        bus = await _bus("w")
        first, second = (
            asyncio.create_task(bus.receive("w", TOPICS, 1, timedelta(seconds=60))) for _ in "12"
        )
        await asyncio.sleep(0.1)
        await bus.publish("t1", [Message("x", {})])
        first.cancel()
        (delivery,) = await second
        assert (delivery.count, loop.time() < 1.0) == (1, True)
        await bus.close()

    run_virtually(main)


def test_an_endless_backlog_does_not_starve_other_tasks() -> None:
    async def main(loop: VirtualLoop) -> None:
        bus = await _bus("w")
        await bus.publish("t1", [Message(str(n), {}) for n in range(100)])
        breaths = 0

        async def breathe() -> None:
            nonlocal breaths
            while True:
                breaths += 1
                await asyncio.sleep(0)

        other = asyncio.create_task(breathe())
        for _ in range(100):
            await bus.complete((await bus.receive("w", TOPICS, 1, timedelta(0)))[0])
        other.cancel()
        assert breaths >= 100
        await bus.close()

    run_virtually(main)
