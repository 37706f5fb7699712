"""A process that was slow to renew its lanes has them again, and all that waited for lanes is told."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from lucius.core.errors import LedgerUnavailableError
from lucius.core.inputs import Input
from lucius.core.job import Job
from lucius.core.routing import LANES
from lucius.engines.outbox.lane_leases import NOBODY, LeasedLanes
from lucius.engines.outbox.notices import Nudges
from lucius.ledgers.memory_leases import MemoryLeases
from lucius.ports.leases import LeaseRow
from tests.conformance.jobs import ack_of, success_of
from tests.engine.apart import Apart, Process
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


async def applied(process: Process, job_id: str, received: Callable[[Job], Input]) -> None:
    job = await process.parts.engine.job(job_id)
    assert job is not None
    await process.parts.engine.apply(job_id, received(job))


def test_an_attempt_that_ends_while_its_lane_has_lapsed_is_in_progress_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody is nudged: a nudge may be lost."""
    monkeypatch.setattr(Nudges, "put", lambda self, job: None)

    async def main(loop: VirtualLoop) -> None:
        async with Apart(loop).running() as world:
            owner, asking = await world.owner("owner"), await world.orchestrator("asks")
            job_id = await world.submit(asking, request_type="OCR")
            await asyncio.sleep(10)
            await applied(owner, job_id, ack_of)
            owner.lanes._until = dict.fromkeys(owner.lanes._until, loop.time())
            assert owner.owned == frozenset()
            await applied(owner, job_id, success_of)
            await asyncio.sleep(10)
            assert len(owner.owned) == 16, "the next renewal has them again"
            rows = await asking.parts.engine.backlog()
            assert [row["service"] for row in rows if row["in_progress"]] == []

    run_virtually(main)
