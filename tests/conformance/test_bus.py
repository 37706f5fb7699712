"""What every bus must do: topics, filters, locks, redelivery, dead letters."""

import asyncio
from collections import Counter
from datetime import timedelta

import pytest

from lucius.core.errors import BusUnavailableError, LockLostError, PublishRefusedError
from lucius.ports.bus import ABSENT, Message
from tests.bus_looks import backlog, dead_letters
from tests.conformance.bus_registry import (
    ADAPTERS,
    ENCODES,
    EXACT_WAKE,
    OUTAGE,
    REFUSAL,
    SETTLED,
    SIZES,
    TOPICS,
    Harness,
)
from tests.conformance.on_every import on_every

NOT_JSON = Message("not-json", {"text": {1, 2}})

on_every_bus = on_every(ADAPTERS)
where_outages_can_be_played = on_every(ADAPTERS, OUTAGE)
where_topics_take_turns = on_every(ADAPTERS, TOPICS)


@on_every_bus
async def test_a_message_arrives_whole(h: Harness) -> None:
    await h.subscribe()
    body = {"text": "Grüße →", "number": 7, "nested": {"list": [1, None, True]}}
    await h.bus.publish(h.topic(), [Message("m1", body, {"lane": 3, "type": "ACK"})])
    delivery = await h.one()
    assert delivery.message.message_id == "m1"
    assert dict(delivery.message.body) == body
    assert dict(delivery.message.properties) == {"lane": 3, "type": "ACK"}
    assert (delivery.topic, delivery.subscription, delivery.count) == (h.topic(), "worker", 1)


@on_every_bus
async def test_a_bus_that_is_elsewhere_says_where(h: Harness) -> None:
    await h.subscribe()
    await h.publish("m1")
    assert h.bus.broker.system.islower()
    assert (h.bus.broker.host is None) == h.bus.volatile


@on_every_bus
async def test_messages_of_a_topic_keep_their_order(h: Harness) -> None:
    await h.subscribe()
    await h.publish("1", "2", "3")
    got: list[str] = []
    while len(got) < 3:
        for delivery in await h.receive(limit=10):
            got.append(delivery.message.message_id)
            await h.bus.complete(delivery)
    assert got == ["1", "2", "3"]


@on_every_bus
async def test_ensuring_again_keeps_what_waits(h: Harness) -> None:
    await h.subscribe()
    await h.publish("m1")
    await h.subscribe()
    assert (await h.one()).message.message_id == "m1"


@on_every_bus
async def test_a_filter_may_ask_for_what_is_not_there(h: Harness) -> None:
    await h.subscribe("common", step_type=("OCR",), pool=(ABSENT,))
    await h.subscribe("gold", step_type=("OCR",), pool=("gold",))
    await h.subscribe("either", step_type=("OCR",), pool=(ABSENT, "gold"))
    for pool in ("gold", "silver"):
        await h.publish(pool, step_type="OCR", pool=pool)
    await h.publish("plain", step_type="OCR")
    assert [(await h.one("common")).message.message_id, await h.nothing("common")] == [
        "plain",
        True,
    ]
    assert [(await h.one("gold")).message.message_id, await h.nothing("gold")] == ["gold", True]
    found = {(await h.one("either")).message.message_id for _ in range(2)}
    assert found == {"gold", "plain"}
    assert await h.nothing("either")


@on_every_bus
async def test_a_filter_takes_only_what_matches(h: Harness) -> None:
    await h.subscribe("ocr", step_type=("OCR",), lane=(1, 2))
    await h.publish("other", step_type="SIS", lane=1)
    await h.publish("lane", step_type="OCR", lane=3)
    await h.publish("none")
    await h.publish("right", step_type="OCR", lane=2)
    assert (await h.one("ocr")).message.message_id == "right"
    assert await h.nothing("ocr")


@on_every_bus
async def test_every_matching_subscription_gets_its_own_copy(h: Harness) -> None:
    await h.subscribe("one")
    await h.subscribe("two")
    await h.publish("m1")
    await h.bus.complete(await h.one("one"))
    assert (await h.one("two")).message.message_id == "m1"


@on_every_bus
async def test_catch_all_takes_exactly_what_nobody_takes(h: Harness) -> None:
    await h.subscribe("ocr", step_type=("OCR",))
    await h.subscribe("unrouted", catch_all=True)
    await h.publish("taken", step_type="OCR")
    await h.publish("stray", step_type="TRANSLATE")
    assert (await h.one("unrouted")).message.message_id == "stray"
    assert await h.nothing("unrouted")


