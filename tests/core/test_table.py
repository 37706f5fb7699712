"""The tables are complete, and the moves that no small world makes are made here."""

from dataclasses import replace

import pytest

from lucius.core import decide as core
from lucius.core.effects import Outcome
from lucius.core.errors import IllegalMoveError
from lucius.core.inputs import (
    BusRestarted,
    CancelRequested,
    Dismissed,
    EntryReleased,
    Input,
    Kind,
    PauseRequested,
    Redriven,
    ResumeRequested,
    RetryRequested,
    Ticked,
)
from lucius.core.job import TERMINAL_JOB, EntryState, ExecutionState, Job, JobState, Step, StepState
from lucius.core.plan import Carried, Sla
from lucius.core.table import ENTRY, EXECUTION, JOB, MACHINES, STEP, Verdict, check_move
from tests.core.explore.configurations import small_plan
from tests.core.explore.world import LATER, NOW
from tests.core.story import Story


def test_every_state_has_a_row_and_every_row_a_cell_for_every_input() -> None:
    assert set(JOB) == set(JobState)
    assert set(STEP) == set(StepState)
    assert set(EXECUTION) == set(ExecutionState)
    assert set(ENTRY) == set(EntryState)
    for machine, rows in MACHINES.items():
        for state, cells in rows.items():
            assert set(cells) == set(Kind), f"{machine} {state}"


def test_a_cell_moves_somewhere_else_or_not_at_all() -> None:
    for rows in MACHINES.values():
        for state, cells in rows.items():
            for cell in cells.values():
                assert bool(cell.targets) == (cell.verdict is Verdict.MOVE)
                assert state not in cell.targets


@pytest.mark.parametrize("state", TERMINAL_JOB)
def test_a_terminal_job_has_no_way_out(state: JobState) -> None:
    assert all(cell.verdict is not Verdict.MOVE for cell in JOB[state].values())


def test_every_rejection_of_an_input_has_a_code() -> None:
    """There is no input that submits a job which exists, so nobody could be told a code for it."""
    for machine, rows in MACHINES.items():
        for state, cells in rows.items():
            for kind, cell in cells.items():
                rejects = cell.verdict is Verdict.REJECT
                coded = rejects and kind is not Kind.SUBMITTED
                assert (cell.outcome is Outcome.REJECTED) == rejects, f"{machine} {state} {kind}"
                assert (cell.code is not None) == coded, f"{machine} {state} {kind}"


ORDERS = (
    CancelRequested(),
    PauseRequested(),
    ResumeRequested(),
    RetryRequested(),
    Dismissed(),
    Redriven("other"),
)
ANSWERED = [
    (state, received)
    for state in JobState
    for received in (*ORDERS, EntryReleased("a", "lease"))
    if JOB[state][received.kind].outcome is not None
]


@pytest.mark.parametrize(("state", "received"), ANSWERED)
def test_what_the_state_alone_decides_is_answered_by_the_table_and_by_no_handler(
    state: JobState, received: Input, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(core, "Turn")
    job = replace(queued().job, state=state)
    cell = JOB[state][received.kind]
    decision = core.decide(job, received, NOW)
    assert (decision.outcome, decision.code) == (cell.outcome, cell.code)
    assert decision.job is job
    assert not decision.changed


def test_both_answers_of_the_table_are_given_somewhere() -> None:
    given = {JOB[state][received.kind].outcome for state, received in ANSWERED}
    assert given == {Outcome.ALREADY, Outcome.REJECTED}


def test_a_move_that_is_not_listed_is_a_defect() -> None:
    assert check_move("job", JobState.PAUSED, Kind.CANCEL, JobState.CANCELLED)
    with pytest.raises(IllegalMoveError, match="SUCCEEDED -> FAILED_FINAL"):
        check_move("job", JobState.SUCCEEDED, Kind.TICK, JobState.FAILED_FINAL)


# -- moves that the small worlds do not make ---------------------------------------------------


def queued() -> Story:
    """A job that was stored before anything was dispatched."""
    plan = small_plan(0, sla=Sla(fail_job=True))
    return Story(job=Job(plan, JobState.QUEUED, (Step(StepState.PENDING),), NOW, sla_at=LATER))


def test_a_queued_job_is_cancelled_at_once() -> None:
    story = queued()
    story.give(CancelRequested())
    assert story.states() == (JobState.CANCELLED, StepState.CANCELLED)


def test_a_queued_job_pauses_at_once_and_starts_on_resume() -> None:
    story = queued()
    story.give(PauseRequested())
    assert story.states() == (JobState.PAUSED, StepState.PENDING)
    story.give(ResumeRequested())
    assert story.states() == (JobState.DISPATCHING, StepState.DISPATCHING)


def test_a_queued_job_fails_when_its_sla_is_exceeded() -> None:
    story = queued()
    story.wait(days=2).give(Ticked())
    assert story.job.state is JobState.FAILED_FINAL


def test_a_redrive_that_carries_every_result_has_succeeded() -> None:
    plan = replace(small_plan(0), carried={"a": Carried("kept", "job-0")})
    story = Story(plan)
    assert story.job.state is JobState.SUCCEEDED
    assert story.job.final_output == "kept"


def test_a_final_failure_drops_the_waiting_retry_beside_it() -> None:
    story = Story(small_plan(0, 0)).started("a").started("b")
    story.fail("a")
    story.fail("b", final=True)
    assert story.states() == (JobState.FAILED_FINAL, StepState.CANCELLED, StepState.FAILED_FINAL)


def test_a_last_refused_publish_drops_the_waiting_retry_beside_it() -> None:
    story = Story(small_plan(0, 0))
    story.release("b")
    story.refuse("b")
    story.tick_due()
    story.started("a").release("b")
    story.fail("a")
    story.refuse("b")
    assert story.states() == (JobState.FAILED_FINAL, StepState.CANCELLED, StepState.FAILED_FINAL)


def test_a_restart_puts_the_retry_of_a_pausing_job_back() -> None:
    story = Story(small_plan(0)).started()
    story.fail()
    story.tick_due()
    story.started().give(PauseRequested())
    story.give(BusRestarted("worker"))
    assert story.states() == (JobState.PAUSED, StepState.FAILED_RETRY)


def end_lease(story: Story, how: str) -> None:
    """The lease of step `a` ends without a result."""
    if how == "returned":
        story.give_back("a")
    else:
        story.give(BusRestarted("worker"))


FREE = [("returned", 2), ("died", 1)]


@pytest.mark.parametrize(("how", "free"), FREE)
def test_the_last_lease_that_ends_without_a_result_drops_what_is_held_beside_it(
    how: str, free: int
) -> None:
    story = Story(small_plan(0, 0, attempts=1))
    for _ in range(free + 1):
        story.started("a")
        end_lease(story, how)
    assert story.states() == (JobState.FAILED_FINAL, StepState.FAILED_FINAL, StepState.CANCELLED)


@pytest.mark.parametrize(("how", "free"), FREE)
def test_the_last_lease_that_ends_without_a_result_drops_the_waiting_retry_beside_it(
    how: str, free: int
) -> None:
    story = Story(small_plan(0, 0, attempts=2))
    for _ in range(free + 1):
        story.started("a")
        end_lease(story, how)
    story.tick_due()
    story.started("a").started("b").fail("b")
    end_lease(story, how)
    assert story.states() == (JobState.FAILED_FINAL, StepState.FAILED_FINAL, StepState.CANCELLED)
