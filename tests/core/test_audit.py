"""The audit of one job: sound lives have no finding, and each contradiction has its own."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from lucius.core.audit import audit
from lucius.core.decide import decide
from lucius.core.inputs import CancelRequested, PauseRequested, Ticked
from lucius.core.job import EntryState, Execution, ExecutionState, Job, JobState, StepState
from tests.conformance.jobs import at, failure_of, life_of, make

RELEASED = make(1, released=True).job
LIFE = [decision.job for decision in life_of(RELEASED)]


def kinds(job: Job) -> set[str]:
    return {kind for kind, _ in audit(job)}


def step_changed(job: Job, index: int, **changes: Any) -> Job:
    steps = list(job.steps)
    steps[index] = replace(steps[index], **changes)
    return replace(job, steps=tuple(steps))


def run_changed(job: Job, index: int, **changes: Any) -> Job:
    run = replace(job.steps[index].executions[-1], **changes)
    return step_changed(job, index, executions=(*job.steps[index].executions[:-1], run))


def test_every_job_of_an_ordinary_life_is_sound() -> None:
    for job in (make(1).job, RELEASED, *LIFE):
        assert audit(job) == ()


def test_jobs_that_fail_wait_pause_and_are_cancelled_are_sound() -> None:
    acked = LIFE[0]
    failed = decide(acked, failure_of(acked), at(2)).job
    waiting = decide(acked, failure_of(acked, final=False), at(2)).job
    assert waiting.due_at is not None
    again = decide(waiting, Ticked(), waiting.due_at).job
    pausing = decide(acked, PauseRequested(), at(2)).job
    cancelling = decide(acked, CancelRequested(), at(2)).job
    cancelled = decide(acked, CancelRequested(immediate=True), at(2)).job
    for job in (failed, waiting, again, pausing, cancelling, cancelled):
        assert audit(job) == (), job.state


def second_commit(job: Job) -> Job:
    runs = job.steps[0].executions
    other = Execution("other", 2, ExecutionState.COMMITTED, at(1), started_at=at(1))
    return step_changed(job, 0, executions=(*runs, other))


def entry_state(job: Job, state: EntryState) -> Job:
    entry = job.steps[0].entry
    assert entry is not None
    return step_changed(job, 0, entry=replace(entry, state=state))


CONTRADICTIONS: dict[str, tuple[Callable[[], Job], str]] = {
    "a second commit": (lambda: second_commit(LIFE[2]), "two_committed"),
    "success with work under way": (
        lambda: run_changed(LIFE[-1], 1, state=ExecutionState.IN_PROGRESS),
        "phase_drift",
    ),
    "all is done and the job goes on": (
        lambda: replace(LIFE[-1], state=JobState.IN_PROGRESS, completed_at=None),
        "phase_drift",
    ),
    "no moment to wake up": (lambda: replace(LIFE[1], due_at=None), "missing_due_at"),
    "another moment": (lambda: replace(LIFE[1], due_at=at(10**6)), "wrong_due_at"),
    "a moment with nothing to do": (lambda: replace(LIFE[-1], due_at=at(9)), "wrong_due_at"),
    "too many attempts": (lambda: step_changed(LIFE[0], 0, used=4), "attempts_exceeded"),
    "an ended job without its end": (lambda: replace(LIFE[-1], completed_at=None), "completion"),
    "an end without an ended job": (lambda: replace(LIFE[0], completed_at=at(1)), "completion"),
    "success with a step that has none": (
        lambda: step_changed(LIFE[-1], 1, state=StepState.CANCELLED),
        "step_drift",
    ),
    "an ended job with a step at work": (
        lambda: step_changed(LIFE[-1], 1, state=StepState.IN_PROGRESS),
        "step_drift",
    ),
    "a step at work that nobody leased": (
        lambda: step_changed(LIFE[0], 0, executions=()),
        "lease_drift",
    ),
    "a step at work whose entry is held": (
        lambda: entry_state(LIFE[0], EntryState.HELD),
        "entry_drift",
    ),
    "a step that failed and an entry that is open": (
        lambda: entry_state(decide(LIFE[0], failure_of(LIFE[0]), at(2)).job, EntryState.RELEASED),
        "entry_drift",
    ),
    "a step lost": (lambda: replace(LIFE[0], steps=LIFE[0].steps[:2]), "steps_missing"),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_each_contradiction_is_named(name: str) -> None:
    planted, kind = CONTRADICTIONS[name]
    assert kind in kinds(planted())
