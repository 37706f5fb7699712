"""Attempts, leases and waits: what uses an attempt up, what does not, and when the job is next due."""

from dataclasses import replace
from datetime import timedelta

import pytest

from lucius.core.effects import Outcome, PublishDirective
from lucius.core.inputs import Ticked
from lucius.core.job import AbortReason, EntryState, JobState, StepState
from lucius.core.plan import Plan, RetryPolicy
from lucius.core.retry import PUBLISH_GRACE, Track, backoff
from tests.core.explore.configurations import small_plan
from tests.core.story import FAILED, START, Story

SECONDS = timedelta(seconds=1)
MINUTES = timedelta(minutes=1)


def many_attempts() -> Plan:
    """More attempts than a list of waits has values."""
    return small_plan(0, attempts=5)


def waits(track: Track) -> list[timedelta]:
    return [backoff(RetryPolicy(), track, used) for used in (1, 2, 3, 4)]


def test_a_refused_publish_waits_30_seconds_2_minutes_10_minutes() -> None:
    assert waits(Track.PUBLISH) == [30 * SECONDS, 2 * MINUTES, 10 * MINUTES, 10 * MINUTES]


def test_a_missing_ack_waits_1_5_15_minutes() -> None:
    assert waits(Track.ACK) == [1 * MINUTES, 5 * MINUTES, 15 * MINUTES, 15 * MINUTES]


def test_a_failed_execution_waits_30_seconds_2_minutes_10_minutes() -> None:
    assert waits(Track.EXECUTION) == [30 * SECONDS, 2 * MINUTES, 10 * MINUTES, 10 * MINUTES]


def test_refused_publishes_keep_the_entry_pending_and_lease_it_anew() -> None:
    story = Story(many_attempts())
    for wait in (30, 120, 600):
        story.release()
        story.refuse()
        entry = story.step().entry
        assert entry is not None
        assert (entry.state, entry.lease_id) == (EntryState.HELD, None)
        assert story.step().state is StepState.DISPATCHING
        assert story.due_in == wait * SECONDS
        assert story.job.retry_at == story.job.due_at
        assert not story.step().ready
        story.tick_due()
        assert story.step().ready
    assert [e.attempt_no for e in story.step().executions] == [1, 2, 3]
    assert len({e.exec_id for e in story.step().executions}) == 3


def test_missing_acks_wait_and_dispatch_the_next_attempt_under_a_new_lease() -> None:
    story = Story(many_attempts())
    for wait in (60, 300, 900):
        story.sent()
        assert story.due_in == 30 * SECONDS
        story.tick_due()
        assert story.step().state is StepState.FAILED_RETRY
        assert story.step().executions[-1].reason is AbortReason.ACK_TIMEOUT
        assert story.due_in == wait * SECONDS
        story.tick_due()
        assert story.step().held
    story.release()
    assert story.lease() == ("a", 4, "a4")


def test_expired_leases_wait_on_the_execution_track() -> None:
    story = Story(many_attempts())
    for wait in (30, 120, 600):
        story.started()
        assert story.due_in == 15 * MINUTES
        story.tick_due()
        assert story.step().executions[-1].reason is AbortReason.LEASE_EXPIRED
        assert story.due_in == wait * SECONDS
        story.tick_due()


def test_retryable_failures_wait_on_the_execution_track() -> None:
    story = Story(many_attempts())
    for wait in (30, 120, 600):
        story.started().fail()
        assert story.step().fault == FAILED
        assert story.due_in == wait * SECONDS
        story.tick_due()


@pytest.mark.parametrize("how", ["refused", "ack", "lease", "failure"])
def test_three_attempts_in_all_on_every_track(how: str) -> None:
    story = Story(small_plan(0, attempts=3))
    for _ in range(3):
        story.release()
        if how == "refused":
            story.refuse()
        elif how == "ack":
            story.confirm()
            story.tick_due()
        elif how == "lease":
            story.ack()
            story.tick_due()
        else:
            story.fail()
        if not story.job.terminal:
            story.tick_due()
    assert story.states() == (JobState.FAILED_FINAL, StepState.FAILED_FINAL)
    assert story.step().attempt_no == story.step().used == 3
    assert story.step().executions[-1].final
    assert story.job.fault == story.step().fault
    assert story.job.due_at is None
    assert story.job.in_dlq


