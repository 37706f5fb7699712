"""A broker that goes and comes back under traffic loses nothing that it took."""

import asyncio
from collections.abc import Awaitable
from datetime import timedelta

from lucius.core.errors import BusError, BusUnavailableError
from tests.conformance.bus_registry import ADAPTERS, OUTAGE, Harness
from tests.conformance.on_every import on_every

MESSAGES = 60
OUTAGES = 3


@on_every(ADAPTERS, OUTAGE)
async def test_what_was_taken_arrives_whatever_the_broker_goes_through(h: Harness) -> None:
    await h.subscribe()
    ids = [f"m{n}" for n in range(MESSAGES)]
    settled: set[str] = set()
    progress = asyncio.Event()

    async def publish() -> None:
        for one in ids:
            while not await _tried(h.publish(one)):
                await h.advance(0.01)

    async def consume() -> None:
        while len(settled) < MESSAGES:
            try:
                wait = timedelta(seconds=0.2)
                for delivery in await h.bus.receive("worker", [h.topic()], 5, wait):
                    await h.bus.complete(delivery)
                    settled.add(delivery.message.message_id)
                    progress.set()
            except BusError:
                await h.advance(0.05)  # a lock that was lost comes back by itself

    async def disturb() -> None:
        for number in range(1, OUTAGES + 1):
            while len(settled) < number * MESSAGES // (OUTAGES + 2):
                progress.clear()
                await progress.wait()
            h.fail_with(BusUnavailableError("cut off"))
            await h.advance(0.1)
            h.fail_with(None)

    async with asyncio.timeout(240):
        await asyncio.gather(publish(), consume(), consume(), disturb())
    assert settled == set(ids)


async def _tried(work: Awaitable[None]) -> bool:
    try:
        await work
    except BusUnavailableError:
        return False
    return True
