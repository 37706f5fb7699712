"""A deployment moves to Temporal with jobs in flight: each job ends on the engine that it began with."""

import asyncio
from pathlib import Path

import pytest

from lucius.core.states import JobState
from tests.temporal.server import shared_server
from tests.temporal.test_both_engines import Gated
from tests.temporal.world import (
    SERVICES,
    Scripted,
    ended,
    envelope,
    running,
    settings_of,
    submitted,
)

pytestmark = pytest.mark.xdist_group("temporal")


async def test_jobs_in_flight_end_on_the_engine_they_began_with(tmp_path: Path) -> None:
    server = shared_server()
    await server.client()
    first = Gated("alpha")
    before = settings_of(tmp_path, None)
    async with running(before, [first, *(Scripted(name) for name in SERVICES[1:])]) as (old, _):
        began = await submitted(old, envelope(number=1))
        await asyncio.wait_for(first.began.wait(), 60)
    async with running(settings_of(tmp_path, server)) as (new, _):
        later = await submitted(new, envelope(number=2))
        jobs = [await ended(new, began), await ended(new, later)]
        assert [job.plan.engine for job in jobs] == ["outbox", "temporal"]
        assert {job.state for job in jobs} == {JobState.SUCCEEDED}
        assert await new.ledger.verify() == []


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
