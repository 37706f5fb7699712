"""The link between the server and the process of its services: what crosses it, and who may die when."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from lucius.buses.linked import LinkedBus, ServicesLink
from lucius.buses.memory import MemoryBus
from lucius.core.errors import BusUnavailableError, PublishRefusedError
from lucius.core.packed import Packed
from lucius.ports.bus import Delivery, Message, Subscription
from tests.bus_looks import backlog, dead_letters

WAIT = timedelta(seconds=20)
NOTHING = timedelta()


@dataclass
class Both:
    """The server's end and the services' end, and the bus behind the server's."""

    bus: MemoryBus = field(default_factory=MemoryBus)
    replies: list[Any] = field(default_factory=list)
    room: asyncio.Event = field(default_factory=asyncio.Event)
    """Whether the server takes replies."""
    heard: list[tuple[str, Any]] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    async def connect(self) -> None:
        self.room.set()
        self.services = LinkedBus(self._aside, lambda: self.ends.append("services"))
        taken = (self._took, self.room.wait)
        self.server = ServicesLink(self.bus, *taken, self._aside, self._lost)
        loop, ends = asyncio.get_running_loop(), socket.socketpair()
        for end, packets in zip(ends, (self.services.packets, self.server.packets), strict=True):
            end.setblocking(False)
            await loop.connect_accepted_socket(lambda made=packets: made, end)  # type: ignore[misc]
        await self.services.ensure([Subscription("t", "worker", {"step_type": ("OCR",)})])
        await until(lambda: bool(self.bus._queues))

    def _took(self, bodies: Sequence[Any]) -> bool:
        self.replies += bodies
        return self.room.is_set()

    def _aside(self, word: str, value: Any) -> None:
        self.heard.append((word, value))

    def _lost(self) -> None:
        self.ends.append("server")
        self.gone.set()

    async def publish(self, *names: str) -> None:
        of = {"step_type": "OCR"}
        await self.bus.publish("t", [Message(name, {"lease_id": name}, of) for name in names])

    async def receive(self, limit: int = 1, wait: timedelta = WAIT) -> list[Delivery]:
        return list(await self.services.receive("worker", ["t"], limit, wait))

    async def ack(self, lease_id: str) -> None:
        await self.services.publish("replies", [Message("", {"type": "ACK", "lease_id": lease_id})])

    async def die(self) -> None:
        """The process of the services goes without a word."""
        transport = self.services.packets._transport
        assert transport is not None
        transport.abort()
        await asyncio.wait_for(self.gone.wait(), 10)

    async def left(self) -> list[tuple[str, int]]:
        """What the next process receives: names, and how often each was handed out by then."""
        found = await self.bus.receive("worker", ["t"], 100, NOTHING)
        return [(each.message.message_id, each.count) for each in found]


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not true():
            await asyncio.sleep(0.001)


@pytest.fixture
async def both() -> AsyncIterator[Both]:
    made = Both()
    await made.connect()
    yield made
    await made.services.close()
    await asyncio.wait_for(made.gone.wait(), 10)
    await made.bus.close()


def names(deliveries: Sequence[Delivery]) -> list[str]:
    return [each.message.message_id for each in deliveries]


# -- directives ------------------------------------------------------------------------------


async def test_directives_come_as_far_as_there_is_room(both: Both) -> None:
    await both.publish(*"abcde")
    assert names(await both.receive(2)) == ["a", "b"]
    assert await backlog(both.bus, "worker", ["t"]) == 5
    assert [*both.server._held] and len(both.server._held) == 2, "the others wait where all can see"
    assert names(await both.receive(3)) == ["c", "d", "e"]


async def test_room_that_was_announced_is_filled_by_what_is_published_later(both: Both) -> None:
    waiting = asyncio.create_task(both.receive(8))
    await until(lambda: bool(both.server._receivers))
    await both.publish("a", "b")
    assert names(await waiting) == ["a", "b"], "one packet has both"


async def test_a_receiver_that_gives_up_finds_what_came_meanwhile(both: Both) -> None:
    assert await both.receive(2, NOTHING) == []
    await both.publish(*"abc")
    await until(lambda: len(both.server._held) == 2)
    assert names(await both.receive(2)) == ["a", "b"]
    assert len(both.server._held) == 2, "it had room for two, and has them"


async def test_an_ack_settles_its_directive(both: Both) -> None:
    await both.publish("a", "b")
    await both.receive(2)
    await both.ack("a")
    await until(lambda: len(both.server._held) == 1)
    assert await backlog(both.bus, "worker", ["t"]) == 1


