"""A directive that nobody takes is written down, and moves nothing: the ACK clock rules."""

from lucius.core.effects import Outcome
from lucius.core.inputs import DirectiveUnclaimed
from lucius.core.job import AbortReason, JobState, StepState
from tests.core.story import Story


def unclaimed(story: Story, **other: object) -> Outcome:
    step_id, attempt_no, lease_id = story.lease()
    given = {"step_id": step_id, "attempt_no": attempt_no, "lease_id": lease_id, **other}
    return story.give(DirectiveUnclaimed(**given))  # type: ignore[arg-type]


def test_it_is_written_down_with_its_service_and_topic() -> None:
    story = Story().sent()
    due_at, expires_at = story.job.due_at, story.step().executions[-1].lease_expires_at
    story.wait(seconds=1)
    assert unclaimed(story) is Outcome.APPLIED
    event, execution = story.events[-1], story.step().executions[-1]
    assert (event.type, event.step_id, event.attempt_no) == ("directive_unclaimed", "a", 1)
    planned, routing = story.job.plan.steps[0], story.job.plan.routing
    assert event.data == {"service": planned.service, "topic": routing.topic}
    assert not event.moves
    assert execution.unclaimed_at == story.now
    assert (story.job.due_at, execution.lease_expires_at) == (due_at, expires_at)


def test_once_an_attempt() -> None:
    story = Story().sent()
    unclaimed(story)
    assert unclaimed(story) is Outcome.DUPLICATE
    assert not story.last.changed


def test_it_may_overtake_the_record_of_its_publish() -> None:
    story = Story()
    story.release()
    assert unclaimed(story) is Outcome.APPLIED
    story.confirm()
    assert story.step().state is StepState.AWAITING_ACK


def test_the_ack_clock_ends_the_attempt_and_the_next_one_begins_unmarked() -> None:
    story = Story().sent()
    unclaimed(story)
    story.tick_due()
    assert story.step().executions[-1].reason is AbortReason.ACK_TIMEOUT
    assert story.step().state is StepState.FAILED_RETRY
    story.tick_due()
    story.sent()
    assert story.step().executions[-1].unclaimed_at is None


def test_a_service_that_takes_it_after_all_is_at_work() -> None:
    """A volatile bus that restarted was given the same attempt again."""
    story = Story().sent()
    unclaimed(story)
    story.ack()
    assert story.job.state is JobState.IN_PROGRESS


def test_what_no_longer_waits_for_its_ack_is_not_concerned() -> None:
    story = Story().started()
    assert unclaimed(story) is Outcome.ALREADY
    other = Story().sent()
    assert unclaimed(other, lease_id="of another attempt") is Outcome.ALREADY
    assert not other.last.changed


def test_a_step_that_the_job_does_not_have_is_refused() -> None:
    story = Story().sent()
    assert unclaimed(story, step_id="nope") is Outcome.REJECTED
    assert story.last.code == "UNKNOWN_STEP"
