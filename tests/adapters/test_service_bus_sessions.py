"""Sessions on Service Bus: one receiver's at a time, in turn, renewed, and lost with their lock."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from lucius.bootstrap.adapters.buses import open_bus, open_provisioner
from lucius.buses.service_bus import ServiceBus, sessions
from lucius.buses.service_bus.administration import Plan
from lucius.buses.service_bus.connecting import open_administrator, open_service_bus
from lucius.buses.service_bus.faults import SessionsDifferError
from lucius.buses.service_bus.sessions import SessionIntake
from lucius.buses.service_bus.wire import NO_KEY, outgoing
from lucius.core.errors import LockLostError
from lucius.ports.bus import Delivery, Message, Subscription
from lucius.settings import load_settings
from lucius.standins.service_bus import StandIn
from lucius.standins.service_bus.queue import Queue

WAIT = timedelta(seconds=30)
SERVICE = Subscription("t", "ocr", {"step_type": ("OCR",)})
REPLIES = Subscription("r", "lucius-reconciler", by_topic=True)


@asynccontextmanager
async def opened(stand_in: StandIn) -> AsyncIterator[ServiceBus]:
    bus = open_service_bus(stand_in.connection_string, Plan(sessions=True), creates=True)
    try:
        await bus.ensure([Subscription("t", "w")])
        yield bus
    finally:
        await bus.close()


async def publish(bus: ServiceBus, key: str, *ids: str) -> None:
    await bus.publish("t", [Message(one, {}, {"message_key": key}) for one in ids])


async def one(bus: ServiceBus) -> Delivery:
    (delivery,) = await bus.receive("w", ["t"], 1, WAIT)
    return delivery


def queue_of(stand_in: StandIn) -> Queue:
    queue = stand_in.broker.queue("t/subscriptions/w")
    assert queue is not None
    return queue


async def test_a_long_session_does_not_starve_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "TURN", 3)
    async with StandIn() as stand_in, opened(stand_in) as bus:
        await publish(bus, "large", *(f"large-{n}" for n in range(20)))
        await publish(bus, "small", "small")
        got: list[str] = []
        while "small" not in got:
            delivery = await one(bus)
            got.append(delivery.message.message_id)
            await bus.complete(delivery)
        assert got == ["large-0", "large-1", "large-2", "small"]


async def test_a_session_is_one_processs_until_its_last_message_is_settled() -> None:
    async with StandIn() as stand_in, opened(stand_in) as first, opened(stand_in) as second:
        await publish(first, "a", "a1", "a2")
        held = await one(first)
        await publish(first, "b", "b1")
        other = await one(second)
        assert (held.message.message_id, other.message.message_id) == ("a1", "b1")
        await second.complete(other)
        await first.complete(held)
        after = await one(second)
        assert (after.message.message_id, after.count) == ("a2", 1)


async def test_a_session_that_is_used_on_is_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "RENEWED", 0.0)
    async with StandIn() as stand_in, opened(stand_in) as bus:
        renewed: list[str] = []
        held = queue_of(stand_in).sessions
        renew = held.renew

        def counted(name: str) -> float | None:
            renewed.append(name)
            return renew(name)

        monkeypatch.setattr(held, "renew", counted)
        await publish(bus, "a", "a1", "a2")
        await bus.complete(await one(bus))
        await bus.complete(await one(bus))
        assert set(renewed) == {"a"}


async def test_what_a_lost_session_held_comes_again_with_a_higher_count() -> None:
    async with StandIn() as stand_in, opened(stand_in) as bus:
        await publish(bus, "a", "a1")
        late = await one(bus)
        queue_of(stand_in).sessions.expire("a")
        with pytest.raises(LockLostError):
            await bus.complete(late)
        again = await one(bus)
        assert (again.message.message_id, again.count) == ("a1", 2)


async def test_a_session_with_a_message_that_is_never_settled_is_not_kept() -> None:
    """Else new messages would renew the lock of the old one for ever."""
    async with StandIn() as stand_in, opened(stand_in) as bus:
        await publish(bus, "a", "a1", "a2")
        await one(bus)
        intake = bus._subscriber("w").intake("t")
        assert isinstance(intake, SessionIntake)
        session = intake._current
        assert session is not None
        for token in session.unsettled:
            session.unsettled[token] -= 3600
        with pytest.raises(LockLostError, match="not settled in time"):
            await session.poll()
        queue_of(stand_in).sessions.expire("a")
        assert [(await one(bus)).message.message_id for _ in range(2)] == ["a1", "a2"]


@pytest.mark.parametrize("created", [True, False])
async def test_a_subscription_that_was_created_otherwise_is_named(created: bool) -> None:
    async with StandIn() as stand_in:
        connection, wanted = stand_in.connection_string, [Subscription("t", "w")]
        first = open_administrator(connection, Plan(sessions=created))
        await first.provision(wanted)
        await first.close()
        again = open_administrator(connection, Plan(sessions=not created))
        bus = open_service_bus(connection, Plan(sessions=not created), creates=False)
        for asked in (again.provision(wanted), bus.ensure(wanted)):
            with pytest.raises(SessionsDifferError, match=r"w of topic t.*SERVICEBUS_SESSIONS"):
                await asked
        await again.close()
        await bus.close()


async def test_the_setting_gives_sessions_to_services_alone() -> None:
    """Replies and unclaimed directives have one receiver in any case: the owner of the lane."""
    async with StandIn() as stand_in:
        settings = load_settings(
            {
                "LUCIUS_BUS_BACKEND": "servicebus",
                "LUCIUS_SERVICEBUS_CONNECTION": stand_in.connection_string,
                "LUCIUS_SERVICEBUS_SESSIONS": "true",
            }
        )
        made, bus = open_provisioner(settings), open_bus(settings)
        await made.provision([SERVICE, REPLIES])
        await bus.ensure([SERVICE, REPLIES])
        await made.close()
        await bus.close()
        found = [
            subscription.queue.options.sessions
            for each in (SERVICE, REPLIES)
            if (subscription := stand_in.broker.subscription(each.topic, each.name)) is not None
        ]
        assert found == [True, False]


def test_every_message_has_a_session_that_service_bus_takes() -> None:
    long = outgoing(Message("m", {}, {"message_key": "k" * 300}), sessions=True)
    assert long.session_id == "k" * 128
    assert outgoing(Message("m", {}), sessions=True).session_id == NO_KEY
    assert outgoing(Message("m", {}, {"message_key": "k"})).session_id is None
