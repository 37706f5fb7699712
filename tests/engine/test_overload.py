"""Overload is not failure: a flood waits in the ledger, and other tenants hardly notice it."""

import asyncio
from dataclasses import dataclass
from math import ceil

import pytest

from lucius.adapters.buses.memory import MemoryBus
from lucius.core.job import Job, JobState
from lucius.core.routing import lane_of
from lucius.engine.windows import Windows
from tests.engine.world import InOrder, Timed, World
from tests.virtual import VirtualLoop, run_virtually

pytestmark = pytest.mark.slow

FLOOD = 2_000
"""They take 40 seconds: longer than the ACK timeout."""
QUIET_JOBS = 60
SLOTS, SECONDS = 25, 0.5
"""Each service finishes 50 steps a second."""
FLOODER = "flooder"
SAME_LANE = next(f"t{n}" for n in range(1000) if lane_of(f"t{n}") == lane_of(FLOODER))
OTHER_LANE = next(f"t{n}" for n in range(1000) if lane_of(f"t{n}") != lane_of(FLOODER))


@dataclass
class Measured:
    flood: list[Job]
    quiet: list[float]

    @property
    def attempts_used_up(self) -> int:
        """No service fails here, so each is an ACK that came too late."""
        return sum(step.used for job in self.flood for step in job.steps)

    @property
    def p99(self) -> float:
        return sorted(self.quiet)[ceil(len(self.quiet) * 0.99) - 1]


def measure(flood: int, tenant_id: str, bus: type[MemoryBus] = InOrder) -> Measured:
    """Submit the flood at once, then one job a second for the quiet tenant."""

    async def main(loop: VirtualLoop) -> Measured:
        services = [Timed(name, SECONDS) for name in ("ocr", "embedding", "sis")]
        async with World(loop, bus=bus(), services=[*services], slots=SLOTS).running() as world:
            flooded = [await world.submit(tenant_id=FLOODER, number=n) for n in range(flood)]
            quiet = []
            for number in range(QUIET_JOBS):
                quiet.append(await world.submit(tenant_id=tenant_id, number=number))
                await asyncio.sleep(1)
            waits = [(await world.finished(job_id))["seconds"] for job_id in quiet]
            return Measured([(await world.finished(j))["job"] for j in flooded], waits)

    return run_virtually(main)


@pytest.mark.parametrize(
    ("tenant_id", "flood", "bus"),
    [(SAME_LANE, FLOOD, InOrder), (SAME_LANE, FLOOD, MemoryBus), (OTHER_LANE, 1_000, InOrder)],
    ids=["same lane", "same lane, in turns", "other lane"],
)
def test_a_flood_succeeds_without_ack_timeouts_and_others_wait_at_most_twice_as_long(
    tenant_id: str, flood: int, bus: type[MemoryBus]
) -> None:
    alone = measure(0, tenant_id, bus)
    crowded = measure(flood, tenant_id, bus)
    assert all(job.state is JobState.SUCCEEDED for job in crowded.flood)
    assert crowded.attempts_used_up == 0
    assert crowded.p99 <= 2 * alone.p99


def test_without_the_window_the_same_flood_holds_up_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alone = measure(0, SAME_LANE)
    monkeypatch.setattr(Windows, "has_capacity", lambda self, line, tenant_id: True)
    crowded = measure(1_000, SAME_LANE)
    assert crowded.p99 > 2 * alone.p99


def test_without_the_look_at_its_service_either_the_flood_times_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Windows, "has_capacity", lambda self, line, tenant_id: True)
    monkeypatch.setattr(Windows, "queued", lambda self, lease_id: False)
    assert measure(FLOOD, SAME_LANE).attempts_used_up > 0
