"""Each invariant with its guard taken out: the explorer must find a counterexample and tell it well."""

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from typing import Any

import pytest

from lucius.core import callbacks, retry, sequence, turn, wire
from lucius.core.effects import Decision, Outcome
from lucius.core.inputs import Callback, Kind
from lucius.core.job import AbortReason, Execution, Job, JobState, Step, StepState
from lucius.core.retry import TRACK_OF, backoff
from lucius.core.table import IGNORE, JOB
from lucius.core.turn import StepDraft, Turn, writable
from tests.core.explore import invariants, judge, rules
from tests.core.explore.configurations import (
    APART,
    CONTROL,
    DEATHS,
    DRAIN,
    NETWORK,
    RACE,
    STAGE,
    Configuration,
    small_plan,
)
from tests.core.explore.walk import Violation, walk
from tests.core.explore.world import Actor

Patch = pytest.MonkeyPatch
ENOUGH = 20_000


def unchecked(machine: str, source: StrEnum, kind: StrEnum, target: StrEnum) -> str:
    return f"{source}->{target}"


def own(step: Step, received: Callback) -> bool:
    return any(execution.exec_id == received.lease_id for execution in step.executions)


def closed_jobs_listen(patch: Patch) -> None:
    """1: nothing asks any more whether the job is closed."""
    real = callbacks._standing

    def standing(draft: Turn, step: Step, received: Callback) -> Outcome:
        listens = draft.job.terminal and own(step, received)
        return Outcome.APPLIED if listens else real(draft, step, received)

    patch.setattr(callbacks, "_standing", standing)
    patch.setattr(turn, "check_move", unchecked)


def saves_are_blind(patch: Patch) -> None:
    """1: a save does not compare versions: a stale copy overwrites what came after it."""

    def unaware(actor: Actor, changed: bool) -> Actor:
        return actor

    patch.setattr(rules, "_overtaken", unaware)


def what_is_left_is_due_to_nobody(patch: Patch) -> None:
    """1: a process without lanes saves a job as an owner would, and performs nothing."""

    def left(before: Job | None, decision: Decision) -> Decision:
        return replace(decision, effects=())

    patch.setattr(judge, "left_to_owner", left)


def lost_publishes_stay_lost(patch: Patch) -> None:
    """1: a tick takes note of an unsent entry, but nobody is told to publish it."""

    def noted(draft: Turn, index: int) -> None:
        draft.own_entry(index).asked_at = draft.now

    patch.setattr(Turn, "ask_publish_again", noted)


def every_reply_counts(patch: Patch) -> None:
    """2: replies are not asked which attempt they speak for, or whether they repeat one."""
    real = callbacks._standing

    def standing(draft: Turn, step: Step, received: Callback) -> Outcome:
        counts = own(step, received) and not draft.job.terminal
        return Outcome.APPLIED if counts else real(draft, step, received)

    patch.setattr(callbacks, "_standing", standing)
    patch.setattr(turn, "check_move", unchecked)


def stages_do_not_wait(patch: Patch) -> None:
    """3: every pending step starts, whatever stage it is in."""

    def start(draft: Turn) -> None:
        for index, step in enumerate(draft.steps):
            if step.state is StepState.PENDING:
                draft.hold(index)

    patch.setattr(sequence, "start_stage", start)


def pauses_withdraw_nothing(patch: Patch) -> None:
    """4: what is held stays in the outbox of a paused job."""

    def stay(draft: Turn, index: int) -> None:
        draft.changed = True

    patch.setattr(Turn, "withdraw", stay)


def releases_ask_nobody(patch: Patch) -> None:
    """4: a held entry is released though the job is paused, because it was never withdrawn."""
    pauses_withdraw_nothing(patch)
    for state in (JobState.PAUSING, JobState.PAUSED):
        patch.setitem(JOB, state, {**JOB[state], Kind.ENTRY_RELEASED: IGNORE})

    def lenient(job: Job) -> None:
        return None

    patch.setattr(invariants, "_check_control", lenient)


def failures_stop_nothing(patch: Patch) -> None:
    """phase: nobody looks whether a step of the job has failed for good."""

    def hopeful(draft: Turn) -> bool:
        return False

    patch.setattr(sequence, "doomed", hopeful)


def routing_follows_configuration(patch: Patch) -> None:
    """5: the directive is routed by what is configured when it is rendered."""
    real = wire.directive
    delimiters = iter("" if number == 0 else "|" for number in range(10_000))

    def recomputed(job: Job, step_id: str, attempt_no: int, lease_id: str) -> dict[str, Any]:
        key = f"{job.tenant_id.lower()}{next(delimiters)}{job.plan.doc_id}"
        return {**real(job, step_id, attempt_no, lease_id), "routing_key_used": key}

    patch.setattr(wire, "directive", recomputed)


def attempts_have_no_end(patch: Patch) -> None:
    """6: a failed attempt is always tried again."""

    def again(draft: Turn, index: int, reason: AbortReason, fault: Any) -> None:
        step = draft.own_step(index)
        step.used += 1
        draft.abort(index, reason)
        track = TRACK_OF[reason]
        wait = backoff(draft.plan(index).policy, track, step.used)
        draft._wait(index, track, draft.now + wait)

    patch.setattr(Turn, "fail_attempt", again)


def leases_are_given_back_for_ever(patch: Patch) -> None:
    """6: giving a lease back costs nothing, however often."""
    patch.setattr(callbacks, "FREE_RETURNS", 1_000_000)


def deaths_are_free_for_ever(patch: Patch) -> None:
    """6: a process that dies at work costs nothing, however often."""
    patch.setattr(callbacks, "FREE_DEATHS", 1_000_000)


