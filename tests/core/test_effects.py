"""What a job owes after its decisions: webhooks, the link of a redrive, and repair after a restart."""

from dataclasses import replace
from datetime import timedelta

import pytest

from lucius.core.effects import LinkRedrive, NotifyClient, Outcome, PublishDirective
from lucius.core.inputs import (
    BusRestarted,
    CancelRequested,
    Dismissed,
    EffectSettled,
    Redriven,
    ResendRequested,
)
from lucius.core.job import JobState, Phase, StepState, phase_of
from lucius.core.plan import Carried, Plan
from lucius.core.retry import EFFECT_ATTEMPTS, effect_backoff
from lucius.core.wire import directive, effect_of
from tests.core.explore.configurations import small_plan
from tests.core.story import Story


def ended(webhooks: int = 1) -> Story:
    story = Story(small_plan(0, webhooks=webhooks)).started()
    story.succeed()
    return story


def test_every_webhook_is_owed_once_the_job_ends() -> None:
    story = ended(webhooks=2)
    assert story.effects == [
        NotifyClient("notify-0", "https://client.example/0"),
        NotifyClient("notify-1", "https://client.example/1"),
    ]
    assert [owed.owed_id for owed in story.job.owed] == ["notify-0", "notify-1"]
    assert story.due_in == effect_backoff(1)


@pytest.mark.parametrize("end", ["failed", "cancelled"])
def test_a_job_that_ends_badly_owes_its_webhooks_too(end: str) -> None:
    story = Story(small_plan(0, webhooks=1)).started()
    if end == "failed":
        story.fail(final=True)
    else:
        story.give(CancelRequested(immediate=True))
    assert len(story.job.owed) == 1


def test_a_lost_notification_is_sent_again_with_growing_waits() -> None:
    story = ended()
    for attempt in (2, 3, 4):
        story.tick_due()
        assert story.effects == [NotifyClient("notify-0", "https://client.example/0")]
        assert story.due_in == effect_backoff(attempt)
    assert effect_backoff(99) == timedelta(hours=1)


def test_a_failed_effect_stays_owed_until_it_is_given_up() -> None:
    story = ended()
    story.give(EffectSettled("notify-0", performed=False))
    assert len(story.job.owed) == 1
    for _ in range(EFFECT_ATTEMPTS - 1):
        story.tick_due()
    story.give(EffectSettled("notify-0", performed=False))
    assert not story.job.owed
    assert story.events[-1].data is not None
    assert story.events[-1].data["performed"] is False


def test_a_client_that_refuses_for_good_is_not_told_again() -> None:
    story = ended()
    story.give(EffectSettled("notify-0", performed=False, final=True))
    assert not story.job.owed


# -- redrive ---------------------------------------------------------------------------------


def redrive() -> Plan:
    return replace(
        small_plan(0, 1),
        redrive_of="job-0",
        root_job_id="job-0",
        carried={"a": Carried("kept", "job-0")},
    )


def test_a_redrive_starts_at_the_failed_step_and_keeps_earlier_results() -> None:
    story = Story(redrive())
    assert story.states() == (
        JobState.DISPATCHING,
        StepState.SUCCEEDED,
        StepState.DISPATCHING,
    )
    assert story.step("a").result_ref == "kept"
    story.started("b")
    body = directive(story.job, *story.lease("b"))
    assert body["previous"] == {"a": {"uri": "kept"}}
    assert body["effect_key"].startswith("job-0:b:")


def test_a_redrive_owes_the_link_to_the_job_it_came_from() -> None:
    story = Story(redrive())
    assert story.effects == [LinkRedrive("redrive", "job-0")]
    story.tick_due()
    assert story.effects == [LinkRedrive("redrive", "job-0")]
    story.give(EffectSettled("redrive", performed=True))
    assert not story.job.owed


