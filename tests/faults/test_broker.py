"""FM_019 and FM_020: the broker is away, or will not take a directive."""

import asyncio
from typing import Any
from unittest.mock import patch

from lucius.core.effects import PublishDirective
from lucius.core.errors import BusUnavailableError
from lucius.core.inputs import CancelRequested, PublishConfirmed, PublishRefused
from lucius.core.job import AbortReason, EntryState, Fault, Job, JobState, StepState
from lucius.engine.dispatcher import Dispatcher
from tests.faults.network import kinds, nothing
from tests.faults.sabotage import together
from tests.faults.services import DAY, Scribe
from tests.faults.stage import Orchestrator, Stage, staged

AN_HOUR = 3595.0
AWAY = BusUnavailableError("no route to the broker")

# -- FM_019 ----------------------------------------------------------------------------------


def unknown_is_failed() -> Any:
    """A publish that got no answer uses up its attempt."""

    async def refuse(
        self: Dispatcher, error: Exception, batch: list[tuple[Job, PublishDirective]]
    ) -> None:
        for job, effect in batch:
            self._refused(job, effect, error)

    publish = Dispatcher.publish

    async def refused(
        self: Dispatcher, job: Job, effect: PublishDirective
    ) -> PublishConfirmed | PublishRefused:
        try:
            return await publish(self, job, effect)
        except BusUnavailableError as error:
            bound = (effect.step_id, effect.attempt_no, effect.lease_id)
            return PublishRefused(*bound, Fault("PUBLISH_REFUSED", str(error)))

    return together(
        patch.object(Dispatcher, "_outage", refuse), patch.object(Dispatcher, "publish", refused)
    )


async def away_for(stage: Stage, seconds: float) -> tuple[Orchestrator, str]:
    """The broker goes away before the first publish; jobs are accepted all the same."""
    lucius = await stage.orchestrator()
    await stage.worker(Scribe())
    stage.bus.fail_with(AWAY, ("publish",))
    job_id = await lucius.submit()
    await asyncio.sleep(seconds)
    return lucius, job_id


@staged
async def test_fm_019_reproduce_when_unknown_counts_as_failed_an_outage_fails_the_job(
    stage: Stage,
) -> None:
    with unknown_is_failed():
        _, job_id = await away_for(stage, AN_HOUR)
    assert (await stage.job(job_id)).state is JobState.FAILED_FINAL


@staged
async def test_fm_019_prevent_no_attempt_is_used_and_nothing_more_is_released(
    stage: Stage,
) -> None:
    lucius, job_id = await away_for(stage, AN_HOUR)
    step = await stage.step(job_id)
    assert (step.state, step.used, len(step.executions)) == (StepState.DISPATCHING, 0, 1)
    waiting = await stage.asked(await lucius.submit(number=1))
    assert waiting.entry is not None
    assert waiting.entry.state is EntryState.HELD, "the window is closed"


@staged
async def test_fm_019_recover_the_broker_returns_and_the_same_attempt_goes_out_once(
    stage: Stage,
) -> None:
    lucius, first = await away_for(stage, AN_HOUR)
    second = await lucius.submit(number=1)
    stage.bus.fail_with(None)
    for job_id in (first, second):
        job = await stage.finished(job_id, within=10)
        assert job.state is JobState.SUCCEEDED
        assert [e.attempt_no for e in job.steps[0].executions] == [1]
        assert len(stage.bus.directives(job_id)) == 1, "however often it was asked for"


@staged
async def test_fm_019_recover_a_publish_whose_answer_was_lost_is_repeated_as_it_was(
    stage: Stage,
) -> None:
    lucius = await stage.orchestrator()
    scribe = Scribe("ocr", 60)
    await stage.worker(scribe)
    stage.bus.unsure = kinds("DIRECTIVE")
    job_id = await lucius.submit()
    await asyncio.sleep(5)
    stage.bus.unsure = nothing
    job = await stage.finished(job_id)
    assert job.state is JobState.SUCCEEDED
    assert len({message.message_id for message in stage.bus.directives(job_id)}) == 1
    assert scribe.begun == [1]


@staged
async def test_fm_019_recover_what_was_owed_is_cancelled_and_others_go_out_all_the_same(
    stage: Stage,
) -> None:
    """Nothing is left to try the broker with, so the next directive tries it."""
    lucius, owed = await away_for(stage, 60)
    await lucius.engine.apply(owed, CancelRequested(immediate=True))
    stage.bus.fail_with(None)
    for number in (1, 2):
        job = await stage.finished(await lucius.submit(number=number), within=10)
        assert job.state is JobState.SUCCEEDED


