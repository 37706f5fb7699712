"""What is particular to the bus on NATS: copies, duplicates, size, foreign messages, a lost disk."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest
from nats.aio.client import Client

from lucius.adapters.buses.nats import NatsBus
from lucius.core.errors import BusError, BusUnavailableError, PublishRefusedError
from lucius.ports.bus import Message, Subscription
from tests.bus_looks import backlog, dead_letters
from tests.nats_server import NatsServer, shared_server

SOON = timedelta(seconds=60)
NOW = timedelta(0)


@pytest.fixture
def server() -> NatsServer:
    server = shared_server()
    server.start()
    return server


@asynccontextmanager
async def connected(server: NatsServer, system: str | None = None) -> AsyncIterator[NatsBus]:
    bus = NatsBus([server.url], system=system or f"t-{uuid4().hex[:8]}")
    try:
        yield bus
    finally:
        await bus.close()


def said(*ids: str) -> list[Message]:
    return [Message(one, {"said": one}) for one in ids]


async def test_what_is_published_again_is_delivered_once(server: NatsServer) -> None:
    """A publish whose outcome was unknown is repeated with the same id."""
    async with connected(server) as bus:
        await bus.ensure([Subscription("t", "one"), Subscription("t", "two")])
        await bus.publish("t", said("m1"))
        await bus.publish("t", said("m1", "m2"))
        for name in ("one", "two"):
            got = await bus.receive(name, ["t"], 10, SOON)
            assert [d.message.message_id for d in got] == ["m1", "m2"]


async def test_what_the_stream_refuses_for_its_size_is_no_outage(server: NatsServer) -> None:
    """An operator made the stream narrower after this process had looked at it."""
    async with connected(server, system := f"t-{uuid4().hex[:8]}") as bus:
        await bus.ensure([Subscription("t", "w")])
        session = (await bus._connection.get()).session
        config = (await session.js.stream_info(f"{system}-bus")).config
        await session.js.update_stream(config, max_msg_size=2000)
        with pytest.raises(PublishRefusedError, match="10054"):
            await bus.publish("t", [Message("large", {"text": "x" * 4000})])
        await bus.publish("t", said("after"))
        assert await backlog(bus, "w", ["t"]) == 1


async def test_nothing_is_locked_beyond_the_limit(server: NatsServer) -> None:
    """A receiver that waits asks for one, however many would fit: the rest stays free for others."""
    async with connected(server, "limits") as bus, connected(server, "limits") as other:
        await bus.ensure([Subscription("t", "w")])
        waiting = asyncio.create_task(bus.receive("w", ["t"], 2, SOON))
        session = (await other._connection.get()).session
        while not (await session.js.consumer_info("limits-bus", "w")).num_waiting:
            pass
        await other.publish("t", said("1", "2", "3", "4", "5"))
        mine = await waiting
        theirs = await other.receive("w", ["t"], 10, SOON)
        assert (len(mine) <= 2, len(mine) + len(theirs)) == (True, 5)


async def test_another_process_learns_of_a_subscription(server: NatsServer) -> None:
    async with connected(server, "learns") as bus, connected(server, "learns") as other:
        await other.ensure([Subscription("t", "rest", catch_all=True)])
        await bus.ensure([Subscription("t", "new", {"kind": ("a",)})])
        await backlog(other, "new", ["t"])  # its connection has heard of the row by then
        await other.publish("t", [Message("m1", {}, {"kind": "a"})])
        assert len(await bus.receive("new", ["t"], 1, SOON)) == 1


async def test_a_message_that_is_too_large_is_refused_and_named(server: NatsServer) -> None:
    async with connected(server) as bus:
        await bus.ensure([Subscription("t", "w")])
        large = Message("large", {"text": "x" * 1_048_576})
        with pytest.raises(PublishRefusedError, match="max_payload"):
            await bus.publish("t", [*said("small"), large])
        assert await backlog(bus, "w", ["t"]) == 0, "none of them was taken"
        await bus.publish("t", said("next"))
        assert len(await bus.receive("w", ["t"], 1, SOON)) == 1, "the connection is still good"


async def test_the_largest_message_is_taken(server: NatsServer) -> None:
    async with connected(server) as bus:
        await bus.ensure([Subscription("t", "w")])
        for size in range(1_048_300, 1_048_577, 23):
            message = Message("m", {"x": "x" * size})
            try:
                await bus.publish("t", [message])
            except PublishRefusedError:
                return
        raise AssertionError("nothing was refused")


@pytest.mark.parametrize("raw", [b"not JSON", b"[1]", b'{"message_id": 1}', b"\xff"])
async def test_what_is_not_ours_becomes_a_dead_letter(server: NatsServer, raw: bytes) -> None:
    async with connected(server, f"f-{uuid4().hex[:8]}") as bus:
        await bus.ensure([Subscription("t", "w")])
        stranger = Client()
        await stranger.connect(server.url)
        await stranger.request(bus._names.subject("t", "w"), raw, timeout=60)
        await stranger.close()
        await bus.publish("t", said("ours"))
        (delivery,) = await bus.receive("w", ["t"], 1, SOON)
        assert delivery.message.message_id == "ours"
        (letter,) = await dead_letters(bus, "w", ["t"])
        assert letter.reason == "UNREADABLE"


async def test_what_cannot_be_written_again_becomes_a_dead_letter_without_its_body(
    server: NatsServer,
) -> None:
    """What is nested about as deep as Python goes may be read, and not be written a few calls later."""
    async with connected(server, f"f-{uuid4().hex[:8]}") as bus:
        await bus.ensure([Subscription("t", "w")])
        await bus.publish("t", said("m1"))
        (delivery,) = await bus.receive("w", ["t"], 1, SOON)
        deep: list[object] = []
        for _ in range(2000):
            deep = [deep]
        message = replace(delivery.message, body={"deep": deep})
        await bus.dead_letter(replace(delivery, message=message), "WRONG", "as it says")
        (letter,) = await dead_letters(bus, "w", ["t"])
        assert (letter.message.message_id, letter.reason) == ("m1", "WRONG")
        assert letter.message.body == {}


@pytest.mark.parametrize("by_topic", [False, True])
async def test_a_broker_without_its_storage_gets_the_subscriptions_back(by_topic: bool) -> None:
    server = NatsServer()
    server.start()
    try:
        async with connected(server) as bus:
            await bus.ensure([Subscription("t", "w", by_topic=by_topic)])
            server.lose_everything()
            await until_taken(bus, "t", said("m1"))
            assert len(await bus.receive("w", ["t"], 1, SOON)) == 1
    finally:
        server.remove()


async def until_taken(bus: NatsBus, topic: str, messages: list[Message]) -> None:
    async with asyncio.timeout(120):
        while True:
            try:
                return await bus.publish(topic, messages)
            except BusUnavailableError:
                continue


async def test_strange_names_are_kept_apart(server: NatsServer) -> None:
    names = ["a.b", "a b", "a*", "a>", "a/b", "ä", "a=2Eb", "a"]
    async with connected(server) as bus:
        await bus.ensure([Subscription(name, name) for name in names])
        for name in names:
            await bus.publish(name, said(f"for {name}"))
        for name in names:
            (delivery,) = await bus.receive(name, [name], 10, SOON)
            assert (delivery.topic, delivery.message.message_id) == (name, f"for {name}")


async def test_a_subscription_as_a_whole_is_not_received_in_part(server: NatsServer) -> None:
    async with connected(server) as bus:
        await bus.ensure([Subscription("t1", "w"), Subscription("t2", "w")])
        with pytest.raises(BusError, match="by topic"):
            await bus.receive("w", ["t1"], 1, NOW)
        with pytest.raises(BusError, match="by topic in one place"):
            await bus.ensure([Subscription("t1", "w", by_topic=True)])


async def test_a_server_that_is_not_there_is_named_without_its_password() -> None:
    bus = NatsBus(["nats://user:geheim@127.0.0.1:9"], patience=NOW)
    with pytest.raises(BusUnavailableError, match="LUCIUS_NATS_URL") as raised:
        await bus.publish("t", said("m1"))
    assert ("127.0.0.1:9" in str(raised.value), "geheim" in str(raised.value)) == (True, False)
    await bus.close()


async def test_a_password_in_the_address_opens_the_connection() -> None:
    server = NatsServer("--user", "lucius", "--pass", "geheim")
    server.start()
    try:
        address = server.url.replace("//", "//lucius:geheim@")
        for url, right in ((address, True), (address.replace("geheim", "falsch"), False)):
            bus = NatsBus([url], patience=NOW)
            if right:
                await bus.ensure([Subscription("t", "w")])
            else:
                with pytest.raises(BusUnavailableError, match="uthorization"):
                    await bus.ensure([Subscription("t", "w")])
            await bus.close()
    finally:
        server.remove()
