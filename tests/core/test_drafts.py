"""A draft names fields of its record, of the same type; what no decision changes is not among them."""

from dataclasses import fields
from typing import get_type_hints

import pytest

from lucius.core.drafts import EntryDraft, ExecutionDraft, JobDraft, StepDraft
from lucius.core.inputs import Kind
from lucius.core.job import Entry, Execution, Job, Step
from lucius.core.states import EntryState, JobState, StepState
from lucius.core.turn import Turn
from tests.core.explore.world import LATER
from tests.core.story import Story

UNCHANGING = [
    (EntryDraft, Entry, {"created_at", "extra"}),
    (ExecutionDraft, Execution, {"exec_id", "attempt_no", "leased_at", "extra"}),
    (StepDraft, Step, {"extra"}),
    (JobDraft, Job, {"plan", "extra"}),
]


@pytest.mark.of_the_sources
@pytest.mark.parametrize(("draft", "record", "unchanging"), UNCHANGING)
def test_a_draft_is_its_record_without_what_never_changes(
    draft: type, record: type, unchanging: set[str]
) -> None:
    ours, theirs = get_type_hints(draft), get_type_hints(record)
    assert {name: theirs[name] for name in ours} == ours
    assert {field.name for field in fields(record)} - set(ours) == unchanging


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
