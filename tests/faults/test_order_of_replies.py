"""FM_007, FM_008 and FM_009: replies that come too early, from an old lease, or after all."""

import asyncio
from typing import Any

from lucius.core.job import AbortReason, ExecutionState, Job, JobState, StepState
from tests.faults.sabotage import no_implied_ack, no_lease_check, no_second_thought
from tests.faults.services import Puppet
from tests.faults.stage import Stage, staged

# -- FM_007 ----------------------------------------------------------------------------------


async def result_first(stage: Stage) -> tuple[Puppet, Any]:
    lucius = await stage.orchestrator()
    puppet = await stage.puppet()
    await lucius.submit()
    directive = await puppet.take()
    await puppet.succeed(directive)
    return puppet, directive


@staged
async def test_fm_007_reproduce_without_implied_moves_the_result_is_thrown_away(
    stage: Stage,
) -> None:
    with no_implied_ack():
        puppet, directive = await result_first(stage)
        await puppet.ack(directive)
    assert (await stage.step(directive["jobId"])).state is StepState.IN_PROGRESS
    assert await stage.outcomes(directive["jobId"]) == ["stale"]


@staged
async def test_fm_007_prevent_a_result_makes_every_move_that_it_proves_in_order(
    stage: Stage,
) -> None:
    _, directive = await result_first(stage)
    events = await stage.ledger.events(directive["jobId"], 0, 100)
    moves = [move.split()[-1] for move in events[-1].moves if move.startswith("step ocr")]
    assert moves == [
        "DISPATCHING->AWAITING_ACK", "AWAITING_ACK->IN_PROGRESS", "IN_PROGRESS->SUCCEEDED",
    ]  # fmt: skip


@staged
async def test_fm_007_recover_the_ack_that_follows_changes_nothing(stage: Stage) -> None:
    puppet, directive = await result_first(stage)
    await puppet.ack(directive)
    job = await stage.finished(directive["jobId"])
    assert job.state is JobState.SUCCEEDED
    assert await stage.outcomes(job.job_id) == ["duplicate"]


# -- FM_008 ----------------------------------------------------------------------------------


async def old_lease_speaks(stage: Stage) -> tuple[Puppet, Any]:
    """The first attempt is silent for its whole lease, and answers when the second is under way."""
    lucius = await stage.orchestrator()
    puppet = await stage.puppet()
    await lucius.submit()
    old = await puppet.take()
    await puppet.ack(old)
    new = await puppet.take()
    await puppet.ack(new)
    assert (old["attempt_no"], new["attempt_no"]) == (1, 2)
    await puppet.succeed(old)
    return puppet, new


@staged
async def test_fm_008_reproduce_without_the_lease_check_the_old_result_closes_the_new_attempt(
    stage: Stage,
) -> None:
    with no_lease_check():
        _, new = await old_lease_speaks(stage)
    job = await stage.finished(new["jobId"])
    assert job.steps[0].executions[-1].attempt_no == 2, "committed: the attempt that still runs"
    assert job.final_output == "mem://out/ocr/1"


@staged
async def test_fm_008_prevent_a_stale_result_is_recorded_and_moves_nothing(stage: Stage) -> None:
    _, new = await old_lease_speaks(stage)
    step = await stage.step(new["jobId"])
    assert step.state is StepState.IN_PROGRESS
    assert step.result_ref is None
    assert await stage.outcomes(new["jobId"]) == ["stale"]


@staged
async def test_fm_008_recover_the_current_attempt_ends_the_step(stage: Stage) -> None:
    puppet, new = await old_lease_speaks(stage)
    await puppet.succeed(new)
    job = await stage.finished(new["jobId"])
    assert (job.state, job.final_output) == (JobState.SUCCEEDED, "mem://out/ocr/2")


# -- FM_009 ----------------------------------------------------------------------------------


async def success_during_backoff(stage: Stage) -> tuple[Puppet, Job]:
    lucius = await stage.orchestrator()
    puppet = await stage.puppet()
    job_id = await lucius.submit()
    directive = await puppet.take()
    await puppet.ack(directive)
    await stage.until(job_id, lambda job: job.steps[0].state is StepState.FAILED_RETRY)
    await puppet.succeed(directive)
    return puppet, await stage.job(job_id)


@staged
async def test_fm_009_reproduce_without_a_second_thought_finished_work_is_done_again(
    stage: Stage,
) -> None:
    with no_second_thought():
        puppet, _ = await success_during_backoff(stage)
        again = await puppet.take()
    assert again["attempt_no"] == 2


@staged
async def test_fm_009_prevent_a_late_success_counts_until_the_next_lease_exists(
    stage: Stage,
) -> None:
    puppet, job = await success_during_backoff(stage)
    assert job.state is JobState.SUCCEEDED
    assert await puppet.idle(3600), "no second attempt is made"


@staged
async def test_fm_009_recover_the_attempt_given_up_for_silence_is_the_committed_one(
    stage: Stage,
) -> None:
    _, job = await success_during_backoff(stage)
    (execution,) = job.steps[0].executions
    assert (execution.state, execution.reason) == (ExecutionState.DONE, None)
    events = await stage.ledger.events(job.job_id, 0, 100)
    assert any("IN_PROGRESS->ABORTED" in move for event in events for move in event.moves)
    assert not await stage.ledger.verify()


@staged
async def test_fm_009_prevent_a_late_failure_does_not_shorten_or_repeat_the_backoff(
    stage: Stage,
) -> None:
    lucius = await stage.orchestrator()
    puppet = await stage.puppet()
    job_id = await lucius.submit()
    directive = await puppet.take()
    await puppet.ack(directive)
    before = await stage.until(job_id, lambda job: job.steps[0].state is StepState.FAILED_RETRY)
    await puppet.say(directive, "RESULT", status="FAILED_RETRY")
    await asyncio.sleep(1)
    step = await stage.step(job_id)
    assert (step.retry_at, step.used) == (before.steps[0].retry_at, 1)
    assert step.executions[-1].reason is AbortReason.LEASE_EXPIRED
