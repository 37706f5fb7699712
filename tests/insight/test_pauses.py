"""Nothing is released to a paused service, nothing of it times out, and it goes on where it stopped."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from lucius.core.job import JobState, StepState
from lucius.operations.services import LOOK, PausedServices
from lucius.ports.services import KnownService
from tests.api.live import live
from tests.engine.world import Timed, World
from tests.virtual import VirtualLoop, run_virtually
from tests.wiring import NoneHeldBack

LONG = timedelta(hours=20).total_seconds()


def services() -> list[Timed]:
    return [Timed(name, 1.0) for name in ("ocr", "embedding", "sis")]


def held_in(world: World, paused: PausedServices) -> World:
    return World(world.loop, world.ledger, world.bus, services=list(services()), held_back=paused)


def test_nothing_is_released_to_a_paused_service_until_it_goes_on() -> None:
    async def main(loop: VirtualLoop) -> None:
        plain = World(loop)
        paused = PausedServices(plain.ledger.shared_records(), now=loop.now, alone=True)
        world = held_in(plain, paused)
        await paused.pause("embedding", "anna", "the index is down")
        async with world.running():
            job_id = await world.submit()
            await asyncio.sleep(LONG)
            job = await world.engine.job(job_id)
            assert job is not None
            assert [step.state for step in job.steps[:2]] == [
                StepState.SUCCEEDED,
                StepState.DISPATCHING,
            ]
            assert job.steps[1].held
            await paused.resume("embedding")
            assert (await world.finished(job_id))["state"] is JobState.SUCCEEDED

    run_virtually(main)


@pytest.mark.parametrize("held", [True, False], ids=["paused", "sabotage: not paused"])
def test_what_a_paused_service_has_does_not_time_out(held: bool) -> None:
    """Its workers are gone and its leases are over; only the pause keeps the attempt."""

    async def main(loop: VirtualLoop) -> None:
        plain = World(loop)
        paused = PausedServices(plain.ledger.shared_records(), now=loop.now, alone=True)
        world = World(loop, plain.ledger, held_back=paused if held else NoneHeldBack())
        async with world.running():
            job_id = await world.submit()
            await asyncio.sleep(1)
            job = await world.engine.job(job_id)
            assert job is not None
            assert job.steps[0].out
            await paused.pause("ocr", "anna", None)
            await asyncio.sleep(LONG)
            job = await world.engine.job(job_id)
            assert job is not None
            assert (job.steps[0].used == 0) is held

    run_virtually(main)


def test_a_pause_reaches_another_process_and_so_does_its_end() -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop)
        here = PausedServices(world.ledger.shared_records(), now=loop.now, alone=False)
        there = PausedServices(world.ledger.shared_records(), now=loop.now, alone=False)
        looking = asyncio.create_task(there.run())
        await here.pause("ocr", "anna", None)
        assert "ocr" not in there
        await asyncio.sleep(LOOK.total_seconds() + 1)
        assert "ocr" in there
        await here.resume("ocr")
        await there.went_on()
        assert "ocr" not in there
        looking.cancel()

    run_virtually(main)


async def test_a_pause_holds_over_a_restart(tmp_path: Path) -> None:
    async with live(tmp_path) as lucius:
        answer = await lucius.post("/v1/services/ocr:pause", {"reason": "its disk is full"})
        assert answer.json() == {"service": "ocr", "outcome": "applied"}
        again = await lucius.post("/v1/services/ocr:pause", {"reason": "another"})
        assert again.json()["outcome"] == "already"
    async with live(tmp_path) as lucius:
        job_id = await lucius.accepted()
        assert await lucius.pull(wait=0) == []
        assert (await lucius.job(job_id))["steps"][0]["outbox"]["held"]
        ocr = await paused_view(lucius.runtime.insight.services.services())
        assert (ocr.paused_by, ocr.paused_reason) == ("anyone", "its disk is full")
        resumed = await lucius.post("/v1/services/ocr:resume")
        assert resumed.json()["outcome"] == "applied"
        (directive,) = await lucius.pull()
        assert directive["jobId"] == job_id
        again = await lucius.post("/v1/services/ocr:resume")
        assert again.json()["outcome"] == "already"


async def paused_view(asked: object) -> KnownService:
    views: list[KnownService] = await asked  # type: ignore[misc]
    return next(view for view in views if view.service == "ocr")