def nobody_counts_leases(patch: Patch) -> None:
    """6: what is given back is free, and no count shows how often it was."""

    def repeat(draft: Turn, index: int) -> None:
        callbacks._repeat(draft, index, AbortReason.RETURNED)

    patch.setattr(callbacks, "returned", repeat)


def entries_are_left_open(patch: Patch) -> None:
    """6: the entry of a step that ends is not closed."""

    def leave(draft: Turn, index: int) -> None:
        return None

    patch.setattr(Turn, "_close_entry", leave)


def events_are_dropped(patch: Patch) -> None:
    """7: decisions write no history."""

    def silent(draft: Turn) -> tuple[()]:
        return ()

    patch.setattr(Turn, "_events", silent)


def leases_are_not_compared(patch: Patch) -> None:
    """8: a reply is recognised by its attempt alone, so another job's would do."""

    def similar(received: Any, execution: Execution | None) -> bool:
        return execution is not None and execution.attempt_no == received.attempt_no

    patch.setattr(callbacks, "speaks_for", similar)


def nobody_looks_again(patch: Patch) -> None:
    """due_at: no moment is ever announced."""

    def never(job: Job) -> None:
        return None

    patch.setattr(retry, "due_at", never)
    patch.setattr(turn, "due_at", never)


def backoffs_of_pausing_jobs_are_due(patch: Patch) -> None:
    """due_at: a retry that may not start is announced all the same, and found due for ever."""

    def always(step: Step, starting: bool) -> Any:
        return step.retry_at

    patch.setitem(retry._RULES, StepState.FAILED_RETRY, always)


def drafts_are_the_job_itself(patch: Patch) -> None:
    """A turn writes on the steps that it was given instead of on copies."""

    def taken(draft: Turn, index: int) -> StepDraft:
        draft.changed = True
        return writable(draft.steps[index])

    patch.setattr(Turn, "own_step", taken)


def retries_go_past_a_pause(patch: Patch) -> None:
    """4: a paused job does not refuse to be tried again."""
    cells = {**JOB[JobState.PAUSED], Kind.RETRY: IGNORE}
    patch.setitem(JOB, JobState.PAUSED, cells)


SHORT_APART = replace(APART, plan=small_plan(0, 1, attempts=1))
SHORT_DRAIN = replace(DRAIN, plan=small_plan(0, attempts=1), refusals=False, controls=())

SABOTAGES: list[tuple[Callable[[Patch], None], Configuration, str]] = [
    (closed_jobs_listen, NETWORK, "1: a terminal state never changes"),
    (saves_are_blind, RACE, "1: a closed job came back"),
    (what_is_left_is_due_to_nobody, SHORT_APART, "1: the job can no longer reach an end"),
    (lost_publishes_stay_lost, NETWORK, "1: the job can no longer reach an end"),
    (every_reply_counts, NETWORK, "2: "),
    (stages_do_not_wait, NETWORK, "3: only the active step moves"),
    (pauses_withdraw_nothing, CONTROL, "4: a paused job has nothing in the outbox"),
    (retries_go_past_a_pause, CONTROL, "4: a paused job has nothing in the outbox"),
    (releases_ask_nobody, DRAIN, "4: nothing is released after cancel or pause"),
    (failures_stop_nothing, STAGE, "phase: FAILED of a job that is "),
    (routing_follows_configuration, NETWORK, "5: "),
    (attempts_have_no_end, NETWORK, "6: attempts never exceed the maximum"),
    (leases_are_given_back_for_ever, DRAIN, "6: a third lease given back"),
    (deaths_are_free_for_ever, DEATHS, "6: a third lease given back, or a second death"),
    (nobody_counts_leases, SHORT_DRAIN, "6: the leases of a step are bounded"),
    (entries_are_left_open, CONTROL, "6: "),
    (events_are_dropped, NETWORK, "7: every state change is in the events"),
    (leases_are_not_compared, NETWORK, "8: what is for another job moves this one"),
    (drafts_are_the_job_itself, NETWORK, "pure: the given job is not written on"),
    (nobody_looks_again, NETWORK, "due_at: nobody will look again"),
    (backoffs_of_pausing_jobs_are_due, STAGE, "due_at: a tick at due_at changes nothing"),
]


@pytest.mark.of_the_sources
@pytest.mark.parametrize(
    ("sabotage", "configuration", "broken"),
    SABOTAGES,
    ids=[sabotage.__name__ for sabotage, _, _ in SABOTAGES],
)
def test_without_its_guard_an_invariant_breaks(
    sabotage: Callable[[Patch], None],
    configuration: Configuration,
    broken: str,
    monkeypatch: Patch,
) -> None:
    sabotage(monkeypatch)
    with pytest.raises(Violation) as caught:
        walk(configuration, limit=ENOUGH)
    lines = str(caught.value).splitlines()
    assert lines[0].startswith(f"broken: {broken}"), str(caught.value)
    assert lines[1] == "  0. the job is accepted"
    assert all(line.startswith((" ", "the job")) for line in lines[1:])


def test_a_counterexample_reads_as_a_story(monkeypatch: Patch) -> None:
    pauses_withdraw_nothing(monkeypatch)
    with pytest.raises(Violation) as caught:
        walk(CONTROL, limit=ENOUGH)
    assert str(caught.value).splitlines() == [
        "broken: 4: a paused job has nothing in the outbox",
        "  0. the job is accepted",
        "  1. the client asks: PauseRequested()",
        "the job before the last line:",
        "  job DISPATCHING",
        "  step a DISPATCHING, entry HELD, executions none",
        "  step b PENDING, entry none, executions none",
    ]
