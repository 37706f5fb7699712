"""What `lucius bus provision` creates on Service Bus, and that repeating it changes nothing."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from lucius.adapters.buses.service_bus.administration import (
    RuleTooLongError,
    excluding,
    step_types_of,
    taking,
)
from lucius.adapters.buses.service_bus.connecting import Plan, open_administrator
from lucius.app.adapters import open_bus, open_config, open_provisioner
from lucius.app.provisioning import provision_bus, subscriptions
from lucius.app.settings import Settings, load_settings
from lucius.core.plan import Mode
from lucius.core.routing import TOPOLOGIES, directive_topic
from lucius.dev.standins.service_bus import StandIn
from lucius.ports.bus import NOTICES, Message, Provisioner, Subscription

SERVICE = Subscription("t", "ocr", {"step_type": ("OCR",), "mode": ("BURST",)})
CATCH_ALL = Subscription("t", "unclaimed", catch_all=True)


def _settings(stand_in: StandIn, **others: str) -> Settings:
    given = {"BUS_BACKEND": "servicebus", "SERVICEBUS_CONNECTION": stand_in.connection_string}
    return load_settings({f"LUCIUS_{k}": v for k, v in {**given, **others}.items()})


@asynccontextmanager
async def provisioner(stand_in: StandIn, **others: str) -> AsyncIterator[Provisioner]:
    made = open_provisioner(_settings(stand_in, **others))
    try:
        yield made
    finally:
        await made.close()


def _rules(stand_in: StandIn, name: str) -> list[str | None]:
    found = stand_in.broker.subscription("t", name)
    assert found is not None
    return [rule.sql for rule in found.rules.values()]


async def test_a_second_time_changes_nothing() -> None:
    async with StandIn() as stand_in:
        async with provisioner(stand_in) as first:
            changes = await first.provision([CATCH_ALL, SERVICE])
            assert changes[0] == "created topic t"
        async with provisioner(stand_in) as second:
            assert await second.provision([CATCH_ALL, SERVICE]) == []
        assert _rules(stand_in, "ocr") == ["mode IN ('BURST') AND step_type IN ('OCR')"]
        assert _rules(stand_in, "unclaimed") == ["step_type IS NULL OR step_type NOT IN ('OCR')"]


async def test_a_later_service_is_excluded_from_the_catch_all() -> None:
    async with StandIn() as stand_in, provisioner(stand_in) as made:
        await made.provision([SERVICE, CATCH_ALL])
        changes = await made.provision([Subscription("t", "sis", {"step_type": ("SIS",)})])
        wanted = "step_type IS NULL OR step_type NOT IN ('OCR', 'SIS')"
        assert _rules(stand_in, "unclaimed") == [wanted]
        assert f"changed rule of unclaimed on topic t: {wanted}" in changes


async def test_a_rule_that_is_missing_is_made_again() -> None:
    async with StandIn() as stand_in, provisioner(stand_in) as made:
        await made.provision([SERVICE, CATCH_ALL])
        ocr = stand_in.broker.subscription("t", "ocr")
        assert ocr is not None
        for name in list(ocr.rules):
            ocr.remove(name)
        changes = await made.provision([SERVICE, CATCH_ALL])
        rule = "mode IN ('BURST') AND step_type IN ('OCR')"
        assert changes == [f"created rule of ocr on topic t: {rule}"]
        assert _rules(stand_in, "ocr") == [rule]


async def test_the_plan_reaches_the_broker_and_later_changes_too() -> None:
    async with StandIn() as stand_in:
        async with provisioner(stand_in) as made:
            await made.provision([SERVICE])
        topic, ocr = stand_in.broker.topic("t"), stand_in.broker.subscription("t", "ocr")
        assert topic is not None
        assert ocr is not None
        assert (topic.options.duplicate_window, topic.options.ttl) == (
            timedelta(seconds=120),
            timedelta(days=14),
        )
        assert (ocr.queue.options.lock, ocr.queue.options.max_deliveries) == (
            timedelta(seconds=60),
            50,
        )
        assert ocr.queue.options.dead_letter_expired
        others = Plan(
            lock=timedelta(seconds=30),
            max_deliveries=7,
            expiry=timedelta(days=3),
            duplicate_window=timedelta(seconds=60),
        )
        again = open_administrator(stand_in.connection_string, others)
        changes = await again.provision([SERVICE])
        await again.close()
        assert (ocr.queue.options.lock, ocr.queue.options.max_deliveries) == (
            timedelta(seconds=30),
            7,
        )
        assert topic.options.ttl == timedelta(days=3)
        assert topic.options.duplicate_window == timedelta(seconds=60)
        assert [change.partition(":")[0] for change in changes] == [
            "changed topic t",
            "changed subscription ocr of topic t",
        ]


@pytest.mark.parametrize("topology", TOPOLOGIES)
async def test_every_topology_has_its_subscriptions(topology: str) -> None:
    with_files = await open_config(load_settings({}))
    made = subscriptions(with_files.catalog(), topology)
    names = {each.name for each in made if each.topic == "global-bus-p3"}
    services = {"ocr", "embedding", "sis"}
    if topology == "filtered":
        services = {f"{name}-{mode}" for name in services for mode in ("default", "burst")}
    assert names == services | {"lucius-unclaimed"}
    assert {each.name for each in made if "replies" in each.topic} == {"lucius-reconciler"}


GRIDS = {"shared": {"bus"}, "isolated": {"default", "burst"}, "filtered": {"bus"}}
"""The topics of each topology are `global-WORD-p0` to `p15`."""


@pytest.mark.parametrize("topology", TOPOLOGIES)
async def test_a_topology_is_provisioned_whole_and_delivers_and_a_second_time_changes_nothing(
    topology: str, tmp_path: Path
) -> None:
    async with StandIn() as stand_in:
        settings = _settings(stand_in, LANE_TOPOLOGY=topology, DATA_DIR=str(tmp_path))
        changes = await provision_bus(settings)
        assert await provision_bus(settings) == []
        words = {*GRIDS[topology], "bus-replies"}
        made = {f"global-{word}-p{lane}" for word in words for lane in range(16)}
        assert set(stand_in.broker.topics) == {*made, NOTICES.topic}
        assert {f"created topic {each}" for each in stand_in.broker.topics} <= set(changes)
        for topic in stand_in.broker.topics.values():
            for each in topic.subscriptions.values():
                assert [*each.rules] == [
                    "lucius-catch-all" if "unclaimed" in each.name else "lucius"
                ]
        await check_deliveries(stand_in, settings)


async def check_deliveries(stand_in: StandIn, settings: Settings) -> None:
    """A directive reaches its service alone, and one of a step type that nobody has the catch-all."""
    bus = open_bus(settings)
    for mode in Mode:
        topic = directive_topic(3, mode, settings.lane_topology)
        known, unknown = (f"{mode} {step_type}" for step_type in ("OCR", "NOBODYS"))
        sent = [
            Message(each, {}, {"step_type": each.split()[1], "mode": mode.value})
            for each in (known, unknown)
        ]
        await bus.publish(topic, sent)
        found = stand_in.broker.topics[topic].subscriptions.values()
        waiting = {each.name: {item.message.message_id for item in each.queue} for each in found}
        service = f"ocr-{mode.lower()}" if settings.lane_topology == "filtered" else "ocr"
        got = {name for name, ids in waiting.items() if known in ids}
        unclaimed = {name for name, ids in waiting.items() if unknown in ids}
        assert (got, unclaimed) == ({service}, {"lucius-unclaimed"})
    await bus.close()


def test_a_rule_says_its_step_types_again() -> None:
    rule = taking({"lane": (1, 2), "step_type": ("OCR", "it's")})
    assert rule == "lane IN (1, 2) AND step_type IN ('OCR', 'it''s')"
    assert step_types_of(rule) == ["OCR", "it's"]
    assert step_types_of(excluding(["OCR"])) == []


def test_a_rule_that_service_bus_would_not_take_is_refused() -> None:
    with pytest.raises(RuleTooLongError, match="1024"):
        excluding(f"STEP_TYPE_NUMBER_{n}" for n in range(60))