@on_every_bus
async def test_catch_all_leaves_what_a_later_subscription_takes(h: Harness) -> None:
    await h.subscribe("unrouted", catch_all=True)
    await h.publish("stray", step_type="TRANSLATE")
    await h.bus.complete(await h.one("unrouted"))
    await h.subscribe("translate", step_type=("TRANSLATE",))
    await h.publish("taken", step_type="TRANSLATE")
    assert (await h.one("translate")).message.message_id == "taken"
    assert await h.nothing("unrouted")


@on_every_bus
async def test_what_no_subscription_takes_is_dropped(h: Harness) -> None:
    await h.subscribe("ocr", step_type=("OCR",))
    await h.publish("stray", step_type="TRANSLATE")
    assert await h.nothing("ocr")
    assert await backlog(h.bus, "ocr", [h.topic()]) == 0


@on_every_bus
async def test_competing_consumers_share_and_never_double(h: Harness) -> None:
    await h.subscribe()
    ids = [str(n) for n in range(30)]
    await h.publish(*ids)
    got: Counter[str] = Counter()

    async def consume() -> None:
        while sum(got.values()) < len(ids):
            for delivery in await h.bus.receive("worker", [h.topic()], 2, timedelta(seconds=0.2)):
                got[delivery.message.message_id] += 1
                await h.bus.complete(delivery)

    await asyncio.gather(*(consume() for _ in range(3)))
    assert got == Counter(ids)


@on_every_bus
async def test_a_locked_message_is_nobody_elses(h: Harness) -> None:
    await h.subscribe()
    await h.publish("m1")
    await h.one()
    assert await h.nothing()
    assert await backlog(h.bus, "worker", [h.topic()]) == 1


@on_every_bus
async def test_a_completed_message_never_comes_again(h: Harness) -> None:
    await h.subscribe()
    await h.publish("m1")
    await h.bus.complete(await h.one())
    await h.advance(h.lock.total_seconds() * 1.5)
    assert await h.nothing()
    assert await backlog(h.bus, "worker", [h.topic()]) == 0


@on_every_bus
async def test_an_expired_lock_redelivers_with_a_higher_count(h: Harness) -> None:
    await h.subscribe()
    await h.publish("m1")
    first = await h.one()
    await h.advance(h.lock.total_seconds() * 1.5)
    second = await h.one()
    assert (first.count, second.count) == (1, 2)
    assert second.message.message_id == "m1"


@on_every_bus
async def test_a_waiting_receiver_gets_what_an_expired_lock_frees(h: Harness) -> None:
    await h.subscribe()
    await h.publish("m1")
    await h.one()
    wait = h.lock * 3
    (again,) = await h.bus.receive("worker", [h.topic()], 1, wait)
    assert again.count == 2


@on_every(ADAPTERS, SETTLED)
async def test_settling_after_the_lock_is_lost_is_refused(h: Harness) -> None:
    await h.subscribe()
    await h.publish("m1")
    late = await h.one()
    await h.advance(h.lock.total_seconds() * 1.5)
    again = await h.one()
    with pytest.raises(LockLostError):
        await h.bus.complete(late)
    await h.bus.complete(again)
    with pytest.raises(LockLostError):
        await h.bus.complete(again)


@on_every_bus
async def test_an_abandoned_message_comes_again_at_once(h: Harness) -> None:
    await h.subscribe()
    await h.publish("m1", "m2")
    await h.bus.abandon(await h.one())
    again = [d for _ in range(2) for d in await h.receive()]
    assert {(d.message.message_id, d.count) for d in again} == {("m1", 2), ("m2", 1)}


@on_every_bus
async def test_past_the_last_delivery_a_message_is_set_aside(h: Harness) -> None:
    await h.subscribe(max_deliveries=2)
    await h.publish("m1")
    for _ in range(2):
        await h.bus.abandon(await h.one())
    assert await h.nothing()
    assert [letter for letter, _ in await h.dead()] == ["m1"]


@on_every_bus
async def test_a_dead_letter_keeps_its_reason_and_stays_out(h: Harness) -> None:
    await h.subscribe()
    await h.publish("m1")
    await h.bus.dead_letter(await h.one(), "INVALID", "it has no jobId")
    assert await h.nothing()
    (letter,) = await dead_letters(h.bus, "worker", [h.topic()])
    assert (letter.message.message_id, letter.reason, letter.detail) == (
        "m1",
        "INVALID",
        "it has no jobId",
    )
    assert await h.dead() == [("m1", "INVALID")], "looking does not take"
    assert await backlog(h.bus, "worker", [h.topic()]) == 0


@where_topics_take_turns
async def test_a_full_topic_does_not_starve_another(h: Harness) -> None:
    await h.subscribe(topic="full")
    await h.subscribe(topic="other")
    await h.publish(*(f"full-{n}" for n in range(40)), topic="full")
    await h.publish("other", topic="other")
    seen: list[str] = []
    while "other" not in seen:
        for delivery in await h.receive("worker", "full", "other", limit=2):
            seen.append(delivery.message.message_id)
            await h.bus.complete(delivery)
        assert len(seen) <= 10, "ten of the full topic came before one of the other"


