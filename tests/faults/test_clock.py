"""FM_016: the clock of the orchestrator goes back, and is corrected later."""

import asyncio
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import patch

from lucius.core import decide as core
from lucius.core.states import JobState, StepState
from tests.faults.services import Puppet
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
    with no_forward_only_time():
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
