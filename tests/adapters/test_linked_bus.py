"""The link between the server and the process of its services: what crosses it, and who may die when."""

import asyncio
import socket
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from lucius.adapters.buses.linked import LinkedBus, ServicesLink, Word
from lucius.adapters.buses.memory import MemoryBus
from lucius.adapters.buses.packets import MOST, Packets
from lucius.core.errors import BusUnavailableError, PublishRefusedError
from lucius.core.record import Packed
from lucius.ports.bus import Delivery, Message, Property, Subscription
from tests.bus_looks import backlog, dead_letters
from tests.virtual import run_virtually

WAIT = timedelta(seconds=20)
NOTHING = timedelta()
OCR: dict[str, Property] = {"step_type": "OCR"}
SUBSCRIPTION = Subscription("t", "worker", {"step_type": ("OCR",)})


@dataclass
class Both:
    """The server's end and the services' end, and the bus behind the server's."""

    bus: MemoryBus = field(default_factory=MemoryBus)
    replies: list[Any] = field(default_factory=list)
    capacity: asyncio.Event = field(default_factory=asyncio.Event)
    """Whether the server takes replies."""
    heard: list[tuple[str, Any]] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)

    async def connect(self) -> None:
        """Begin a life of the services' process."""
        self.capacity.set()
        self.services = LinkedBus(self._aside, lambda: self.ends.append("services"))
        taken = (self._took, self._until_capacity)
        self.server = ServicesLink(
            self.bus, *taken, self._aside, lambda: self.ends.append("server")
        )
        loop, ends = asyncio.get_running_loop(), socket.socketpair()
        for end, packets in zip(ends, (self.services.packets, self.server.packets), strict=True):
            end.setblocking(False)
            await loop.connect_accepted_socket(lambda made=packets: made, end)  # type: ignore[misc]
        await self.services.ensure([SUBSCRIPTION])
        await arrived()

    def _took(self, bodies: Sequence[Any]) -> bool:
        self.replies += bodies
        return self.capacity.is_set()

    async def _until_capacity(self) -> None:
        await self.capacity.wait()

    def _aside(self, word: str, value: Any) -> None:
        self.heard.append((word, value))

    async def publish(self, *names: str, **properties: Property) -> None:
        of = {**OCR, **properties}
        await self.bus.publish("t", [Message(name, {"lease_id": name}, of) for name in names])

    async def receive(self, limit: int = 1, wait: timedelta = WAIT) -> list[Delivery]:
        return list(await self.services.receive("worker", ["t"], limit, wait))

    async def say(self, kind: str, lease_id: Any) -> None:
        body = {"type": kind, "lease_id": lease_id}
        await self.services.publish("replies", [Message("", body)])

    async def die(self) -> None:
        """The process of the services goes without a word."""
        transport_of(self.services.packets).abort()
        await arrived()
        assert "server" in self.ends

    async def left(self) -> list[tuple[str, int]]:
        """What the next one receives: names, and how often each has been handed out by then."""
        found = await self.bus.receive("worker", ["t"], 100, NOTHING)
        return [(each.message.message_id, each.count) for each in found]

    def held(self) -> list[str]:
        return list(self.server._held)


def transport_of(packets: Packets) -> asyncio.Transport:
    assert packets._transport is not None
    return packets._transport


async def arrived() -> None:
    """Everything that is on its way arrives: it takes no virtual time."""
    await asyncio.sleep(0.01)


Body = Callable[[Both], Coroutine[Any, Any, None]]


def linked(body: Body) -> Callable[[], None]:
    """A test in virtual time, over real sockets."""

    async def main(loop: object) -> None:
        both = Both()
        await both.connect()
        try:
            await body(both)
        finally:
            await both.services.close()
            both.server.packets.close()
            await arrived()
            await both.bus.close()

    def test() -> None:
        run_virtually(main)

    test.__doc__ = body.__doc__
    return test


def names(deliveries: Sequence[Delivery]) -> list[str]:
    return [each.message.message_id for each in deliveries]


# -- directives ------------------------------------------------------------------------------


@linked
async def test_directives_come_as_far_as_there_is_room(both: Both) -> None:
    await both.publish(*"abcde")
    assert names(await both.receive(2)) == ["a", "b"]
    assert await backlog(both.bus, "worker", ["t"]) == 5
    assert both.held() == ["a", "b"], "the others wait where all receivers see them"
    assert names(await both.receive(3)) == ["c", "d", "e"]


