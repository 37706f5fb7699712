"""FM_021: what an earlier process left is found, whatever its leases, its configuration and its clock."""

import asyncio
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from unittest.mock import patch

from lucius.adapters.ledgers.memory import MemoryLedger
from lucius.core.job import JobState, StepState
from lucius.engine import ownership
from lucius.ports.ledger import DueJob
from tests.faults.network import Network
from tests.faults.services import Scribe
from tests.faults.stage import Orchestrator, Stage, staged
from tests.faults.test_clock import Clock

DAY = timedelta(days=1)
JOBS = 10


async def left_at_work(stage: Stage, jobs: int = 1) -> list[str]:
    """A process dies while its service is at work on so many jobs."""
    stage.bus = Network(volatile=True)
    lucius = await stage.orchestrator()
    worker = await stage.worker(Scribe("ocr", *[600] * jobs), embedded=True, slots=jobs)
    job_ids = [await lucius.submit(number=number) for number in range(jobs)]
    for job_id in job_ids:
        await stage.until(job_id, lambda job: job.steps[0].state is StepState.IN_PROGRESS)
    await worker.kill()
    await lucius.kill()
    await stage.bus.close()
    return job_ids


async def next_process(stage: Stage, clock: Clock | None = None) -> Orchestrator:
    stage.bus = Network(volatile=True)
    lucius = await stage.orchestrator(now=clock.now if clock is not None else None)
    await stage.worker(Scribe(), embedded=True)
    return lucius


@staged
async def test_fm_021_recover_a_clock_that_was_set_back_hides_nothing(stage: Stage) -> None:
    (job_id,) = await left_at_work(stage)
    clock = Clock(stage.loop)
    clock.off = -DAY
    await next_process(stage, clock)
    job = await stage.finished(job_id, within=5)
    assert (job.state, job.steps[0].used) == (JobState.SUCCEEDED, 0)


class Pages(MemoryLedger):
    """Counts what is read at once."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    async def due(
        self,
        before: datetime,
        lanes: Collection[int],
        limit: int,
        after: DueJob | None = None,
    ) -> Sequence[DueJob]:
        page = await super().due(before, lanes, limit, after)
        if before == ownership.FOREVER:
            self.sizes.append(len(page))
        return page


def found_in(sizes: Sequence[int]) -> tuple[int, int]:
    return sum(sizes), max(sizes)


@staged
async def test_fm_021_recover_everything_is_taken_up_a_page_at_a_time(stage: Stage) -> None:
    stage.ledger = ledger = Pages()
    job_ids = await left_at_work(stage, JOBS)
    ledger.sizes.clear()
    with patch.object(ownership, "PAGE", 4):
        await next_process(stage)
    assert found_in(ledger.sizes) == (JOBS, 4)
    jobs = await asyncio.gather(*(stage.finished(job_id, within=60) for job_id in job_ids))
    assert {(job.state, job.steps[0].used) for job in jobs} == {(JobState.SUCCEEDED, 0)}
    assert {job.steps[0].deaths for job in jobs} == {1}, "each is taken up once"
