"""A turn writes on drafts, never on the records of its job."""

from lucius.core.inputs import Kind
from lucius.core.job import EntryState, JobState, StepState
from lucius.core.turn import Turn
from tests.core.explore.world import LATER
from tests.core.story import Story


def test_a_turn_writes_on_copies_and_only_on_one_of_each() -> None:
    story = Story().started()
    job = story.job
    turn = Turn(job, Kind.TICK, LATER)
    assert not turn.changed
    for own in (turn.own_step, turn.own_entry, turn.own_execution):
        assert own(0) is own(0)
    assert turn.own_job() is turn.own_job()
    assert turn.steps[0] is not job.steps[0]
    assert turn.steps[0].entry is not job.steps[0].entry
    assert turn.changed
    turn.own_entry(0).state, turn.own_step(0).state = EntryState.HELD, StepState.PENDING
    turn.own_job().state = JobState.PAUSED
    assert (turn.state, turn.entry(0).state) == (JobState.PAUSED, EntryState.HELD), "both are seen"
    assert story.states()[:2] == (JobState.IN_PROGRESS, StepState.IN_PROGRESS)
