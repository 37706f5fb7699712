"""FM_018: more work than a service takes; at the worst, it takes none. See engine/test_overload.py too."""

import asyncio

from lucius.core.job import AbortReason, JobState
from lucius.engine.windows import LEAST
from tests.faults.services import Scribe
from tests.faults.stage import Stage, staged

JOBS = 400


@staged
async def test_fm_018_recover_a_backlog_that_nobody_took_is_held_and_worked_off_later(
    stage: Stage,
) -> None:
    """The service comes up two minutes late: few attempts were spent on its silence."""
    lucius = await stage.orchestrator()
    await stage.puppet()
    jobs = [await lucius.submit(number=n) for n in range(JOBS)]
    await asyncio.sleep(1)
    assert len(stage.bus.taken) == LEAST, "the bus holds a window, the ledger the rest"
    await asyncio.sleep(120)
    await stage.worker(Scribe(), slots=4)
    ended = [await stage.until(job_id, lambda job: job.terminal) for job_id in jobs]
    assert all(job.state is JobState.SUCCEEDED for job in ended)
    silent = sum(
        execution.reason is AbortReason.ACK_TIMEOUT
        for job in ended
        for execution in job.steps[0].executions
    )
    assert silent < 3 * LEAST
    assert not await stage.ledger.verify()
