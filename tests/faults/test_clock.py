"""FM_016: the clock of the orchestrator is set back or ahead, or its process stands still."""

import asyncio
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import patch

from lucius.core import decide as core
from lucius.core.job import JobState, StepState
from lucius.engine.clock import StallWatch, SteadyClock
from tests.faults.services import Puppet, Scribe
from tests.faults.stage import Stage, staged
from tests.virtual import VirtualLoop

HOUR = timedelta(hours=1)


class Clock:
    """Wall time that a test moves against the loop's own."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.off = timedelta()

    def now(self) -> datetime:
        return self._loop.now() + self.off


def no_forward_only_time() -> Any:
    """`decide` believes whatever moment it is given."""
    return patch.object(core, "max", lambda now, updated_at: now, create=True)


def no_notice_of_stalls() -> Any:
    """Whatever the clock says has passed, everybody had the time to speak."""
    return patch.object(StallWatch, "deaf_until", lambda self, observer: None)


async def set_back_for_a_minute(stage: Stage) -> tuple[Puppet, Any]:
    """The service acknowledges while the clock is an hour behind; then the clock is right again."""
    clock = Clock(stage.loop)
    lucius = await stage.orchestrator(now=clock.now)
    puppet = await stage.puppet()
    await lucius.submit()
    directive = await puppet.take()
    clock.off = -HOUR
    await puppet.ack(directive)
    clock.off = timedelta()
    await asyncio.sleep(60)
    return puppet, directive


@staged
async def test_fm_016_reproduce_when_time_may_go_back_a_fresh_lease_is_found_expired(
    stage: Stage,
) -> None:
    with no_forward_only_time(), no_notice_of_stalls():
        _, directive = await set_back_for_a_minute(stage)
    step = await stage.step(directive["jobId"])
    assert step.used == 1, "an attempt is used up, though its worker was heard a minute ago"


@staged
async def test_fm_016_prevent_a_lease_is_never_shorter_than_its_service_was_told(
    stage: Stage,
) -> None:
    _, directive = await set_back_for_a_minute(stage)
    step = await stage.step(directive["jobId"])
    assert (step.state, step.used) == (StepState.IN_PROGRESS, 0)
    events = await stage.ledger.events(directive["jobId"], 0, 100)
    assert [e.at for e in events] == sorted(e.at for e in events)


@staged
async def test_fm_016_recover_a_job_goes_on_while_the_clock_is_behind(stage: Stage) -> None:
    clock = Clock(stage.loop)
    lucius = await stage.orchestrator(now=clock.now)
    puppet = await stage.puppet()
    job_id = await lucius.submit()
    directive = await puppet.take()
    clock.off = -HOUR
    await puppet.ack(directive)
    await puppet.succeed(directive)
    job = await stage.finished(job_id)
    assert job.state is JobState.SUCCEEDED
    assert job.completed_at is not None
    assert job.completed_at >= job.plan.accepted_at


@staged
async def test_fm_016_recover_what_falls_silent_is_given_up_once_the_clock_has_caught_up(
    stage: Stage,
) -> None:
    clock = Clock(stage.loop)
    lucius = await stage.orchestrator(now=clock.now)
    puppet = await stage.puppet()
    job_id = await lucius.submit()
    await puppet.ack(await puppet.take())
    clock.off = -HOUR
    again = await puppet.take(within=2 * HOUR.total_seconds())
    await puppet.succeed(again)
    assert (await stage.finished(job_id)).state is JobState.SUCCEEDED


# -- a process that stands still, a clock that jumps ahead -----------------------------------


async def stopped(stage: Stage) -> Any:
    """A service lives in the process, and is at work while the process stands still past its lease."""
    lucius = await stage.orchestrator()
    await stage.worker(Scribe("ocr", 600), embedded=True)
    job_id = await lucius.submit()
    await stage.until(job_id, lambda job: job.steps[0].state is StepState.IN_PROGRESS)
    await asyncio.sleep(10)
    stage.loop.stand_still(HOUR.total_seconds())
    return await stage.finished(job_id)


async def set_ahead(stage: Stage) -> Any:
    """The clock jumps ahead past the lease; a laptop that slept sees the same."""
    clock = Clock(stage.loop)
    lucius = await stage.orchestrator(now=clock.now)
    await stage.worker(Scribe("ocr", 600), embedded=True)
    job_id = await lucius.submit()
    await stage.until(job_id, lambda job: job.steps[0].state is StepState.IN_PROGRESS)
    clock.off = HOUR
    return await stage.finished(job_id)


@staged
async def test_fm_016_reproduce_without_notice_a_process_that_stood_still_gives_up_its_own_work(
    stage: Stage,
) -> None:
    with no_notice_of_stalls():
        job = await stopped(stage)
    assert job.steps[0].used == 1


@staged
async def test_fm_016_reproduce_without_notice_a_jump_ahead_ends_every_lease(stage: Stage) -> None:
    with no_notice_of_stalls():
        job = await set_ahead(stage)
    assert len(job.steps[0].executions) > 1


@staged
async def test_fm_016_prevent_a_process_that_stood_still_listens_before_it_judges(
    stage: Stage,
) -> None:
    job = await stopped(stage)
    assert (job.state, job.steps[0].used) == (JobState.SUCCEEDED, 0)
    assert len(job.steps[0].executions) == 1


@staged
async def test_fm_016_prevent_a_jump_ahead_uses_up_no_attempt(stage: Stage) -> None:
    job = await set_ahead(stage)
    assert (job.state, job.steps[0].used) == (JobState.SUCCEEDED, 0)
    assert len(job.steps[0].executions) == 1


@staged
async def test_fm_016_recover_a_service_that_is_silent_after_a_stall_is_given_up_one_lease_later(
    stage: Stage,
) -> None:
    lucius = await stage.orchestrator()
    puppet = await stage.puppet()
    job_id = await lucius.submit()
    await puppet.ack(await puppet.take())
    stage.loop.stand_still(HOUR.total_seconds())
    again = await puppet.take(within=HOUR.total_seconds())
    assert again["attempt_no"] == 2
    await puppet.succeed(again)
    assert (await stage.finished(job_id)).state is JobState.SUCCEEDED


@staged
async def test_fm_016_prevent_a_wait_is_not_longer_by_what_the_clock_was_set_back(
    stage: Stage,
) -> None:
    wall = Clock(stage.loop)
    clock = SteadyClock(wall.now, stage.loop.time)
    lucius = await stage.orchestrator(now=clock.now)
    puppet = await stage.puppet()
    await lucius.submit()
    await puppet.ack(await puppet.take())
    wall.off = -24 * HOUR
    again = await puppet.take(within=HOUR.total_seconds())
    assert again["attempt_no"] == 2, "the lease of a quarter of an hour took half an hour"
