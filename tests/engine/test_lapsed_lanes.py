"""A process that was slow to renew its lanes has them again, and all that waited for lanes is told."""

import asyncio
from collections.abc import Sequence

from lucius.core.errors import LedgerUnavailableError
from lucius.core.routing import LANES
from lucius.engines.outbox.lane_leases import NOBODY, LeasedLanes
from lucius.ledgers.memory_leases import MemoryLeases
from lucius.ports.leases import LeaseRow
from tests.engine.apart import Apart
from tests.virtual import VirtualLoop, run_virtually


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


class NoHandover(MemoryLeases):
    """While `away`, no lane can be handed over: the storage fails just then."""

    away = False

    async def put_all(self, rows: Sequence[LeaseRow]) -> Sequence[str | None]:
        if self.away and any(row.holder == NOBODY for row in rows):
            raise LedgerUnavailableError("the storage does not answer")
        return await super().put_all(rows)


def test_lanes_that_were_given_up_in_an_outage_are_taken_over_again() -> None:
    async def main(loop: VirtualLoop) -> None:
        leases = NoHandover()
        apart = Apart(loop, leases=leases)
        first = await apart.owner("first")
        leases.away = True
        second = await apart.owner("second")
        await asyncio.sleep(10)
        await second.kill()  # before a lane was handed to it
        await asyncio.sleep(60)
        assert first.owned == frozenset(range(LANES))
        await first.kill()

    run_virtually(main)
