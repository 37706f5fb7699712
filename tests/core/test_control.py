"""Cancel, pause and resume: from every situation, and against each other."""

from datetime import timedelta

import pytest

from lucius.core.effects import Outcome
from lucius.core.inputs import (
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


def test_a_cancelled_job_keeps_the_result_of_the_step_that_finished() -> None:
    story = Story().started()
    story.give(CANCEL)
    assert story.succeed() is Outcome.APPLIED
    assert story.states() == (J.CANCELLED, S.SUCCEEDED, S.CANCELLED)
    assert story.step().result_ref == "result"
    assert story.job.final_output is None


def test_a_lease_that_runs_out_ends_a_cancelling_job() -> None:
    story = Story(small_plan(0)).started()
    story.give(CANCEL)
    assert story.due_in == timedelta(minutes=15)
    story.tick_due()
    assert story.states() == (J.CANCELLED, S.CANCELLED)


# -- pause and resume ------------------------------------------------------------------------


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
