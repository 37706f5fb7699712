"""A deployment moves to Temporal with jobs in flight: each job ends on the engine that it began with."""

import asyncio
from pathlib import Path

import pytest

from lucius.core.job import JobState
from tests.temporal.server import shared_server
from tests.temporal.test_both_engines import Gated
from tests.temporal.world import (
    ended,
    envelope,
    running,
    settings_of,
    submitted,
)

pytestmark = pytest.mark.xdist_group("temporal")


async def test_a_way_back_leaves_jobs_on_temporal_waiting_for_it(tmp_path: Path) -> None:
    """Without the setting nobody serves them; with it again, they go on."""
    server = shared_server()
    await server.client()
    on, first = settings_of(tmp_path, server), Gated("alpha")
    async with running(on, [first]) as (runtime, _):
        job_id = await submitted(runtime, envelope())
        await asyncio.wait_for(first.began.wait(), 60)
    async with running(settings_of(tmp_path, None)) as (runtime, bus):
        outbox = await ended(runtime, await submitted(runtime, envelope(number=3)))
        waiting = await runtime.engine.job(job_id)
        assert waiting is not None
        assert (outbox.plan.engine, waiting.terminal) == ("outbox", False)
        assert job_id not in {str(message.body["jobId"]) for _, message in bus.published}
    async with running(on) as (runtime, _):
        assert (await ended(runtime, job_id)).state is JobState.SUCCEEDED
