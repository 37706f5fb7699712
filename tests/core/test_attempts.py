"""Jobs on Temporal: nothing starts that their workflow has not asked for, and it is told of the rest."""

from dataclasses import replace
from datetime import timedelta

import pytest

from lucius.core.decide import next_attempts
from lucius.core.effects import Outcome, PublishDirective, SignalWorkflow, StartWorkflow, effect_of
from lucius.core.inputs import (
    AttemptRequested,
    BusRestarted,
    CancelRequested,
    EffectSettled,
    EntryReleased,
    PauseRequested,
    ResumeRequested,
    RetryRequested,
    Ticked,
)
from lucius.core.job import JobState, Owed, StepState
from lucius.core.plan import TEMPORAL, Sla
from lucius.core.retry import EFFECT_ATTEMPTS, OVERDUE
from lucius.engine.cache import left_to_owner
from tests.core.explore.configurations import small_plan
from tests.core.explore.world import NOW
from tests.core.story import Story

ASKED = Ticked(asked=True, told=True)


def story(*stages: int, attempts: int = 3) -> Story:
    plan = small_plan(*(stages or (0, 1)), attempts=attempts)
    return Story(replace(plan, engine=TEMPORAL))


def ask(told: Story, number: int = 1, lease: str = "", step_id: str = "a") -> Outcome:
    return told.give(AttemptRequested(step_id, number, lease or f"{step_id}-{number}"))


def begun(told: Story, number: int = 1, step_id: str = "a") -> Story:
    """Asked for, and the window has room."""
    assert ask(told, number, step_id=step_id) is Outcome.APPLIED
    told.give(EntryReleased(step_id, "unused", told=True))
    return told


def signals(told: Story) -> list[str]:
    return [e.signal for e in told.effects if isinstance(e, SignalWorkflow)]


def test_a_new_job_waits_for_its_workflow_and_owes_its_start() -> None:
    told = story()
    assert told.states() == (JobState.QUEUED, StepState.PENDING, StepState.PENDING)
    assert told.effects == [StartWorkflow("start")]
    assert [event.type for event in told.events] == ["submitted"]


def test_an_attempt_that_is_asked_for_is_held_under_the_lease_that_was_proposed() -> None:
    told = story()
    assert ask(told, lease="mine") is Outcome.APPLIED
    assert told.states() == (JobState.DISPATCHING, StepState.DISPATCHING, StepState.PENDING)
    assert told.step("a").asked_for
    told.give(EntryReleased("a", "another"))
    assert told.lease("a") == ("a", 1, "mine")
    assert signals(told) == ["step_released"]


def test_nobody_publishes_it_but_the_workflow() -> None:
    told = story()
    ask(told)
    told.give(EntryReleased("a", "x", told=True))
    assert told.effects == []


def test_the_first_that_a_workflow_asks_for_proves_that_it_was_started() -> None:
    asked, ticked = story(), story()
    ask(asked)
    ticked.give(ASKED)
    assert asked.job.owed == ticked.job.owed == ()


@pytest.mark.parametrize("released", [False, True])
def test_asking_again_changes_nothing(released: bool) -> None:
    told = story()
    ask(told)
    if released:
        told.give(EntryReleased("a", "x", told=True))
    before = told.job
    assert ask(told) is Outcome.ALREADY
    assert told.job is before


@pytest.mark.parametrize(("number", "step_id"), [(2, "a"), (1, "b")])
def test_what_is_not_next_is_stale(number: int, step_id: str) -> None:
    told = story()
    assert ask(told, number, step_id=step_id) is Outcome.STALE


def test_a_second_lease_of_an_attempt_that_is_out_is_stale() -> None:
    told = begun(story())
    assert ask(told, 1, "another") is Outcome.STALE


def test_a_job_of_the_other_engine_takes_no_attempt() -> None:
    told = Story(small_plan(0))
    told.sent().fail()
    told.wait(hours=1)
    assert told.give(AttemptRequested("a", 2, "lease")) is Outcome.STALE


def test_the_next_stage_waits_to_be_asked_for() -> None:
    told = begun(story())
    told.confirm()
    told.succeed()
    assert signals(told) == ["step_result"]
    assert told.step("b").state is StepState.PENDING
    assert [(n.step_id, n.attempt_no) for n in next_attempts(told.job)] == [("b", 1)]


def test_a_retry_is_asked_for_when_its_backoff_is_over() -> None:
    told = begun(story())
    told.confirm()
    told.ack()
    told.fail()
    assert ask(told, 2) is Outcome.STALE
    (following,) = next_attempts(told.job)
    assert following.at is not None
    told.now = following.at
    told.give(ASKED)
    assert told.step("a").state is StepState.FAILED_RETRY
    assert ask(told, 2) is Outcome.APPLIED
    assert told.step("a").state is StepState.DISPATCHING


def test_a_refused_publish_is_asked_for_again_as_the_next_attempt() -> None:
    told = begun(story())
    told.refuse()
    (following,) = next_attempts(told.job)
    assert following.attempt_no == 2
    assert following.at is not None
    told.now = following.at
    assert ask(told, 2, "second") is Outcome.APPLIED
    assert told.step("a").ready
    told.give(EntryReleased("a", "x", told=True))
    assert told.lease("a") == ("a", 2, "second")