async def test_what_was_not_begun_comes_again_in_its_order_and_what_was_begun_does_not() -> None:
    """Whoever ends the lease of what was begun has it done again, under another one."""
    both = Both()
    await both.connect()
    await both.publish(*"abcd")
    await both.receive(4)
    await both.ack("b")
    await both.die()
    assert await both.left() == [("a", 2), ("c", 2), ("d", 2)]


async def test_what_was_never_sent_stays_for_the_next_process() -> None:
    both = Both()
    await both.connect()
    await both.receive(1, NOTHING)
    await both.publish("a", "b")
    await until(lambda: bool(both.server._held))
    await both.die()
    await both.publish("c")
    assert await both.left() == [("a", 2), ("b", 1), ("c", 1)]
    both.gone.clear()


async def test_what_is_given_back_and_what_is_set_aside(both: Both) -> None:
    await both.publish(*"abc")
    first, second, third = await both.receive(3)
    await both.services.abandon(first)
    await both.services.dead_letter(second, "INVALID", "no directive")
    await both.services.complete(third)
    await until(lambda: not both.server._held)
    assert await both.left() == [("a", 2)]
    assert [each.reason for each in await dead_letters(both.bus, "worker", ["t"])] == ["INVALID"]


async def test_a_settlement_that_comes_too_late_stops_nothing(both: Both) -> None:
    await both.publish("a")
    (delivery,) = await both.receive()
    for _ in range(2):
        await both.services.complete(delivery)
        await both.services.abandon(delivery)
    await both.publish("b")
    assert names(await both.receive()) == ["b"]


async def test_a_directive_that_is_not_json_is_set_aside_alone(both: Both) -> None:
    bad = Message("bad", {"text": "\udcff"}, {"step_type": "OCR"})
    await both.bus.publish("t", [bad])
    await both.publish("good")
    assert names(await both.receive(5)) == ["good"]
    assert [each.reason for each in await dead_letters(both.bus, "worker", ["t"])] == ["NOT_JSON"]


async def test_a_payload_that_is_packed_crosses_as_it_is(both: Both) -> None:
    body = {"lease_id": "a", "payload": Packed(b'{"pages":[1,2]}')}
    await both.bus.publish("t", [Message("a", body, {"step_type": "OCR"})])
    (delivery,) = await both.receive()
    assert delivery.message.body["payload"] == {"pages": [1, 2]}


# -- replies ---------------------------------------------------------------------------------


async def test_what_was_sent_arrives_though_its_sender_dies_at_once() -> None:
    """An ACK is out before the work begins: so whoever dies by its work has been heard of."""
    both = Both()
    await both.connect()
    await both.ack("a")
    await both.die()
    assert both.replies == [{"type": "ACK", "lease_id": "a"}]


async def test_a_reply_that_is_not_json_is_refused_alone(both: Both) -> None:
    with pytest.raises(PublishRefusedError, match="not JSON"):
        await both.services.publish("replies", [Message("bad", {"text": "\udcff"})])
    await both.ack("a")
    await until(lambda: len(both.replies) == 1)


async def test_replies_of_any_form_harm_nobody(both: Both) -> None:
    for said in (["replies", [1, None, "x"]], ["replies", 7], ["room", "worker"], [], ["odd", 1]):
        both.services.packets.send(said)
    await both.ack("a")
    await until(lambda: len(both.replies) == 1)
    assert both.heard == [("room", "worker"), ("odd", 1)], "they pass for reports"


async def test_while_the_server_takes_no_replies_none_are_read(both: Both) -> None:
    both.room.clear()
    await both.ack("a")
    await until(lambda: len(both.replies) == 1)
    await both.ack("b")
    sending = asyncio.create_task(
        both.services.publish("replies", [Message("", {"x": "x" * 1_000_000})] * 20)
    )
    done, _ = await asyncio.wait([sending], timeout=0.1)
    assert not done, "the system does not have it yet"
    assert len(both.replies) == 1
    both.room.set()
    await sending
    await until(lambda: len(both.replies) == 22)


async def test_whoever_speaks_when_the_server_has_gone_is_told() -> None:
    both = Both()
    await both.connect()
    both.server.packets.close()
    await until(lambda: "services" in both.ends)
    with pytest.raises(BusUnavailableError):
        await both.ack("late")
    await asyncio.wait_for(both.gone.wait(), 10)


async def test_orders_and_reports_go_beside(both: Both) -> None:
    both.server.order("drain")
    both.services.report("ready", 7)
    await until(lambda: len(both.heard) == 2)
    assert sorted(both.heard, key=str) == [("drain", None), ("ready", 7)]
