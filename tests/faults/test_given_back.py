"""FM_024: a service gives its lease back again and again."""

from collections.abc import Mapping
from typing import Any
from unittest.mock import patch

from lucius.core import callbacks
from lucius.core.job import JobState, StepState
from tests.faults.services import Puppet
from tests.faults.stage import Stage, staged

SECONDS = 10.0


async def give_back(puppet: Puppet, directive: Mapping[str, Any]) -> None:
    await puppet.ack(directive)
    await puppet.say(directive, "RELEASE", worker_id="puppet")


async def given_back_for_ten_seconds(stage: Stage) -> tuple[str, int]:
    """The job, and how often its lease came back."""
    lucius = await stage.orchestrator()
    puppet = await stage.puppet()
    job_id = await lucius.submit()
    ends_at, times = stage.loop.time() + SECONDS, 0
    while (left := ends_at - stage.loop.time()) > 0:
        found = await puppet.perhaps(left)
        if found is not None:
            await give_back(puppet, found)
            times += 1
    return job_id, times


@staged
async def test_fm_024_reproduce_when_giving_back_is_free_for_ever_a_step_goes_round_without_a_pause(
    stage: Stage,
) -> None:
    with patch.object(callbacks, "FREE_RETURNS", 1_000_000):
        job_id, times = await given_back_for_ten_seconds(stage)
    assert times > 50
    assert (await stage.step(job_id)).used == 0


@staged
async def test_fm_024_prevent_the_third_lease_that_comes_back_uses_the_attempt_and_waits(
    stage: Stage,
) -> None:
    job_id, times = await given_back_for_ten_seconds(stage)
    assert times == 3
    step = await stage.step(job_id)
    assert (step.state, step.used, step.returns) == (StepState.FAILED_RETRY, 1, 3)


@staged
async def test_fm_024_prevent_a_service_that_never_does_the_work_fails_the_job(
    stage: Stage,
) -> None:
    lucius = await stage.orchestrator()
    puppet = await stage.puppet()
    job_id = await lucius.submit()
    for _ in range(5):
        await give_back(puppet, await puppet.take())
    job = await stage.finished(job_id)
    assert job.state is JobState.FAILED_FINAL
    assert job.fault is not None
    assert job.fault.code == "LEASE_RETURNED"


@staged
async def test_fm_024_recover_two_services_that_drain_cost_no_attempt(stage: Stage) -> None:
    lucius = await stage.orchestrator()
    puppet = await stage.puppet()
    job_id = await lucius.submit()
    for _ in range(2):
        await give_back(puppet, await puppet.take(within=1))
    await puppet.succeed(await puppet.take(within=1))
    job = await stage.finished(job_id)
    assert (job.state, job.steps[0].attempt_no) == (JobState.SUCCEEDED, 1)
