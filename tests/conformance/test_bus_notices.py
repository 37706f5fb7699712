"""What every bus must do for notices: a message reaches the one who hears at its address, and nobody else."""

import asyncio
from datetime import timedelta

import pytest

from lucius.core.errors import BusUnavailableError
from lucius.ports.bus import Message
from tests.conformance.bus_registry import ADAPTERS, OUTAGE, Harness
from tests.conformance.on_every import on_every

on_every_bus = on_every(ADAPTERS)
where_outages_can_be_played = on_every(ADAPTERS, OUTAGE)
NOTHING = timedelta(milliseconds=50)
ODD = "embedded/7f/ocr worker.1*>" + "x" * 150
"""Longer than a session's name, and with what is special in a subject."""


async def heard(h: Harness, address: str, count: int = 1) -> list[str]:
    """The ids of so many notices, which are certain to come."""
    found: list[str] = []
    async with asyncio.timeout(240):
        while len(found) < count:
            found += [each.message_id for each in await h.bus.receive_notices(address, h.patience)]
    return found


async def listening(h: Harness, *addresses: str) -> None:
    for address in addresses:
        assert not await h.bus.receive_notices(address, NOTHING)


@on_every_bus
async def test_a_notice_arrives_whole_at_its_address(h: Harness) -> None:
    await listening(h, h.topic())
    body = {"type": "CANCEL", "text": "Grüße →", "proofs": ["a", "b"], "attempt_no": 2}
    await h.bus.send_notice(h.topic(), Message("n1", body, {"type": "CANCEL", "attempt_no": 2}))
    (message,) = await h.bus.receive_notices(h.topic(), h.patience)
    assert message.message_id == "n1"
    assert dict(message.body) == body
    assert message.properties["type"] == "CANCEL"


@on_every_bus
async def test_only_its_address_hears_a_notice(h: Harness) -> None:
    one, two = h.topic("one"), h.topic("two")
    await listening(h, one, two)
    await h.bus.send_notice(one, Message("n1", {}))
    await h.bus.send_notice(two, Message("n2", {}))
    assert await heard(h, two) == ["n2"]
    assert await heard(h, one) == ["n1"]
    assert not await h.bus.receive_notices(one, NOTHING)


@on_every_bus
async def test_a_notice_is_heard_by_whoever_waits_for_it(h: Harness) -> None:
    await listening(h, h.topic())
    waiting = asyncio.create_task(heard(h, h.topic()))
    await h.advance(0.01)
    await h.bus.send_notice(h.topic(), Message("n1", {}))
    assert await waiting == ["n1"]


@on_every_bus
async def test_notices_keep_their_order_and_wait_to_be_heard(h: Harness) -> None:
    await listening(h, h.topic())
    for number in ("1", "2", "3"):
        await h.bus.send_notice(h.topic(), Message(number, {}))
    assert await heard(h, h.topic(), 3) == ["1", "2", "3"]


@on_every_bus
async def test_an_address_may_be_any_text(h: Harness) -> None:
    address = h.topic() + ODD
    await listening(h, address)
    await h.bus.send_notice(address, Message("n1", {}))
    assert await heard(h, address) == ["n1"]


@on_every_bus
async def test_who_stops_to_hear_misses_nothing(h: Harness) -> None:
    await listening(h, h.topic())
    waiting = asyncio.create_task(h.bus.receive_notices(h.topic(), h.patience))
    await h.advance(0.01)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await h.bus.send_notice(h.topic(), Message("n1", {}))
    assert await heard(h, h.topic()) == ["n1"]


@on_every_bus
async def test_a_notice_to_nobody_is_no_error(h: Harness) -> None:
    await listening(h, h.topic("somebody"))
    await h.bus.send_notice(h.topic("nobody"), Message("n1", {}))
    assert not await h.bus.receive_notices(h.topic("somebody"), NOTHING)


@where_outages_can_be_played
async def test_hearing_goes_on_after_an_outage(h: Harness) -> None:
    await listening(h, h.topic())
    h.fail_with(BusUnavailableError("cut off"))
    with pytest.raises(BusUnavailableError):
        await h.bus.receive_notices(h.topic(), h.patience)
    h.fail_with(None)
    async with asyncio.timeout(240):
        while True:
            try:
                assert not await h.bus.receive_notices(h.topic(), NOTHING)
                break
            except BusUnavailableError:
                await asyncio.sleep(0.05)
        await h.bus.send_notice(h.topic(), Message("n1", {}))
    assert await heard(h, h.topic()) == ["n1"]
