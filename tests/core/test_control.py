"""Cancel, pause and resume: from every situation, and against each other."""

from datetime import timedelta

import pytest

from lucius.core.effects import Outcome
from lucius.core.inputs import (
    BusRestarted,
    CancelRequested,
    PauseRequested,
    ResumeRequested,
)
from lucius.core.job import EntryState, JobState, Phase, StepState, phase_of
from tests.core.explore.configurations import small_plan
from tests.core.story import Story

J, S = JobState, StepState
CANCEL, PAUSE, RESUME = CancelRequested(), PauseRequested(), ResumeRequested()


# -- cancel ----------------------------------------------------------------------------------


def test_cancel_with_nothing_released_is_immediate_and_withdraws_the_entry() -> None:
    story = Story()
    assert story.give(CANCEL) is Outcome.APPLIED
    assert story.states() == (J.CANCELLED, S.CANCELLED, S.CANCELLED)
    entry = story.step().entry
    assert entry is not None
    assert entry.state is EntryState.FAILED_FINAL
    assert phase_of(story.job) is Phase.FAILED
    assert story.job.due_at is None


def test_cancel_waits_for_the_step_that_is_out_and_drops_the_rest() -> None:
    story = Story().started()
    story.give(CANCEL)
    assert story.states() == (J.CANCELLING, S.IN_PROGRESS, S.CANCELLED)
    assert story.job.cancel_requested_at is not None


def test_a_cancelled_job_keeps_the_result_of_the_step_that_finished() -> None:
    story = Story().started()
    story.give(CANCEL)
    assert story.succeed() is Outcome.APPLIED
    assert story.states() == (J.CANCELLED, S.SUCCEEDED, S.CANCELLED)
    assert story.step().result_ref == "result"
    assert story.job.final_output is None


def test_a_job_whose_last_step_succeeds_after_cancel_is_cancelled() -> None:
    story = Story(small_plan(0)).started()
    story.give(CANCEL)
    story.succeed()
    assert story.states() == (J.CANCELLED, S.SUCCEEDED)
    assert phase_of(story.job) is Phase.FAILED


@pytest.mark.parametrize("final", [False, True])
def test_a_failure_ends_a_cancelling_job_without_a_retry(final: bool) -> None:
    story = Story(small_plan(0)).started()
    story.give(CANCEL)
    story.fail(final=final)
    assert story.states() == (J.CANCELLED, S.FAILED_FINAL if final else S.CANCELLED)


def test_a_lease_that_runs_out_ends_a_cancelling_job() -> None:
    story = Story(small_plan(0)).started()
    story.give(CANCEL)
    assert story.due_in == timedelta(minutes=15)
    story.tick_due()
    assert story.states() == (J.CANCELLED, S.CANCELLED)


def test_a_publish_of_unknown_outcome_is_settled_before_the_job_is_cancelled() -> None:
    story = Story(small_plan(0))
    story.release()
    story.give(CANCEL)
    assert story.states() == (J.CANCELLING, S.DISPATCHING)
    story.tick_due()
    assert len(story.effects) == 1
    story.refuse()
    assert story.states() == (J.CANCELLED, S.CANCELLED)


def test_a_lease_given_back_ends_a_cancelling_job() -> None:
    story = Story(small_plan(0)).started()
    story.give(CANCEL)
    story.give_back()
    assert story.job.state is J.CANCELLED


def test_a_restart_ends_a_cancelling_job_whose_service_died() -> None:
    story = Story(small_plan(0)).started()
    story.give(CANCEL)
    story.give(BusRestarted("worker"))
    assert story.job.state is J.CANCELLED


@pytest.mark.parametrize("situation", ["held", "released", "sent", "started", "backoff"])
def test_immediate_cancel_ends_the_job_from_anywhere(situation: str) -> None:
    story = Story()
    if situation != "held":
        story.release()
    if situation in ("sent", "started", "backoff"):
        story.confirm()
    if situation == "started":
        story.ack()
    if situation == "backoff":
        story.tick_due()
    assert story.give(CancelRequested(immediate=True)) is Outcome.APPLIED
    assert story.states() == (J.CANCELLED, S.CANCELLED, S.CANCELLED)