def test_a_lease_that_was_given_back_repeats_its_number() -> None:
    told = begun(story())
    told.confirm()
    told.ack()
    told.give_back()
    assert signals(told) == ["step_returned"]
    assert told.step("a").state is StepState.PENDING
    assert ask(told, 1, "again") is Outcome.APPLIED


def test_only_the_workflows_timer_ends_a_lease() -> None:
    told = begun(story())
    told.confirm()
    told.wait(minutes=1).give(Ticked())
    assert told.step("a").state is StepState.AWAITING_ACK
    told.give(ASKED)
    assert told.step("a").state is StepState.FAILED_RETRY
    assert signals(told) == []


def test_a_timer_that_another_process_was_told_of_is_signalled() -> None:
    told = begun(story())
    told.confirm()
    told.wait(minutes=1).give(Ticked(asked=True))
    assert signals(told) == ["step_timeout"]


def test_a_workflow_that_is_late_is_reminded_now_and_then() -> None:
    told = begun(story())
    told.confirm()
    expires_at = told.step("a").executions[-1].lease_expires_at
    assert expires_at is not None
    assert told.job.due_at == expires_at + OVERDUE
    told.tick_due()
    assert signals(told) == ["wake"]
    (owed,) = told.job.owed
    told.give(EffectSettled(owed.owed_id, performed=True))
    assert told.job.due_at == told.now + OVERDUE


def test_signals_are_sent_until_they_are_delivered_and_leave_no_event() -> None:
    told = begun(story())
    told.confirm()
    told.ack()
    events = len(told.events)
    for _ in range(EFFECT_ATTEMPTS + 3):
        told.tick_due()
        assert signals(told) == ["step_ack"]
    (owed,) = told.job.owed
    told.give(EffectSettled(owed.owed_id, performed=False))
    assert told.job.owed
    told.give(EffectSettled(owed.owed_id, performed=True))
    assert told.job.owed == ()
    assert len(told.events) == events


def test_a_newer_signal_takes_the_place_of_one_that_is_owed() -> None:
    told = begun(story())
    told.ack()
    told.succeed()
    assert [owed.target for owed in told.job.owed] == ["step_result a"]


def test_control_is_signalled() -> None:
    told = begun(story())
    told.confirm()
    told.give(PauseRequested())
    assert signals(told) == ["pause"]
    told.give(ResumeRequested())
    assert signals(told) == ["resume"]
    told.give(CancelRequested())
    assert signals(told) == ["cancel"]


def test_a_job_that_is_cancelled_before_its_workflow_began_owes_no_start() -> None:
    told = story()
    told.give(CancelRequested())
    assert told.job.state is JobState.CANCELLED
    assert [owed.kind for owed in told.job.owed] == ["signal_workflow"]


def test_a_paused_job_starts_nothing_and_a_resumed_one_what_it_was_about_to() -> None:
    told = story()
    ask(told)
    told.give(PauseRequested())
    assert told.states() == (JobState.PAUSED, StepState.PENDING, StepState.PENDING)
    assert list(next_attempts(told.job)) == []
    assert ask(told, 1, "other") is Outcome.STALE
    told.give(ResumeRequested())
    assert ask(told, 1, "other") is Outcome.APPLIED


def test_what_a_process_without_the_lane_holds_is_due_at_once_and_taken_up() -> None:
    told = story()
    ask(told)
    left = left_to_owner(None, told.last)
    assert left.job.due_at == NOW
    told.job = left.job
    told.give(Ticked())
    assert told.step("a").ready


def test_a_bus_that_forgot_is_published_to_again() -> None:
    told = begun(story())
    told.confirm()
    told.give(BusRestarted("worker"))
    assert told.effects == [PublishDirective("a", 1, "a-1")]


def test_an_effect_of_a_newer_version_is_left_alone() -> None:
    unknown = Owed("x", "of_tomorrow", "https://client.example", 1, NOW + timedelta(seconds=1))
    assert effect_of(unknown) is None


@pytest.mark.parametrize("paused", [False, True])
def test_a_workflow_that_has_run_too_long_fails_its_job(paused: bool) -> None:
    plan = small_plan(0, 1, sla=Sla(limit=timedelta(minutes=1)))
    told = begun(Story(replace(plan, engine=TEMPORAL)))
    if paused:
        told.give(PauseRequested())
    told.wait(seconds=59).give(ASKED)
    assert not told.job.terminal
    told.wait(seconds=1).give(ASKED)
    assert told.job.state is JobState.FAILED_FINAL
    assert told.job.fault is not None
    assert told.job.fault.code == "WORKFLOW_TIMEOUT"


def test_what_is_being_cancelled_ends_as_cancelled() -> None:
    plan = small_plan(0, sla=Sla(limit=timedelta(minutes=1)))
    told = begun(Story(replace(plan, engine=TEMPORAL)))
    told.confirm()
    told.give(CancelRequested())
    told.wait(minutes=2).give(ASKED)
    assert told.job.state is JobState.CANCELLED


def test_a_retry_lets_the_workflow_ask_at_once_and_tells_it() -> None:
    told = begun(story())
    told.fail()
    assert ask(told, 2) is Outcome.STALE
    assert told.give(RetryRequested(by="someone")) is Outcome.APPLIED
    assert signals(told) == ["wake"]
    assert told.step("a").state is StepState.FAILED_RETRY
    assert [each.at for each in next_attempts(told.job)] == [NOW]
    assert ask(told, 2) is Outcome.APPLIED