@linked
async def test_room_that_was_announced_is_filled_by_what_is_published_later(both: Both) -> None:
    waiting = asyncio.create_task(both.receive(8))
    await arrived()
    await both.publish("a", "b")
    assert names(await waiting) == ["a", "b"], "they come together"


@linked
async def test_a_receiver_that_gives_up_finds_what_came_meanwhile(both: Both) -> None:
    assert await both.receive(2, NOTHING) == []
    await both.publish(*"abc")
    await arrived()
    assert names(await both.receive(2, NOTHING)) == ["a", "b"]
    assert both.held() == ["a", "b"], "it had room for two"


@linked
async def test_what_was_published_before_the_link_was_up_reaches_it(both: Both) -> None:
    await both.die()
    await both.publish("a", "b")
    await both.connect()
    assert names(await both.receive(5)) == ["a", "b"]


@linked
async def test_an_ack_completes_its_directive(both: Both) -> None:
    await both.publish("a", "b")
    first, _ = await both.receive(2)
    await both.say("ACK", "a")
    await arrived()
    assert both.held() == ["b"]
    assert await backlog(both.bus, "worker", ["t"]) == 1
    await both.services.complete(first)
    await both.say("RESULT", "a")
    await arrived()
    assert [each["type"] for each in both.replies] == ["ACK", "RESULT"]


@linked
async def test_what_needs_no_ack_is_completed_by_a_word(both: Both) -> None:
    await both.publish("a")
    (delivery,) = await both.receive()
    await both.services.complete(delivery)
    await arrived()
    assert not both.held()
    assert await backlog(both.bus, "worker", ["t"]) == 0


@linked
async def test_what_was_not_begun_comes_again_in_its_order_and_what_was_begun_does_not(
    both: Both,
) -> None:
    """Whoever ends the lease of what was begun has it done again, under another one."""
    await both.publish(*"abcd")
    await both.receive(4)
    await both.say("ACK", "b")
    await both.die()
    assert await both.left() == [("a", 2), ("c", 2), ("d", 2)]


@linked
async def test_what_was_never_sent_stays_for_the_next_process(both: Both) -> None:
    await both.receive(1, NOTHING)
    await both.publish("a", "b")
    await arrived()
    await both.die()
    await both.publish("c")
    assert await both.left() == [("a", 2), ("b", 1), ("c", 1)]


@linked
async def test_what_is_given_back_and_what_is_set_aside(both: Both) -> None:
    await both.publish("a", "b")
    first, second = await both.receive(2)
    await both.services.abandon(first)
    await both.services.dead_letter(second, "INVALID", "no directive")
    await arrived()
    assert await both.left() == [("a", 2)]
    assert [each.reason for each in await dead_letters(both.bus, "worker", ["t"])] == ["INVALID"]


@linked
async def test_a_settlement_that_comes_too_late_stops_nothing(both: Both) -> None:
    await both.publish("a")
    (delivery,) = await both.receive()
    for _ in range(2):
        await both.services.complete(delivery)
        await both.services.abandon(delivery)
    await both.publish("b")
    assert names(await both.receive()) == ["b"]


@linked
async def test_an_ack_that_comes_when_the_lock_has_run_out_is_passed_on(both: Both) -> None:
    await both.publish("a")
    await both.receive()
    await asyncio.sleep(61)
    assert await both.left() == [("a", 2)], "somebody else has it now"
    await both.say("ACK", "a")
    await both.say("RESULT", "a")
    await arrived()
    assert len(both.replies) == 2
    assert not both.ends


@linked
async def test_a_directive_that_cannot_be_sent_is_set_aside_alone(both: Both) -> None:
    bodies = ({"text": "\udcff"}, {"text": "x" * MOST})
    await both.bus.publish("t", [Message("bad", body, OCR) for body in bodies])
    await both.publish("good")
    assert names(await both.receive(5)) == ["good"]
    assert names(await both.receive(5, NOTHING)) == []
    letters = await dead_letters(both.bus, "worker", ["t"])
    assert [each.reason for each in letters] == ["NOT_SENDABLE", "NOT_SENDABLE"]


