"""A bus that another process has: what crosses the link, and what becomes of it when one side goes."""

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from lucius.buses.linked import BusLink, LinkedBus
from lucius.buses.memory import MemoryBus
from lucius.core.errors import BusUnavailableError, PublishRefusedError
from lucius.ports.bus import Message, Subscription

WAIT = timedelta(seconds=20)


@dataclass
class Both:
    """The process with the bus, and the one that has a link to it."""

    bus: MemoryBus
    near: LinkedBus
    far: BusLink
    heard: list[tuple[str, Any]] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    async def receiving(self, limit: int = 1) -> "asyncio.Task[Any]":
        """A receive that the other process knows of."""
        task = asyncio.create_task(self.near.receive("worker", ["t"], limit, WAIT))
        await asyncio.sleep(0.02)
        return task


async def pair() -> Both:
    loop, (here, there), heard, ends = asyncio.get_running_loop(), socket.socketpair(), [], []
    gone, bus = asyncio.Event(), MemoryBus()

    def far_lost() -> None:
        ends.append("far")
        gone.set()

    near = LinkedBus(lambda word, value: heard.append((word, value)), lambda: ends.append("near"))
    far = BusLink(bus, lambda word, value: heard.append((word, value)), far_lost)
    for end in (here, there):
        end.setblocking(False)
    await loop.connect_accepted_socket(lambda: near.packets, here)
    await loop.connect_accepted_socket(lambda: far.packets, there)
    await bus.ensure([Subscription("t", "worker")])
    return Both(bus, near, far, heard, ends, gone)


@pytest.fixture
async def both() -> AsyncIterator[Both]:
    made = await pair()
    yield made
    await made.near.close()
    await asyncio.wait_for(made.gone.wait(), 10)
    await made.bus.close()


async def test_what_was_sent_arrives_though_its_sender_dies_at_once() -> None:
    """An ACK is out before the work begins: so whoever dies by its work has been heard of."""
    both = await pair()
    await both.near.publish("t", [Message("ack", {})])
    transport = both.near.packets._transport
    assert transport is not None
    transport.abort()
    (delivery,) = await both.bus.receive("worker", ["t"], 1, WAIT)
    assert delivery.message.message_id == "ack"
    await asyncio.wait_for(both.gone.wait(), 10)
    await both.bus.close()


async def test_what_the_dead_held_comes_again_at_once() -> None:
    both = await pair()
    await both.bus.publish("t", [Message(str(number), {}) for number in range(3)])
    held = await both.near.receive("worker", ["t"], 3, WAIT)
    await both.near.complete(held[0])
    await both.near.close()
    await asyncio.wait_for(both.gone.wait(), 10)
    again = await both.bus.receive("worker", ["t"], 3, WAIT)
    assert {(each.message.message_id, each.count) for each in again} == {("1", 2), ("2", 2)}
    await both.bus.close()


async def test_what_the_dead_had_begun_does_not_come_again() -> None:
    """Its lease ends otherwise, and another one begins. The ACK was out, and what settles it was not."""
    both = await pair()
    leases = [{"lease_id": str(number)} for number in range(2)]
    await both.bus.publish("t", [Message(lease["lease_id"], lease) for lease in leases])
    await both.near.receive("worker", ["t"], 2, WAIT)
    await both.near.publish("replies", [Message("ack", {"type": "ACK", "lease_id": "0"})])
    await both.near.close()
    await asyncio.wait_for(both.gone.wait(), 10)
    (again,) = await both.bus.receive("worker", ["t"], 2, WAIT)
    assert again.message.message_id == "1"
    await both.bus.close()


async def test_whoever_waits_when_the_other_side_goes_is_told() -> None:
    both = await pair()
    waiting = await both.receiving()
    both.far.packets.close()
    with pytest.raises(BusUnavailableError, match="gone"):
        await waiting
    with pytest.raises(BusUnavailableError):
        await both.near.publish("t", [Message("late", {})])
    assert both.ends == ["near", "far"] or both.ends == ["far", "near"]
    await both.bus.close()


async def test_a_receiver_that_gives_up_leaves_its_messages(both: Both) -> None:
    waiting = await both.receiving()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await asyncio.sleep(0.02)
    await both.bus.publish("t", [Message("m", {})])
    (delivery,) = await both.bus.receive("worker", ["t"], 1, WAIT)
    assert delivery.count == 1, "nobody had it meanwhile"


async def test_messages_that_cross_with_giving_up_are_given_back(both: Both) -> None:
    waiting = await both.receiving()
    await both.bus.publish("t", [Message("m", {})])
    for _ in range(100):
        if both.far._held:
            break  # the answer is on its way
        await asyncio.sleep(0)
    waiting.cancel()
    got = (await asyncio.gather(waiting, return_exceptions=True))[0]
    if isinstance(got, asyncio.CancelledError):
        (delivery,) = await both.bus.receive("worker", ["t"], 1, WAIT)
        assert (delivery.message.message_id, delivery.count) == ("m", 2)
    assert not both.far._held or not isinstance(got, asyncio.CancelledError)


async def test_what_is_not_json_is_refused_alone(both: Both) -> None:
    with pytest.raises(PublishRefusedError, match="not JSON"):
        await both.near.publish("t", [Message("bad", {"text": "\udcff"})])
    await both.near.publish("t", [Message("good", {})])
    (delivery,) = await both.near.receive("worker", ["t"], 5, WAIT)
    assert delivery.message.message_id == "good"


async def test_a_full_socket_is_waited_for(both: Both) -> None:
    """Many times what a socket holds, while the other side does not read."""
    large = "x" * 100_000
    transport = both.far.packets._transport
    assert transport is not None
    transport.pause_reading()
    sending = asyncio.create_task(
        both.near.publish("t", [Message(str(number), {"x": large}) for number in range(50)])
    )
    done, _ = await asyncio.wait([sending], timeout=0.1)
    assert not done, "the system does not have it yet"
    transport.resume_reading()
    await sending
    got = [m async for m in _all(both, 50)]
    assert len(got) == 50


async def _all(both: Both, count: int) -> AsyncIterator[str]:
    left = count
    while left:
        for each in await both.bus.receive("worker", ["t"], left, WAIT):
            left -= 1
            yield each.message.message_id


async def test_orders_and_reports_go_beside_the_bus(both: Both) -> None:
    both.far.order("drain")
    both.near.report("ready", 7)
    for _ in range(1000):
        if len(both.heard) == 2:
            break
        await asyncio.sleep(0.001)
    assert sorted(both.heard, key=str) == [("drain", None), ("ready", 7)]


async def test_a_settlement_that_comes_too_late_stops_nothing(both: Both) -> None:
    await both.bus.publish("t", [Message("m", {})])
    (delivery,) = await both.near.receive("worker", ["t"], 1, WAIT)
    await both.near.complete(delivery)
    await both.near.complete(delivery)
    await both.near.publish("t", [Message("next", {})])
    (after,) = await both.near.receive("worker", ["t"], 1, WAIT)
    assert after.message.message_id == "next"