def test_a_publish_of_unknown_outcome_is_repeated_as_the_same_attempt() -> None:
    story = Story()
    story.release()
    first = story.effects
    assert first == [PublishDirective("a", 1, "a1")]
    for _ in range(5):
        assert story.due_in == PUBLISH_GRACE
        story.tick_due()
        assert story.effects == first
    assert story.step().used == 0
    assert not any(event.type == "tick" for event in story.events)


def test_heartbeats_extend_the_lease_and_leave_no_event() -> None:
    story = Story().started()
    events = len(story.events)
    for _ in range(3):
        story.wait(minutes=10)
        assert story.heartbeat() is Outcome.APPLIED
        assert story.due_in == 15 * MINUTES
    assert len(story.events) == events
    assert story.step().state is StepState.IN_PROGRESS


def test_a_heartbeat_after_the_lease_ran_out_revives_nothing() -> None:
    story = Story().started()
    story.tick_due()
    assert story.heartbeat() is Outcome.LATE
    assert story.step().state is StepState.FAILED_RETRY


def test_timeouts_are_those_of_the_step() -> None:
    plan = small_plan(0)
    policy = RetryPolicy(ack_timeout=5 * SECONDS, lease=7 * MINUTES, ack_backoff=(3 * SECONDS,))
    story = Story(replace(plan, steps=(replace(plan.steps[0], policy=policy),)))
    story.sent()
    assert story.due_in == 5 * SECONDS
    story.tick_due()
    assert story.due_in == 3 * SECONDS
    story.tick_due()
    story.started()
    assert story.due_in == 7 * MINUTES


def test_a_tick_before_anything_is_due_changes_nothing() -> None:
    story = Story().started()
    story.wait(minutes=14)
    story.tick()
    assert not story.last.changed


def test_a_clock_that_goes_back_is_not_believed() -> None:
    story = Story().started()
    at = story.job.updated_at
    story.now = START - timedelta(hours=3)
    story.succeed()
    assert story.job.updated_at == at
    assert story.events[-1].at == at
    story.now = START - timedelta(hours=3)
    story.release("b")
    assert story.job.updated_at == at
    assert story.job.due_at == at + PUBLISH_GRACE


# -- a service that is busy ------------------------------------------------------------------


def behind_others(story: Story) -> Ticked:
    return Ticked(queued=frozenset({story.lease()[2]}))


def test_a_directive_behind_others_keeps_its_attempt_and_its_ack_clock_starts_again() -> None:
    story = Story().sent()
    for _ in range(10):
        story.now = story.job.due_at or story.now
        assert story.give(behind_others(story)) is Outcome.APPLIED
        assert not story.last.events
        assert story.step().state is StepState.AWAITING_ACK
        assert story.due_in == RetryPolicy().ack_timeout
    assert story.step().used == 0


def test_it_waits_behind_others_for_four_leases_and_no_longer() -> None:
    story = Story().sent()
    story.now = START + 4 * RetryPolicy().lease - SECONDS
    story.give(behind_others(story))
    assert story.step().used == 0
    story.now += RetryPolicy().ack_timeout
    story.give(behind_others(story))
    assert story.step().used == 1
    assert story.step().executions[-1].reason is AbortReason.ACK_TIMEOUT


def test_another_lease_or_one_that_is_at_work_is_not_waited_for() -> None:
    story = Story().sent()
    story.now += RetryPolicy().ack_timeout
    story.give(Ticked(queued=frozenset({"another"})))
    assert story.step().used == 1
    working = Story().sent()
    working.ack()
    working.now += RetryPolicy().lease
    working.give(behind_others(working))
    assert working.step().executions[-1].reason is AbortReason.LEASE_EXPIRED