@linked
async def test_directives_that_are_large_together_come_in_several_packets(both: Both) -> None:
    body = {"text": "x" * (MOST // 3)}
    many = [Message(str(number), {**body, "lease_id": number}, OCR) for number in range(20)]
    await both.bus.publish("t", many)
    found: list[str] = []
    while len(found) < 20:
        found += names(await both.receive(20))
    assert found == [str(number) for number in range(20)]


@linked
async def test_a_payload_that_is_packed_crosses_as_it_is(both: Both) -> None:
    body = {"lease_id": "a", "payload": Packed(b'{"pages":[1,2]}')}
    await both.bus.publish("t", [Message("a", body, OCR)])
    (delivery,) = await both.receive()
    assert delivery.message.body["payload"] == {"pages": [1, 2]}


# -- beside other receivers ------------------------------------------------------------------


async def pulled(both: Both, limit: int = 1, tenants: Sequence[str] | None = None) -> list[str]:
    """What a worker gets that pulls from the same subscription."""
    found = await both.bus.receive("worker", ["t"], limit, WAIT, tenants)
    for each in found:
        await both.bus.complete(each)
    return names(found)


@linked
async def test_the_services_and_a_worker_that_pulls_take_turns(both: Both) -> None:
    got: dict[str, list[str]] = {"services": [], "worker": []}

    async def serve() -> None:
        while True:
            got["services"] += names(await both.receive(64))

    async def pull() -> None:
        while True:
            got["worker"] += await pulled(both)

    tasks = [asyncio.create_task(each()) for each in (serve, pull)]
    await arrived()
    for number in range(20):
        await both.publish(str(number))
        await arrived()
    for task in tasks:
        task.cancel()
    assert sorted(map(int, got["services"] + got["worker"])) == list(range(20))
    assert len(got["services"]) == len(got["worker"]) == 10


@linked
async def test_what_the_services_have_no_room_for_goes_to_a_worker_that_waits(both: Both) -> None:
    serving = asyncio.create_task(both.receive(1))
    await arrived()
    pulling = asyncio.create_task(pulled(both, 5))
    await arrived()
    await both.publish("a", "b", "c")
    assert names(await serving) == ["a"]
    assert await pulling == ["b", "c"]


@linked
async def test_a_worker_of_some_tenants_gets_theirs_and_the_services_all(both: Both) -> None:
    pulling = asyncio.create_task(pulled(both, 5, ["birch"]))
    await arrived()
    await both.publish("a", "b", tenant_id="acme")
    await both.publish("c", tenant_id="birch")
    assert await pulling == ["c"]
    assert names(await both.receive(5)) == ["a", "b"]


@linked
async def test_tenants_take_turns_for_the_room_of_the_services(both: Both) -> None:
    await both.publish("a1", "a2", "a3", tenant_id="acme")
    await both.publish("b1", tenant_id="birch")
    assert names(await both.receive(2)) == ["a1", "b1"]


@linked
async def test_what_the_services_were_woken_for_goes_to_others_when_they_die(both: Both) -> None:
    await both.receive(1, NOTHING)
    await arrived()
    pulling = asyncio.create_task(pulled(both))
    await arrived()
    publishing = asyncio.create_task(both.publish("a"))
    transport_of(both.server.packets).abort()
    assert await pulling == ["a"]
    await publishing


@linked
async def test_services_that_have_died_stand_in_nobodys_way(both: Both) -> None:
    await both.receive(1, NOTHING)
    await arrived()
    pulling = asyncio.create_task(pulled(both))
    await both.die()
    await both.publish("a")
    assert await asyncio.wait_for(pulling, 1) == ["a"], "at once, in virtual time"


@linked
async def test_the_services_stand_in_line_once(both: Both) -> None:
    for number in range(5):
        await both.publish(str(number))
        await both.receive(3)
    assert len(both.bus._groups["worker"].waiters) == 1


@linked
async def test_while_the_bus_fails_nothing_is_taken_and_afterwards_everything(both: Both) -> None:
    await both.publish("a")
    both.bus.fail_with(BusUnavailableError("an outage"), ["receive"])
    waiting = asyncio.create_task(both.receive(2))
    await asyncio.sleep(5)
    assert not waiting.done()
    both.bus.fail_with(None)
    assert names(await waiting) == ["a"]


# -- replies ---------------------------------------------------------------------------------


@linked
async def test_what_was_sent_arrives_though_its_sender_dies_at_once(both: Both) -> None:
    """An ACK is out before the work begins: so whoever dies by its work has been heard of."""
    await both.say("ACK", "a")
    await both.die()
    assert both.replies == [{"type": "ACK", "lease_id": "a"}]


@pytest.mark.parametrize("text", ["\udcff", "x" * MOST])
def test_a_reply_that_cannot_be_sent_is_refused_alone(text: str) -> None:
    @linked
    async def test(both: Both) -> None:
        with pytest.raises(PublishRefusedError, match="cannot be sent"):
            await both.services.publish("replies", [Message("bad", {"text": text})])
        await both.say("ACK", "a")
        await arrived()
        assert [each["lease_id"] for each in both.replies] == ["a"]

    test()


HOSTILE: Sequence[Any] = (
    7,
    None,
    [],
    {},
    "reply",
    ["reply"],
    ["reply", 7],
    ["reply", {}, {}],
    ["reply", {"type": "ACK", "lease_id": []}],
    ["reply", {"type": "ACK", "lease_id": {"a": 1}}],
    ["reply", {"type": "ACK", "lease_id": "not mine"}],
    ["reply", {"type": [], "jobId": {}}],
    ["room", "worker"],
    ["room", "another", [[]], 5],
    ["room", "worker", ["t"], "many"],
    ["room", ["worker"], ["t"], 5],
    ["room", "worker", ["t"], -(2**62)],
    ["subscribe", "t", "worker", 7],
    ["subscribe", "t", "worker", {"step_type": 7}],
    ["complete", []],
    ["abandon", "not mine"],
    ["set aside", "a", None, None],
    ["nothing that is known", 7],
    [[], []],
)


@linked
async def test_whatever_is_said_harms_neither_the_server_nor_the_rest(both: Both) -> None:
    await both.publish("a", "b")
    (first,) = await both.receive()
    for said in HOSTILE:
        both.services.packets.send(said)
    await both.say("RESULT", "last")
    await arrived()
    assert both.replies[-1] == {"type": "RESULT", "lease_id": "last"}
    assert first.message.message_id == "a"
    assert both.held() == ["a"]
    assert not both.ends
    assert names(await both.receive()) == ["b"]


@linked
async def test_room_for_more_than_anybody_has_is_cut(both: Both) -> None:
    both.services.packets.send((Word.CAPACITY, "worker", ["t"], 2**62))
    await arrived()
    assert both.server._receivers["worker"].upto < 10**6


@pytest.mark.parametrize(
    "sent",
    [
        (MOST + 1).to_bytes(4),
        (5).to_bytes(4) + b"[nope",
        (2).to_bytes(4) + b"{}",
        (40_000).to_bytes(4) + b"[" * 40_000,
        b"\xff" * 100,
    ],
)
def test_a_process_that_sends_no_packets_is_given_up(
    sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    @linked
    async def test(both: Both) -> None:
        await both.publish("a")
        await both.receive()
        transport_of(both.services.packets).write(sent)
        await arrived()
        assert both.ends == ["server", "services"], "another process can be started"
        assert await both.left() == [("a", 2)]

    test()
    assert "the process at the other side is given up" in caplog.text


@linked
async def test_while_the_server_takes_no_replies_none_are_read(both: Both) -> None:
    both.capacity.clear()
    await both.say("ACK", "a")
    await arrived()
    large = Message("", {"x": "x" * (MOST // 2)})
    sending = asyncio.create_task(both.services.publish("replies", [large] * 20))
    await arrived()
    assert len(both.replies) == 1
    assert not sending.done(), "the system does not have it yet"
    both.capacity.set()
    await sending
    await arrived()
    assert len(both.replies) == 21


@linked
async def test_what_a_process_said_is_read_when_it_has_died_though_there_was_no_room(
    both: Both,
) -> None:
    """Its ACKs say what was begun: that does not come again."""
    await both.publish("a", "b", "c")
    await both.receive(3)
    both.capacity.clear()
    await both.say("ACK", "a")
    await arrived()
    await both.say("ACK", "b")
    transport_of(both.services.packets).abort()
    await arrived()
    assert both.ends == ["services"], "nobody reads, so nobody sees that it is gone"
    both.server.read_to_the_end()
    await arrived()
    assert [each["lease_id"] for each in both.replies] == ["a", "b"]
    assert await both.left() == [("c", 2)]


@linked
async def test_whoever_speaks_when_the_server_has_gone_is_told(both: Both) -> None:
    both.server.packets.close()
    await arrived()
    assert both.ends == ["server", "services"]
    with pytest.raises(BusUnavailableError):
        await both.say("ACK", "late")


@linked
async def test_orders_and_reports_go_beside(both: Both) -> None:
    both.server.order("drain")
    both.services.report("ready", 7)
    await arrived()
    assert sorted(both.heard, key=str) == [("drain", None), ("ready", 7)]


@linked
async def test_a_way_for_replies_alone_moves_no_directive(both: Both) -> None:
    both.server._bus = None
    await both.publish("a")
    await both.receive(1, NOTHING)
    await both.say("ACK", "a")
    await arrived()
    assert len(both.replies) == 1
    assert await both.left() == [("a", 1)]