@staged
async def test_fm_019_recover_what_was_owed_is_refused_and_others_go_out_all_the_same(
    stage: Stage,
) -> None:
    """A broker that refuses has answered."""
    lucius, owed = await away_for(stage, 60)
    stage.bus.refuse = lambda message: message.properties.get("jobId") == owed
    stage.bus.fail_with(None)
    await stage.until(owed, lambda job: job.steps[0].used == 1, within=10)
    assert not lucius.dispatcher.outage.on
    job = await stage.finished(await lucius.submit(number=1), within=10)
    assert job.state is JobState.SUCCEEDED


@staged
async def test_fm_019_prevent_a_broker_that_is_still_away_closes_the_window_again(
    stage: Stage,
) -> None:
    lucius, owed = await away_for(stage, 60)
    await lucius.engine.apply(owed, CancelRequested(immediate=True))
    await asyncio.sleep(5)
    tried = await lucius.submit(number=1)
    await asyncio.sleep(60)
    step = await stage.asked(await lucius.submit(number=2))
    assert step.entry is not None
    assert (step.entry.state, lucius.dispatcher.outage.on) == (EntryState.HELD, True)
    assert (await stage.step(tried)).used == 0


# -- FM_020 ----------------------------------------------------------------------------------


def refused_is_unknown() -> Any:
    """A publish that the bus refused is repeated, as if nobody knew how it ended."""

    def repeat(self: Dispatcher, job: Job, effect: PublishDirective, error: Exception) -> None:
        asyncio.get_running_loop().call_later(1, self._owed.put_back, [(job, effect)])

    publish = Dispatcher.publish

    async def unknown(
        self: Dispatcher, job: Job, effect: PublishDirective
    ) -> PublishConfirmed | PublishRefused:
        became = await publish(self, job, effect)
        if isinstance(became, PublishRefused):
            raise BusUnavailableError(became.fault.message)
        return became

    return together(
        patch.object(Dispatcher, "_refused", repeat), patch.object(Dispatcher, "publish", unknown)
    )


async def refused(stage: Stage) -> tuple[Orchestrator, str]:
    lucius = await stage.orchestrator()
    await stage.worker(Scribe())
    stage.bus.refuse = lambda message: "/0.pdf" in str(message.body.get("input_ref"))
    return lucius, await lucius.submit(number=0)


@staged
async def test_fm_020_reproduce_when_refused_counts_as_unknown_the_entry_never_settles(
    stage: Stage,
) -> None:
    with refused_is_unknown():
        _, job_id = await refused(stage)
        await asyncio.sleep(3600)
    entry = (await stage.step(job_id)).entry
    assert entry is not None
    assert entry.state is EntryState.RELEASED


@staged
async def test_fm_020_prevent_each_refusal_uses_an_attempt_and_the_last_one_ends_the_job(
    stage: Stage,
) -> None:
    _, job_id = await refused(stage)
    job = await stage.finished(job_id)
    assert (job.state, job.in_dlq) == (JobState.FAILED_FINAL, True)
    assert [e.reason for e in job.steps[0].executions] == [AbortReason.PUBLISH_REFUSED] * 3
    assert job.steps[0].entry is not None
    assert job.steps[0].entry.state is EntryState.FAILED_FINAL
    assert stage.loop.time() < 30 + 120 + 60, "30 s, then 2 m between the three"


@staged
async def test_fm_020_prevent_one_refused_directive_does_not_take_others_with_it(
    stage: Stage,
) -> None:
    lucius, _ = await refused(stage)
    others = [await lucius.submit(number=n) for n in range(1, 10)]
    for job_id in others:
        assert (await stage.finished(job_id, within=5)).state is JobState.SUCCEEDED


@staged
async def test_fm_020_recover_a_directive_that_is_taken_later_succeeds_with_the_next_attempt(
    stage: Stage,
) -> None:
    _, job_id = await refused(stage)
    await stage.until(job_id, lambda job: job.steps[0].used == 1)
    stage.bus.refuse = nothing
    job = await stage.finished(job_id)
    assert job.state is JobState.SUCCEEDED
    assert job.steps[0].executions[-1].attempt_no == 2


@staged
async def test_fm_020_recover_a_job_that_failed_for_it_is_redriven(stage: Stage) -> None:
    lucius, job_id = await refused(stage)
    await stage.finished(job_id)
    stage.bus.refuse = nothing
    again = await stage.finished((await lucius.engine.redrive(job_id)).job_id, within=DAY)
    assert again.state is JobState.SUCCEEDED
    old = await stage.until(job_id, lambda job: job.redriven_by is not None, within=60)
    assert not old.in_dlq
