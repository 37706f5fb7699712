"""An operator ends a backoff; a resume keeps none; every order says who gave it and why."""

import pytest

from lucius.core import control
from lucius.core.decide import decide, submit
from lucius.core.effects import Outcome
from lucius.core.inputs import (
    CancelRequested,
    Dismissed,
    Input,
    PauseRequested,
    ResumeRequested,
    RetryRequested,
)
from lucius.core.job import JobState, StepState
from tests.core.explore.configurations import small_plan
from tests.core.explore.world import NOW
from tests.core.story import Story

RETRY = RetryRequested(by="anna", reason="the index is back")


def in_backoff(*stages: int) -> Story:
    story = Story(small_plan(*stages or (0, 1))).started()
    story.fail()
    assert story.step().state is StepState.FAILED_RETRY
    return story


def test_a_backoff_ends_and_the_step_is_wanted_now() -> None:
    story = in_backoff()
    assert story.give(RETRY) is Outcome.APPLIED
    assert story.step().held
    assert story.step().retry_at is None
    assert story.step().used == 1, "the attempts that are used up stay so"


def test_retrying_where_nothing_waits_for_a_backoff_changes_nothing() -> None:
    story = Story().started()
    before = story.job
    assert story.give(RETRY) is Outcome.ALREADY
    assert story.job is before


@pytest.mark.parametrize(
    ("order", "code"),
    [
        (PauseRequested(), "JOB_PAUSED"),
        (CancelRequested(immediate=True), "JOB_TERMINAL"),
    ],
)
def test_a_job_that_starts_nothing_is_not_retried(order: Input, code: str) -> None:
    story = in_backoff()
    story.give(order)
    decision = decide(story.job, RETRY, NOW)
    assert (decision.outcome, decision.code) == (Outcome.REJECTED, code)


def test_a_resume_keeps_no_old_backoff() -> None:
    story = in_backoff()
    story.give(PauseRequested())
    assert story.job.state is JobState.PAUSED
    story.give(ResumeRequested())
    assert story.step().held
    assert story.job.retry_at is None


def test_without_ending_backoffs_a_resume_would_wait_them_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(control, "_end_backoffs", lambda turn: None)
    story = in_backoff()
    story.give(PauseRequested())
    story.give(ResumeRequested())
    assert story.step().state is StepState.FAILED_RETRY
    assert story.job.retry_at is not None


ORDERS = [
    PauseRequested(by="anna", reason="look first"),
    CancelRequested(by="anna", reason="look first"),
    RetryRequested(by="anna", reason="look first"),
]


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: str(order.kind))
def test_the_event_of_an_order_says_who_gave_it_and_why(order: Input) -> None:
    (event,) = decide(in_backoff().job, order, NOW).events
    assert event.data == {"by": "anna", "reason": "look first"}


def test_the_event_of_a_resume_and_of_a_dismissal_says_so_too() -> None:
    story = in_backoff()
    story.give(PauseRequested())
    (resumed,) = decide(story.job, ResumeRequested(by="anna"), NOW).events
    assert resumed.data == {"by": "anna"}
    story = Story(small_plan(0)).started()
    story.fail(final=True)
    (dismissed,) = decide(story.job, Dismissed(by="anna", reason="a duplicate"), NOW).events
    assert dismissed.data == {"dismissed": True, "by": "anna", "reason": "a duplicate"}


def test_the_first_event_of_a_redrive_says_who_asked_for_it() -> None:
    (event,) = submit(small_plan(0), NOW, {"by": "anna"}).events
    assert event.data == {"by": "anna"}
