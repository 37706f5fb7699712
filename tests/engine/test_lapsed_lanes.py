"""A process that was slow to renew its lanes has them again, and all that waited for lanes is told."""

import asyncio

from lucius.engines.outbox.lane_leases import LeasedLanes
from lucius.ledgers.memory_leases import MemoryLeases


async def test_lanes_that_lapsed_and_were_renewed_wake_whoever_waits_for_lanes() -> None:
    now = [0.0]
    lanes = LeasedLanes(MemoryLeases(), "slow", clock=lambda: now[0])
    lanes.took_over(await lanes.renew({}))
    now[0] += 14.0  # others take a lane after 15 s; its holder does not trust it that long
    assert lanes.owned == frozenset()
    waiting = asyncio.create_task(lanes.until_change(asyncio.sleep(3600)))
    await asyncio.sleep(0)
    await lanes.renew({})
    assert len(lanes.owned) == 16
    await asyncio.wait_for(waiting, 60)


async def test_lanes_that_are_renewed_in_time_disturb_nobody() -> None:
    now = [0.0]
    lanes = LeasedLanes(MemoryLeases(), "quick", clock=lambda: now[0])
    lanes.took_over(await lanes.renew({}))
    now[0] += 3.0
    ready = asyncio.Event()
    waiting = asyncio.create_task(lanes.until_change(ready.wait()))
    await asyncio.sleep(0)
    await lanes.renew({})
    await asyncio.sleep(0)
    assert not waiting.done()
    ready.set()
    assert await waiting is True