@where_topics_take_turns
async def test_a_receiver_sees_only_the_topics_it_names(h: Harness) -> None:
    await h.subscribe(topic="mine")
    await h.subscribe(topic="theirs")
    await h.publish("m1", topic="theirs")
    assert await h.nothing("worker", "mine")
    assert (await h.one("worker", "theirs")).message.message_id == "m1"


@on_every_bus
async def test_a_receive_never_exceeds_its_limit(h: Harness) -> None:
    await h.subscribe()
    await h.publish("1", "2", "3")
    assert len(await h.receive(limit=2)) <= 2


@on_every_bus
async def test_a_waiting_receiver_is_woken_by_a_publish(h: Harness) -> None:
    await h.subscribe()
    waiting = asyncio.create_task(h.receive())
    await asyncio.sleep(0)
    await h.publish("m1")
    (delivery,) = await waiting
    assert delivery.message.message_id == "m1"


@on_every(ADAPTERS, EXACT_WAKE)
async def test_waking_takes_no_time(h: Harness) -> None:
    await h.subscribe()
    loop = asyncio.get_running_loop()
    waiting = asyncio.create_task(h.receive())
    await h.advance(1.25)
    before = loop.time()
    await h.publish("m1")
    await waiting
    assert loop.time() == before


@on_every_bus
async def test_a_cancelled_receiver_takes_no_message_with_it(h: Harness) -> None:
    await h.subscribe()
    receivers = [asyncio.create_task(h.receive()) for _ in range(2)]
    await h.advance(0.05)
    await h.publish("m1")
    receivers[0].cancel()
    done, _ = await asyncio.wait(receivers)
    got = [task.result() for task in done if not task.cancelled()]
    if not any(got):
        await h.advance(h.lock.total_seconds() * 1.5)
        got = [await h.receive()]
    found = {d.message.message_id for batch in got for d in batch}
    assert found == {"m1"}, (
        "perhaps twice: whoever had it before the other was cancelled settles nothing"
    )


@where_outages_can_be_played
async def test_an_outage_is_raised_and_loses_nothing(h: Harness) -> None:
    await h.subscribe()
    await h.publish("before")
    h.fail_with(BusUnavailableError("cut off"))
    with pytest.raises(BusUnavailableError):
        await h.publish("during")
    with pytest.raises(BusUnavailableError):
        await h.receive()
    h.fail_with(None)
    assert (await h.one()).message.message_id == "before"


@where_outages_can_be_played
async def test_a_receiver_that_waits_learns_of_an_outage(h: Harness) -> None:
    await h.subscribe()
    waiting = asyncio.create_task(h.receive())
    await h.advance(0.1)
    h.fail_with(BusUnavailableError("cut off"))
    with pytest.raises(BusUnavailableError):
        await waiting


@on_every(ADAPTERS, REFUSAL)
async def test_a_refused_publish_took_nothing(h: Harness) -> None:
    await h.subscribe()
    h.fail_with(PublishRefusedError("too large"))
    with pytest.raises(PublishRefusedError):
        await h.publish("m1")
    h.fail_with(None)
    assert await h.nothing()


@on_every_bus
async def test_a_message_whose_id_is_too_long_is_refused_alone(h: Harness) -> None:
    """It is no outage: the bus answers, and takes every other message."""
    await h.subscribe()
    long = Message("x" * 129, {})
    for batch in ([long], [Message("before", {}), long, Message("behind", {})]):
        with pytest.raises(PublishRefusedError, match=r"id of message x{129} has 129 characters"):
            await h.bus.publish(h.topic(), batch)
    assert await h.nothing()
    await h.publish("x" * 128)
    assert (await h.one()).message.message_id == "x" * 128


@on_every(ADAPTERS, ENCODES)
async def test_a_message_that_is_not_json_is_refused_alone(h: Harness) -> None:
    await h.subscribe()
    for batch in ([NOT_JSON], [Message("before", {}), NOT_JSON]):
        with pytest.raises(PublishRefusedError):
            await h.bus.publish(h.topic(), batch)
    assert await h.nothing()
    await h.publish("after")
    assert (await h.one()).message.message_id == "after"


@on_every(ADAPTERS, SIZES)
async def test_a_message_that_is_too_large_is_refused_alone(h: Harness) -> None:
    await h.subscribe()
    large = Message("large", {"text": "x" * 2_000_000})
    for batch in ([large], [Message("before", {}), large]):
        with pytest.raises(PublishRefusedError, match="large"):
            await h.bus.publish(h.topic(), batch)
    assert await h.nothing()
    await h.publish("after")
    assert (await h.one()).message.message_id == "after"
