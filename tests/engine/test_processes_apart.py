"""Two orchestrators without lanes and two owners that share them, over one ledger and one bus."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from lucius.app import engine as bootstrap
from lucius.core.job import Job, JobState
from lucius.core.routing import LANES, lane_of
from lucius.engine.metrics import EngineMetrics
from lucius.engine.notices import Nudges
from lucius.engine.windows import Windows
from lucius.ports.lanes import LaneRows
from tests.engine.apart import Apart, Process
from tests.engine.world import Timed
from tests.virtual import VirtualLoop, run_virtually

FLOODER = "flooder"
SAME_LANE = next(f"t{n}" for n in range(1000) if lane_of(f"t{n}") == lane_of(FLOODER))

Story = Callable[[Apart, list[Process], list[Process]], Awaitable[None]]


def apart(story: Story, *, seconds: float = 0.5, slots: int = 25) -> None:
    """The story gets two orchestrators and two owners, and real services."""

    async def main(loop: VirtualLoop) -> None:
        services = [Timed(name, seconds) for name in ("ocr", "embedding", "sis")]
        async with Apart(loop, services=[*services], slots=slots).running() as world:
            owners = [await world.owner(name) for name in ("owner-1", "owner-2")]
            await asyncio.sleep(30)
            asking = [await world.orchestrator(name) for name in ("asks-1", "asks-2")]
            await story(world, asking, owners)
            await check(world)

    run_virtually(main)


async def check(world: Apart) -> None:
    drifts = await world.ledger.verify()
    assert not drifts


async def all_ended(world: Apart, process: Process, job_ids: list[str]) -> list[Job]:
    return [await world.ended(process, job_id) for job_id in job_ids]


def states(jobs: list[Job]) -> Counter[JobState]:
    return Counter(job.state for job in jobs)


# -- lanes -----------------------------------------------------------------------------------


def test_owners_share_the_lanes_evenly_and_rebalance() -> None:
    async def story(world: Apart, asking: list[Process], owners: list[Process]) -> None:
        one, two = owners
        assert not asking[0].owned
        assert (len(one.owned), len(two.owned)) == (8, 8)
        assert one.owned | two.owned == set(range(LANES))
        third = await world.owner("owner-3")
        await asyncio.sleep(10)
        assert sorted(len(each.owned) for each in (one, two, third)) == [5, 5, 6]
        assert one.owned | two.owned | third.owned == set(range(LANES))
        await two.stop()
        await asyncio.sleep(5)
        assert one.owned | third.owned == set(range(LANES)), "what is given back is taken at once"

    apart(story)


def test_the_lanes_of_a_killed_owner_are_taken_over_and_not_before_its_lease_has_run_out() -> None:
    async def story(world: Apart, asking: list[Process], owners: list[Process]) -> None:
        one, two = owners
        await two.kill()
        await asyncio.sleep(10)
        assert len(one.owned) == 8
        await asyncio.sleep(10)
        assert one.owned == set(range(LANES))
        assert not two.owned, "a process that cannot renew does not believe in its lease"

    apart(story)


def test_a_backlog_that_takes_long_to_count_costs_no_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    async def slow(self: EngineMetrics) -> LaneRows:
        await asyncio.sleep(40)
        return {}

    monkeypatch.setattr(EngineMetrics, "by_lane", slow)

    async def story(world: Apart, asking: list[Process], owners: list[Process]) -> None:
        for _ in range(60):
            await asyncio.sleep(1)
            assert [len(owner.owned) for owner in owners] == [8, 8]

    apart(story)


# -- jobs ------------------------------------------------------------------------------------


def test_a_lost_nudge_delays_a_job_until_the_owner_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Nudges, "put", lambda self, job: None)

    async def story(world: Apart, asking: list[Process], owners: list[Process]) -> None:
        job_ids = [await world.submit(asking[0], tenant_id=f"t{n}", number=n) for n in range(20)]
        jobs = await all_ended(world, asking[0], job_ids)
        assert states(jobs) == {JobState.SUCCEEDED: 20}

    apart(story)


@pytest.mark.parametrize("known", [True, False])
def test_a_service_that_is_busy_on_the_lanes_of_another_owner_is_not_silent(
    known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not known:
        monkeypatch.setattr(bootstrap, "at_work_elsewhere", lambda lanes, workers: False)

    async def story(world: Apart, asking: list[Process], owners: list[Process]) -> None:
        jobs = []
        for owner in owners:
            tenant_id = next(f"t{n}" for n in range(1000) if lane_of(f"t{n}") in owner.owned)
            fields = {"request_type": "OCR", "payload": {}}
            jobs.append(await world.submit(asking[0], tenant_id=tenant_id, **fields))
            await asyncio.sleep(5)
        ended = await all_ended(world, asking[0], jobs)
        used = sum(step.used for job in ended for step in job.steps)
        assert (used == 0) is known

    apart(story, seconds=100, slots=1)


def test_many_who_wait_elsewhere_are_one_poller(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: Counter[str] = Counter()

    async def story(world: Apart, asking: list[Process], owners: list[Process]) -> None:
        job_id = await world.submit(asking[0])
        await asyncio.sleep(1)  # until its service is at work, so that it moves no more
        engine, load = asking[0].parts.engine, world.ledger.load

        async def counted(job_id: str) -> Job | None:
            reads["load"] += asyncio.current_task() not in owned
            return await load(job_id)

        owned = {owner.task for owner in owners}
        monkeypatch.setattr(world.ledger, "load", counted)
        waiting = [asyncio.create_task(engine.ended(job_id, 20)) for _ in range(100)]
        await asyncio.sleep(19)
        assert reads["load"] < 150, "each reads once itself, and one reads for all"
        jobs = await asyncio.gather(*waiting)
        assert {job.state for job in jobs if job} == {JobState.IN_PROGRESS}

    apart(story, seconds=3600)


# -- kills, floods, fairness -----------------------------------------------------------------


def flooded(flood: int) -> tuple[list[Job], list[Job]]:
    """A flood of one tenant, then one job a second of another on the same lane."""
    found: list[tuple[list[Job], list[Job]]] = []

    async def story(world: Apart, asking: list[Process], owners: list[Process]) -> None:
        flood_ids = [
            await world.submit(asking[n % 2], tenant_id=FLOODER, number=n) for n in range(flood)
        ]
        quiet_ids = list[str]()
        for number in range(30):
            quiet_ids.append(await world.submit(asking[0], tenant_id=SAME_LANE, number=number))
            await asyncio.sleep(1)
        quiet = await all_ended(world, asking[0], quiet_ids)
        found.append((await all_ended(world, asking[1], flood_ids), quiet))

    apart(story)
    return found[0]


def slowest(jobs: list[Job]) -> float:
    return max((job.updated_at - job.plan.accepted_at).total_seconds() for job in jobs)


@pytest.mark.slow
def test_a_flood_through_orchestrators_holds_up_nobody_and_times_out_nowhere() -> None:
    _, alone = flooded(0)
    flood, crowded = flooded(1_500)
    assert states(flood) == {JobState.SUCCEEDED: 1_500}
    assert sum(step.used for job in flood for step in job.steps) == 0
    assert slowest(crowded) <= 2 * slowest(alone) + 2


@pytest.mark.slow
def test_without_the_window_the_same_flood_holds_up_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, alone = flooded(0)
    monkeypatch.setattr(Windows, "has_capacity", lambda self, line, tenant_id: True)
    _, crowded = flooded(800)
    assert slowest(crowded) > 2 * slowest(alone) + 2


def test_an_engine_keeps_nothing_of_lanes_that_it_does_not_own() -> None:
    async def story(world: Apart, asking: list[Process], owners: list[Process]) -> None:
        await all_ended(
            world, asking[0], [await world.submit(asking[0], number=n) for n in range(5)]
        )
        assert len(asking[0].parts.engine._cache) == 0
        assert asking[0].parts.windows.snapshot() == {}
        assert not asking[0].parts.owed.has_directives

    apart(story)


def test_the_backlog_is_read_from_the_rows_of_the_owners() -> None:
    async def story(world: Apart, asking: list[Process], owners: list[Process]) -> None:
        for number in range(200):
            await world.submit(asking[0], tenant_id=f"t{number % 40}", number=number)
        await asyncio.sleep(20)
        rows = await asking[1].parts.engine.backlog()
        of_ocr = [row for row in rows if row["service"] == "ocr"]
        assert {row["lane"] for row in of_ocr} == {lane_of(f"t{n}") for n in range(40)}
        assert sum(row["held"] + row["released"] + row["in_progress"] for row in of_ocr) == 200
        assert {row["mode"] for row in of_ocr} == {"DEFAULT"}

    apart(story, seconds=3600)