def test_cancel_during_a_backoff_or_a_pause_is_immediate() -> None:
    waiting = Story().started()
    waiting.fail()
    waiting.give(CANCEL)
    assert waiting.job.state is J.CANCELLED
    paused = Story()
    paused.give(PAUSE)
    paused.give(CANCEL)
    assert paused.job.state is J.CANCELLED
    assert paused.job.paused_at is None


# -- pause and resume ------------------------------------------------------------------------


def test_pause_takes_a_held_entry_back_at_no_cost_and_resume_starts_again() -> None:
    story = Story()
    story.give(PAUSE)
    assert story.states() == (J.PAUSED, S.PENDING, S.PENDING)
    assert story.step().used == 0
    story.give(RESUME)
    assert story.states() == (J.DISPATCHING, S.DISPATCHING, S.PENDING)
    assert "job PAUSED->QUEUED" in story.events[-1].moves
    story.release()
    assert story.lease() == ("a", 1, "a1")


def test_pause_lets_the_step_that_is_out_finish_and_starts_nothing_new() -> None:
    story = Story().started()
    story.give(PAUSE)
    assert story.job.state is J.PAUSING
    story.succeed()
    assert story.states() == (J.PAUSED, S.SUCCEEDED, S.PENDING)
    story.give(RESUME)
    assert story.states() == (J.IN_PROGRESS, S.SUCCEEDED, S.DISPATCHING)


def test_a_job_whose_last_step_ends_while_it_pauses_ends_too() -> None:
    good = Story(small_plan(0)).started()
    good.give(PAUSE)
    good.succeed()
    assert good.job.state is J.SUCCEEDED
    bad = Story(small_plan(0)).started()
    bad.give(PAUSE)
    bad.fail(final=True)
    assert bad.job.state is J.FAILED_FINAL


@pytest.mark.parametrize("how", ["failure", "ack timeout", "lease", "refused"])
def test_an_attempt_that_fails_while_pausing_waits_for_the_resume(how: str) -> None:
    story = Story()
    story.release()
    if how != "refused":
        story.confirm()
    if how in ("failure", "lease"):
        story.ack()
    story.give(PAUSE)
    if how == "failure":
        story.fail()
    elif how == "refused":
        story.refuse()
    else:
        story.tick_due()
    assert story.states() == (J.PAUSED, S.FAILED_RETRY, S.PENDING)
    story.wait(days=1).tick()
    assert story.step().state is S.FAILED_RETRY
    story.give(RESUME)
    story.release()
    assert story.lease() == ("a", 2, "a2")


def test_a_lease_given_back_while_pausing_is_dispatched_after_the_resume() -> None:
    story = Story().started()
    story.give(PAUSE)
    story.give_back()
    assert story.states() == (J.PAUSED, S.PENDING, S.PENDING)
    story.give(RESUME)
    assert story.states() == (J.IN_PROGRESS, S.DISPATCHING, S.PENDING)


def test_resume_while_pausing_goes_on_as_if_nothing_had_been() -> None:
    started = Story().started()
    started.give(PAUSE)
    started.give(RESUME)
    assert started.job.state is J.IN_PROGRESS
    sent = Story().sent()
    sent.give(PAUSE)
    sent.give(RESUME)
    assert sent.job.state is J.DISPATCHING


def test_pausing_keeps_a_backoff_and_a_late_success_counts_in_it() -> None:
    story = Story().started()
    story.tick_due()
    story.give(PAUSE)
    assert story.states() == (J.PAUSED, S.FAILED_RETRY, S.PENDING)
    assert story.succeed() is Outcome.APPLIED
    assert story.states() == (J.PAUSED, S.SUCCEEDED, S.PENDING)
    story.give(RESUME)
    assert story.states() == (J.IN_PROGRESS, S.SUCCEEDED, S.DISPATCHING)


def test_a_held_retry_that_is_paused_waits_no_longer_than_it_had_to() -> None:
    story = Story()
    story.release()
    story.refuse()
    ready_at = story.job.retry_at
    story.give(PAUSE)
    assert story.step().retry_at == ready_at
