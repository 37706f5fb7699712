"""Steps that run together: the next stage waits for all, and one failure lets the others finish."""

from lucius.core.inputs import PauseRequested
from lucius.core.job import ExecutionState, JobState, Phase, StepState, phase_of
from lucius.core.plan import Plan
from tests.core.explore.configurations import small_plan
from tests.core.story import Story

J, S = JobState, StepState


def diamond() -> Plan:
    return small_plan(0, 0, 1)


def test_a_retry_in_one_step_leaves_the_other_alone() -> None:
    story = Story(diamond()).started("a").started("b")
    story.fail("a")
    assert story.states() == (J.IN_PROGRESS, S.FAILED_RETRY, S.IN_PROGRESS, S.PENDING)
    story.tick_due()
    assert story.states() == (J.IN_PROGRESS, S.DISPATCHING, S.IN_PROGRESS, S.PENDING)


def test_a_committed_step_is_done_only_when_the_next_stage_is_out() -> None:
    story = Story(diamond()).started("a")
    story.succeed("a")
    story.started("b")
    assert story.step("a").executions[-1].state is ExecutionState.COMMITTED
    story.succeed("b")
    story.started("c")
    assert story.step("a").executions[-1].state is ExecutionState.DONE


def test_after_a_final_failure_the_other_may_finish_and_nothing_starts() -> None:
    story = Story(diamond()).started("a").started("b")
    story.fail("a", final=True)
    assert story.states() == (J.IN_PROGRESS, S.FAILED_FINAL, S.IN_PROGRESS, S.PENDING)
    assert phase_of(story.job) is Phase.RUNNING
    story.succeed("b", ref="kept")
    assert story.states() == (J.FAILED_FINAL, S.FAILED_FINAL, S.SUCCEEDED, S.PENDING)
    assert story.step("b").result_ref == "kept"
    assert story.job.fault == story.step("a").fault
    assert phase_of(story.job) is Phase.FAILED


def test_a_retry_that_may_not_start_is_not_due_while_the_job_pauses() -> None:
    """Otherwise a reconciler would find the job due, and do nothing, for ever."""
    story = Story(diamond()).started("a").started("b")
    story.fail("a")
    story.give(PauseRequested())
    retry_at = story.step("a").retry_at
    assert retry_at is not None
    assert story.job.due_at is not None
    assert story.job.due_at > retry_at
