"""Replies in any order: evidence implies, repetition is recognised, what comes too late is written down."""

import pytest

from lucius.core.effects import Outcome
from lucius.core.inputs import (
    AckReceived,
    EntryReleased,
    PublishConfirmed,
    ResultReceived,
    ResultStatus,
)
from lucius.core.job import EntryState, ExecutionState, JobState, Phase, StepState, phase_of
from tests.core.explore.configurations import small_plan
from tests.core.explore.fold import machines_of
from tests.core.story import Story


def test_three_steps_in_order_end_in_success_with_the_last_result_as_output() -> None:
    story = Story(small_plan(0, 1, 2))
    for step_id in "abc":
        story.started(step_id).succeed(step_id, ref=f"ref of {step_id}")
    assert story.job.state is JobState.SUCCEEDED
    assert story.job.final_output == "ref of c"
    assert [step.result_ref for step in story.job.steps] == ["ref of a", "ref of b", "ref of c"]
    assert phase_of(story.job) is Phase.SUCCEEDED


def test_where_the_last_step_names_no_output_the_job_claims_none() -> None:
    story = Story(small_plan(0)).started()
    story.succeed(ref=None)
    assert story.job.state is JobState.SUCCEEDED
    assert story.job.final_output is None


def test_final_output_is_absent_unless_the_job_succeeds() -> None:
    story = Story().started()
    story.succeed()
    story.started("b").fail("b", final=True)
    assert story.step("a").result_ref == "result"
    assert story.job.final_output is None


def test_an_ack_proves_that_the_directive_was_sent() -> None:
    story = Story()
    story.release()
    story.ack(worker="worker-7")
    assert story.events[-1].moves == (
        "entry a RELEASED->SENT",
        "step a DISPATCHING->AWAITING_ACK",
        "step a AWAITING_ACK->IN_PROGRESS",
        "execution a LEASED->IN_PROGRESS",
        "job DISPATCHING->IN_PROGRESS",
    )
    assert story.step().executions[-1].lease_owner == "worker-7"
    assert story.confirm() is Outcome.ALREADY


def test_a_result_proves_everything_before_it_in_one_decision() -> None:
    story = Story(small_plan(0))
    story.release()
    assert story.succeed() is Outcome.APPLIED
    assert story.events[-1].moves == (
        "entry a RELEASED->SENT",
        "step a DISPATCHING->AWAITING_ACK",
        "step a AWAITING_ACK->IN_PROGRESS",
        "execution a LEASED->IN_PROGRESS",
        "job DISPATCHING->IN_PROGRESS",
        "execution a IN_PROGRESS->COMMITTED",
        "step a IN_PROGRESS->SUCCEEDED",
        "execution a COMMITTED->DONE",
        "job IN_PROGRESS->SUCCEEDED",
    )


def test_committed_is_done_when_the_next_directive_is_out() -> None:
    story = Story().started()
    story.succeed()
    assert story.step("a").executions[-1].state is ExecutionState.COMMITTED
    story.release("b")
    assert story.step("a").executions[-1].state is ExecutionState.COMMITTED
    story.confirm("b")
    assert story.step("a").executions[-1].state is ExecutionState.DONE


@pytest.mark.parametrize("silence", ["ack", "lease"])
def test_a_success_during_the_backoff_of_a_timeout_counts(silence: str) -> None:
    story = Story().sent() if silence == "ack" else Story().started()
    story.tick_due()
    assert story.step().state is StepState.FAILED_RETRY
    assert story.succeed() is Outcome.APPLIED
    assert story.states() == (JobState.IN_PROGRESS, StepState.SUCCEEDED, StepState.DISPATCHING)
    execution = story.step().executions[-1]
    assert (execution.state, execution.reason) == (ExecutionState.COMMITTED, None)
    assert execution.started_at is not None
    assert story.job.first_ack_at is not None


def test_a_success_counts_while_the_next_attempt_is_only_held() -> None:
    story = Story().started()
    story.tick_due()
    story.tick_due()
    assert story.step().held
    assert story.succeed() is Outcome.APPLIED
    assert story.step().state is StepState.SUCCEEDED
    entry = story.step().entry
    assert entry is not None
    assert entry.state is EntryState.FAILED_FINAL


def test_a_success_of_an_old_lease_is_stale_once_the_next_is_released() -> None:
    story = Story().started()
    old = story.lease()
    story.tick_due()
    story.tick_due()
    story.release()
    before = machines_of(story.job)
    assert story.give(ResultReceived(*old, ResultStatus.SUCCEEDED)) is Outcome.STALE
    assert machines_of(story.job) == before
    assert story.events[-1].data == {"outcome": "stale", "status": "SUCCEEDED"}
    assert story.events[-1].lease_id == old[2]


@pytest.mark.parametrize("final", [False, True])
def test_a_failure_during_the_backoff_is_only_recorded(final: bool) -> None:
    story = Story().started()
    story.tick_due()
    before = story.step()
    assert story.fail(final=final) is Outcome.LATE
    assert story.step() == before
    assert story.succeed() is Outcome.APPLIED


def test_a_success_after_a_reported_failure_is_a_second_answer_and_does_not_count() -> None:
    story = Story().started()
    story.fail()
    assert story.succeed() is Outcome.DUPLICATE
    assert story.step().state is StepState.FAILED_RETRY


def test_repeated_replies_are_duplicates() -> None:
    story = Story().started()
    assert story.ack() is Outcome.DUPLICATE
    story.succeed()
    assert story.succeed() is Outcome.DUPLICATE
    assert story.fail() is Outcome.DUPLICATE
    assert story.ack() is Outcome.DUPLICATE
    assert story.give_back() is Outcome.LATE


def test_late_heartbeats_are_not_recorded_at_all() -> None:
    story = Story().started()
    story.tick_due()
    story.heartbeat()
    assert not story.last.changed


def test_an_unknown_step_is_rejected_with_a_code() -> None:
    story = Story().started()
    assert story.give(AckReceived("nowhere", 1, "a1")) is Outcome.REJECTED
    assert story.last.code == "UNKNOWN_STEP"
    assert story.give(EntryReleased("nowhere", "x")) is Outcome.REJECTED
    assert story.give(PublishConfirmed("nowhere", 1, "a1")) is Outcome.ALREADY
