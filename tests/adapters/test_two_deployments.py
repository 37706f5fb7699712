"""Two deployments on one broker: the second is refused at its start, and a name of its own lets it in."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from lucius.adapters.buses.service_bus.wire import MissingEntityError
from lucius.app.adapters import open_bus, open_provisioner
from lucius.app.provisioning import mark_of
from lucius.app.settings import Settings, load_settings
from lucius.core.errors import OtherDeploymentError
from lucius.dev.standins.service_bus import StandIn
from lucius.ports.bus import Bus, Message
from tests.api.live import live
from tests.nats_server import shared_server


def settings_of(**others: str) -> Settings:
    return load_settings({f"LUCIUS_{name}": text for name, text in others.items()})


def on_tables(stand_in: StandIn, account: str, **others: str) -> Settings:
    return settings_of(
        STORAGE_BACKEND="ledger",
        TABLE_CONNECTION=f"AccountName={account};AccountKey=eA==",
        BUS_BACKEND="servicebus",
        SERVICEBUS_CONNECTION=stand_in.connection_string,
        CALLBACK_KEYS=f"k1:{'x' * 32}",
        WEBHOOK_SECRET="whsec_" + "x" * 32,
        **others,
    )


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Bus]:
    bus = open_bus(settings)
    try:
        yield bus
    finally:
        await bus.close()


async def provisioned(settings: Settings) -> list[str]:
    made = open_provisioner(settings)
    try:
        return list(await made.provision([mark_of(settings)]))
    finally:
        await made.close()


async def test_a_namespace_is_provisioned_for_one_deployment() -> None:
    async with StandIn() as stand_in:
        first, second = (on_tables(stand_in, account) for account in ("one", "two"))
        assert await provisioned(first)
        assert not await provisioned(first), "the same deployment comes again"
        with pytest.raises(OtherDeploymentError, match="LUCIUS_SERVICEBUS_PREFIX") as refused:
            await provisioned(second)
        assert mark_of(first).name in str(refused.value)
        own = on_tables(stand_in, "two", SERVICEBUS_PREFIX="test-")
        assert "created topic test-global-bus-replies-p0" in await provisioned(own)


async def test_a_process_does_not_start_on_the_topics_of_another_deployment() -> None:
    """It needs no right to manage for that: it listens for the mark of its own deployment."""
    async with StandIn() as stand_in:
        first, second = (on_tables(stand_in, account) for account in ("one", "two"))
        await provisioned(first)
        async with opened(first) as bus:
            await bus.ensure([mark_of(first)])
        async with opened(second) as bus:
            with pytest.raises(MissingEntityError, match="belong to another deployment"):
                await bus.ensure([mark_of(second)])


async def test_topics_with_a_prefix_carry_messages_under_their_plain_names() -> None:
    async with StandIn() as stand_in:
        plain, other = (
            on_tables(stand_in, account, SERVICEBUS_PREFIX=prefix, BUS_PROVISION="auto")
            for account, prefix in (("one", ""), ("two", "test-"))
        )
        mark = mark_of(other)
        async with opened(plain) as bus, opened(other) as beside:
            await bus.ensure([mark_of(plain)])
            await beside.ensure([mark])
            ours = Message("m1", {}, {"deployment": mark.name.removeprefix("deployment-")})
            await beside.publish(mark.topic, [ours])
            (found,) = await beside.receive(mark.name, [mark.topic], 1, plain.drain)
            assert (found.topic, found.message.message_id) == (mark.topic, "m1")
            assert not await beside.receive_notices("worker-1", timedelta(milliseconds=10))
            await beside.send_notice("worker-1", Message("n1", {}))
            (notice,) = await beside.receive_notices("worker-1", plain.drain)
            assert notice.message_id == "n1"


async def test_a_server_does_not_start_on_the_stream_of_another_one(tmp_path: Path) -> None:
    server = shared_server()
    server.start()
    given: dict[str, Any] = {
        "bus_backend": "nats",
        "nats_url": server.url,
        "system": f"t-{uuid4().hex[:8]}",
    }
    async with live(tmp_path / "one", **given):
        pass
    with pytest.raises(OtherDeploymentError, match="LUCIUS_SYSTEM"):
        async with live(tmp_path / "two", **given):
            pass
    async with live(tmp_path / "one", **given):
        pass
    async with live(tmp_path / "two", **{**given, "system": f"{given['system']}-2"}):
        pass


def test_a_deployment_is_known_by_its_ledger(tmp_path: Path) -> None:
    embedded = [settings_of(DATA_DIR=str(tmp_path / name)) for name in ("a", "b")]
    assert mark_of(embedded[0]) == mark_of(embedded[0])
    assert mark_of(embedded[0]) != mark_of(embedded[1])