def test_a_redrive_that_succeeds_has_succeeded_by_its_executions_too() -> None:
    story = Story(redrive())
    story.started("b").succeed("b")
    assert story.job.state is JobState.SUCCEEDED
    assert phase_of(story.job) is Phase.SUCCEEDED


def test_a_redriven_or_dismissed_job_leaves_the_dead_letters() -> None:
    failed = Story(small_plan(0)).started()
    assert failed.give(Dismissed()) is Outcome.REJECTED
    failed.fail(final=True)
    assert failed.job.in_dlq
    redriven = Story(job=failed.job)
    assert redriven.give(Redriven("job-2")) is Outcome.APPLIED
    assert not redriven.job.in_dlq
    assert redriven.give(Redriven("job-3")) is Outcome.ALREADY
    assert redriven.job.redriven_by == "job-2"
    dismissed = Story(job=failed.job)
    assert dismissed.give(Dismissed()) is Outcome.APPLIED
    assert not dismissed.job.in_dlq
    assert dismissed.give(Dismissed()) is Outcome.ALREADY


def test_only_a_job_that_ended_badly_can_be_redriven() -> None:
    running = Story().started()
    assert running.give(Redriven("job-2")) is Outcome.REJECTED
    assert running.last.code == "NOT_REDRIVABLE"
    cancelled = Story()
    cancelled.give(CancelRequested())
    assert cancelled.give(Redriven("job-2")) is Outcome.APPLIED


# -- a volatile bus --------------------------------------------------------------------------


def test_after_a_restart_a_sent_directive_is_published_again_with_a_new_ack_clock() -> None:
    story = Story().sent()
    story.wait(seconds=20).give(BusRestarted("local"))
    assert story.effects == [PublishDirective("a", 1, "a1")]
    assert story.due_in == timedelta(seconds=30)
    assert story.step().state is StepState.AWAITING_ACK


def test_why_a_client_could_not_be_told_is_kept_with_the_job_until_it_was() -> None:
    story = ended()
    story.give(EffectSettled("notify-0", performed=False, reason="it answered 503"))
    assert [(owed.attempts, owed.fault) for owed in story.job.owed] == [(1, "it answered 503")]
    version = story.job.version
    story.give(EffectSettled("notify-0", performed=False, reason="it answered 503"))
    assert story.job.version == version, "the same again is not saved"
    story.give(EffectSettled("notify-0", performed=True))
    assert not story.job.owed


def test_webhooks_are_sent_again_by_an_order_also_those_that_were_given_up() -> None:
    story = ended(webhooks=2)
    story.give(EffectSettled("notify-0", performed=False, final=True, reason="gone"))
    story.give(EffectSettled("notify-1", performed=True))
    assert not story.job.owed
    story.give(ResendRequested("anna", "it is back"))
    assert [owed.owed_id for owed in story.job.owed] == ["notify-0", "notify-1"]
    assert story.effects == [
        NotifyClient("notify-0", "https://client.example/0"),
        NotifyClient("notify-1", "https://client.example/1"),
    ]
    assert story.events[-1].data == {"by": "anna", "reason": "it is back"}
    story.give(EffectSettled("notify-1", performed=True))
    story.give(ResendRequested("anna"))
    assert [owed.owed_id for owed in story.job.owed] == ["notify-0"], "that one alone is owed"


def test_a_job_without_webhooks_has_nothing_to_send_again() -> None:
    assert ended(webhooks=0).give(ResendRequested()) is Outcome.REJECTED
    live = Story(small_plan(0, webhooks=1)).started()
    assert live.give(ResendRequested()) is Outcome.REJECTED


def test_an_output_that_a_redrive_has_moved_is_another_effect_of_the_last_step_alone() -> None:
    plan = small_plan(0, 1)
    moved = replace(plan, output_ref="s3://b/elsewhere", moved_output=True)
    first, last = (step.step_id for step in plan.steps)
    assert effect_of(plan, first, {}) == effect_of(moved, first, {})
    assert effect_of(plan, last, {}) != effect_of(moved, last, {})
