"""Callers that Service Bus refuses: a wrong key, a right that is missing, and what is said about it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from lucius.adapters.buses.service_bus import ServiceBus
from lucius.adapters.buses.service_bus.administration import Administrator, Plan
from lucius.adapters.buses.service_bus.connecting import open_administrator, open_service_bus
from lucius.adapters.buses.service_bus.wire import MissingEntityError
from lucius.core.errors import BusUnavailableError
from lucius.dev.standins.service_bus import Broker, StandIn
from lucius.dev.standins.service_bus.broker import LISTEN, SEND, Access, Policy
from lucius.ports.bus import Message, Subscription

KEY = "c2VjcmV0"
WANTED = [Subscription("t", "w")]
WAIT = timedelta(seconds=30)
POLICIES = {
    "root": Policy(KEY),
    "run": Policy(KEY, frozenset({SEND, LISTEN})),
    "send": Policy(KEY, frozenset({SEND})),
    "listen": Policy(KEY, frozenset({LISTEN})),
}


@asynccontextmanager
async def namespace() -> AsyncIterator[StandIn]:
    async with StandIn(Broker(Access(POLICIES))) as stand_in:
        stand_in.broker.create_topic("t")
        stand_in.broker.subscribe("t", "w")
        yield stand_in


@asynccontextmanager
async def caller(
    stand_in: StandIn, policy: str, key: str = KEY
) -> AsyncIterator[tuple[ServiceBus, Administrator]]:
    connection = stand_in.connection_as(policy, key)
    bus = open_service_bus(connection, Plan(), creates=False)
    administrator = open_administrator(connection, Plan())
    try:
        yield bus, administrator
    finally:
        await bus.close()
        await administrator.close()


async def test_a_running_process_needs_no_right_to_manage() -> None:
    async with namespace() as stand_in, caller(stand_in, "run") as (bus, administrator):
        await bus.ensure(WANTED)
        await bus.publish("t", [Message("m1", {})])
        (delivery,) = await bus.receive("w", ["t"], 1, WAIT)
        await bus.complete(delivery)
        with pytest.raises(BusUnavailableError, match=r"SERVICEBUS_CONNECTION.*right Manage"):
            await administrator.provision(WANTED)


@pytest.mark.parametrize(("policy", "key"), [("root", "b3RoZXI="), ("nobody", KEY)])
async def test_a_key_that_is_not_known_is_named(policy: str, key: str) -> None:
    async with namespace() as stand_in, caller(stand_in, policy, key) as (bus, _):
        for asked in (bus.ensure(WANTED), bus.publish("t", [Message("m1", {})])):
            with pytest.raises(BusUnavailableError, match="does not accept the key") as refused:
                await asked
            assert "LUCIUS_SERVICEBUS_CONNECTION" in str(refused.value)
            assert key not in str(refused.value)


async def test_a_right_that_is_missing_is_named() -> None:
    async with namespace() as stand_in:
        async with caller(stand_in, "send") as (bus, _):
            with pytest.raises(BusUnavailableError, match=r"w of topic t.*'Listen' claim"):
                await bus.ensure(WANTED)
            with pytest.raises(BusUnavailableError, match="'Listen' claim"):
                await bus.receive("w", ["t"], 1, WAIT)
            await bus.publish("t", [Message("m1", {})])
        async with caller(stand_in, "listen") as (bus, _):
            assert await bus.receive("w", ["t"], 1, WAIT)
            with pytest.raises(BusUnavailableError, match=r"topic t:.*'Send' claim"):
                await bus.publish("t", [Message("m2", {})])


async def test_a_topic_that_is_deleted_under_a_process_is_named() -> None:
    async with namespace() as stand_in, caller(stand_in, "root") as (bus, _):
        await bus.publish("t", [Message("m1", {})])
        del stand_in.broker.topics["t"]
        await stand_in.stop()
        await stand_in.start()
        with pytest.raises(MissingEntityError, match=r"topic t does not exist.*bus provision"):
            await bus.publish("t", [Message("m2", {})])
        with pytest.raises(MissingEntityError, match=r"w of topic t does not exist"):
            await bus.receive("w", ["t"], 1, WAIT)
