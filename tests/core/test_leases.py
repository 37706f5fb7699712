"""Leases that end without a result: given back, lost with their process, or run out while it stood still."""

from datetime import timedelta

import pytest

from lucius.core.effects import Outcome
from lucius.core.inputs import BusRestarted, EntryReleased, Ticked
from lucius.core.job import AbortReason, JobState, StepState
from lucius.core.plan import RetryPolicy
from tests.core.explore.configurations import small_plan
from tests.core.story import Story

SECONDS = timedelta(seconds=1)


def test_two_leases_given_back_are_free_and_each_more_uses_an_attempt_with_its_wait() -> None:
    story = Story(small_plan(0, attempts=3))
    for number in range(2):
        story.give_back_after_release(f"free-{number}")
        assert story.step().held
    for used, wait in ((1, 30), (2, 120)):
        story.give_back_after_release(f"charged-{used}")
        assert (story.step().state, story.step().used) == (StepState.FAILED_RETRY, used)
        assert story.due_in == wait * SECONDS
        story.tick_due()
    story.give_back_after_release("last")
    assert story.job.state is JobState.FAILED_FINAL
    assert story.job.fault is not None
    assert story.job.fault.code == "LEASE_RETURNED"
    assert "5 times" in story.job.fault.message
    assert [e.attempt_no for e in story.step().executions] == [1, 1, 1, 2, 3]


def test_a_lease_given_back_for_the_third_time_is_still_taken_from_a_service_that_drains() -> None:
    story = Story()
    for number in range(3):
        assert story.give_back_after_release(f"lease-{number}") is Outcome.APPLIED
    assert story.events[-1].data == {
        "fault": "LEASE_RETURNED",
        "message": "the lease of this step was given back 3 times; 2 are free",
    }


# -- a process that dies, or stands still ----------------------------------------------------


def died(story: Story) -> Story:
    story.started().give(BusRestarted("worker"))
    return story


def test_the_first_death_at_work_is_free_and_each_more_uses_an_attempt() -> None:
    story = died(Story(small_plan(0, attempts=3)))
    assert (story.step().held, story.step().used, story.step().deaths) == (True, 0, 1)
    for used in (1, 2):
        died(story)
        assert (story.step().state, story.step().used) == (StepState.FAILED_RETRY, used)
        story.tick_due()
    died(story)
    assert story.job.state is JobState.FAILED_FINAL
    assert story.job.fault is not None
    assert story.job.fault.code == "PROCESS_DIED"
    assert story.lease() == ("a", 3, "a4")
    assert {run.reason for run in story.step().executions} == {AbortReason.PROCESS_DIED}


def test_what_died_together_waits_for_different_times() -> None:
    """One of them may be the cause: the others should not meet it again."""
    waits = set()
    for number in range(5):
        story = died(Story())
        story.give(EntryReleased("a", f"lease-{number}"))
        story.ack()
        story.give(BusRestarted("worker"))
        assert 30 * SECONDS <= story.due_in < 60 * SECONDS
        waits.add(story.due_in)
    assert len(waits) == 5


@pytest.mark.parametrize("acknowledged", [False, True])
def test_a_lease_that_ran_out_while_nobody_could_be_heard_begins_anew(acknowledged: bool) -> None:
    story = Story().started() if acknowledged else Story().sent()
    policy = RetryPolicy()
    story.now = story.job.due_at or story.now
    story.give(Ticked(deaf_until=story.now))
    assert story.step().used == 0
    assert story.due_in == (policy.lease if acknowledged else policy.ack_timeout)
    assert not story.last.events
    woken_at = story.now
    story.now += story.due_in
    story.give(Ticked(deaf_until=woken_at))
    assert story.step().used == 1, "it could be heard since then"
