"""Every reachable world of the small configurations keeps every invariant; the counts are exact.

A count that changes means that `decide` has changed: look why before writing the new number here.
"""

from dataclasses import replace

import pytest

from lucius.core.job import StepState
from lucius.core.table import MACHINES
from tests.core.explore import walk as walking
from tests.core.explore.agreement import check_agreement
from tests.core.explore.configurations import (
    APART,
    CONTROL,
    DEATHS,
    DEFAULT,
    DRAIN,
    EVERYTHING,
    NETWORK,
    RACE,
    RESTART,
    STAGE,
    STEERED_RACE,
    Configuration,
)
from tests.core.explore.rules import PUBLISH_NOW, WAKING
from tests.core.explore.walk import Exploration

pytestmark = [pytest.mark.xdist_group("exploration"), pytest.mark.slow]
_found: dict[str, Exploration] = {}


def walk(configuration: Configuration) -> Exploration:
    """Each configuration is walked once, for all the tests that ask about it."""
    if configuration.name not in _found:
        _found[configuration.name] = walking.walk(configuration)
    return _found[configuration.name]


COUNTS = {
    NETWORK.name: (28_504, 377, 538_741),
    RACE.name: (13_503, 70, 204_324),
    APART.name: (24_903, 950, 468_782),
    STEERED_RACE.name: (2_037, 56, 42_895),
    CONTROL.name: (5_610, 1_377, 142_912),
    DRAIN.name: (4_229, 862, 118_796),
    STAGE.name: (10_122, 1_746, 222_897),
    RESTART.name: (6_478, 958, 104_298),
    DEATHS.name: (7_070, 1_034, 112_642),
    EVERYTHING.name: (26_839, 3_730, 586_788),
}

MADE_ELSEWHERE = {
    ("job", "QUEUED", "attempt", "DISPATCHING"),
    ("step", "PENDING", "attempt", "DISPATCHING"),
    ("step", "FAILED_RETRY", "attempt", "DISPATCHING"),
    ("job", "QUEUED", "cancel", "CANCELLED"),
    ("job", "QUEUED", "pause", "PAUSED"),
    ("job", "QUEUED", "submitted", "SUCCEEDED"),
    ("job", "QUEUED", "tick", "FAILED_FINAL"),
    ("step", "FAILED_RETRY", "failure_final", "CANCELLED"),
    ("step", "FAILED_RETRY", "publish_refused", "CANCELLED"),
    ("step", "DISPATCHING", "lease_returned", "CANCELLED"),
    ("entry", "HELD", "lease_returned", "FAILED_FINAL"),
    ("step", "DISPATCHING", "bus_restarted", "CANCELLED"),
    ("entry", "HELD", "bus_restarted", "FAILED_FINAL"),
    ("step", "FAILED_RETRY", "lease_returned", "CANCELLED"),
    ("step", "FAILED_RETRY", "bus_restarted", "CANCELLED"),
}
"""What these worlds do not reach; see `test_table.py` and `test_exploration_temporal.py`."""


def named(configuration: Configuration) -> str:
    return configuration.name


def size(found: Exploration) -> tuple[int, int, int]:
    return len(found.worlds), len(found.rules.jobs), found.transitions


@pytest.mark.parametrize("configuration", DEFAULT, ids=named)
def test_every_reachable_world_keeps_the_invariants(configuration: Configuration) -> None:
    assert size(walk(configuration)) == COUNTS[configuration.name]


@pytest.mark.parametrize("configuration", DEFAULT, ids=named)
def test_every_decision_agrees_with_the_tables(configuration: Configuration) -> None:
    assert sum(check_agreement(job) for job in walk(configuration).rules.jobs) > 0


def test_every_move_in_the_tables_is_made_by_some_world() -> None:
    listed = {
        (machine, str(state), str(kind), str(target))
        for machine, rows in MACHINES.items()
        for state, cells in rows.items()
        for kind, cell in cells.items()
        for target in cell.targets
    }
    made = set().union(*(walk(configuration).rules.judge.moves for configuration in DEFAULT))
    assert listed - made == MADE_ELSEWHERE


SOMETIMES = {
    "a job succeeds": ("job", "IN_PROGRESS", "success", "SUCCEEDED"),
    "a job fails for good": ("job", "IN_PROGRESS", "failure_final", "FAILED_FINAL"),
    "a silent service fails a job": ("job", "DISPATCHING", "tick", "FAILED_FINAL"),
    "a retryable failure is retried": ("step", "IN_PROGRESS", "failure_retryable", "FAILED_RETRY"),
    "a missing ACK is retried": ("step", "AWAITING_ACK", "tick", "FAILED_RETRY"),
    "an expired lease is retried": ("step", "IN_PROGRESS", "tick", "FAILED_RETRY"),
    "a refused publish keeps its entry": ("entry", "RELEASED", "publish_refused", "HELD"),
    "a retry is dispatched": ("step", "FAILED_RETRY", "tick", "DISPATCHING"),
    "a success in the backoff counts": ("step", "FAILED_RETRY", "success", "SUCCEEDED"),
    "a success withdraws the held retry": ("entry", "HELD", "success", "FAILED_FINAL"),
    "a RESULT overtakes SENT": ("entry", "RELEASED", "success", "SENT"),
    "the next step starts": ("step", "PENDING", "success", "DISPATCHING"),
}


@pytest.mark.parametrize("what", SOMETIMES)
def test_in_a_wild_network_sometimes(what: str) -> None:
    assert SOMETIMES[what] in walk(NETWORK).rules.judge.moves


def test_stale_late_and_duplicate_callbacks_happen_and_are_recorded() -> None:
    facts = walk(NETWORK).rules.judge.facts
    for outcome in ("stale", "late", "duplicate"):
        assert ("success", "IN_PROGRESS", outcome) in facts
        assert ("success", "IN_PROGRESS", "applied") in facts


def test_reconcilers_race_and_lose_and_crash_with_work_undone() -> None:
    found = walk(RACE)
    happened = {action.what for _, action in found.came}
    assert {"loses the race to save", "crashes", "publishes, outcome unknown"} <= happened
    assert any(len([a for a in world.actors if a.todo]) == 2 for world in found.worlds)


def test_reconcilers_race_over_two_steps_while_a_client_steers() -> None:
    found = walk(STEERED_RACE)
    assert {"loses the race to save", "crashes"} <= {action.what for _, action in found.came}
    moves = found.rules.judge.moves
    assert ("step", "PENDING", "success", "DISPATCHING") in moves, "the second step starts"
    assert ("job", "IN_PROGRESS", "cancel", "CANCELLING") in moves
    assert any(
        len([actor for actor in world.actors if actor.todo]) == 2
        and found.rules.job(world).cancel_requested_at is not None
        for world in found.worlds
    )


def test_an_operator_who_publishes_now_ends_a_backoff_and_otherwise_changes_nothing() -> None:
    judge = walk(NETWORK).rules.judge
    asked = [(judge.catalogue.jobs[number], verdict) for (number, received, _), verdict in
             judge._verdicts.items() if received == PUBLISH_NOW]  # fmt: skip
    assert any(verdict.changed for _, verdict in asked)
    for job, verdict in asked:
        pending = any(step.state is StepState.DISPATCHING for step in job.steps)
        assert pending or not (verdict.changed or verdict.effects)


def test_every_control_takes_effect_somewhere() -> None:
    moves = walk(CONTROL).rules.judge.moves
    assert ("job", "IN_PROGRESS", "cancel", "CANCELLING") in moves
    assert ("job", "CANCELLING", "success", "CANCELLED") in moves
    assert ("job", "CANCELLING", "cancel", "CANCELLED") in moves
    assert ("job", "PAUSING", "success", "PAUSED") in moves
    assert ("job", "PAUSED", "resume", "QUEUED") in moves
    assert ("job", "PAUSED", "resume", "IN_PROGRESS") in moves
    assert ("job", "PAUSED", "tick", "FAILED_FINAL") in moves


def test_leases_given_back_and_deaths_are_free_at_first_and_end_the_job_in_the_end() -> None:
    found = walk(DEATHS)
    steps = [step for job in found.rules.jobs for step in job.steps]
    assert max(step.returns for step in steps) == 4, "two are free, two use up the attempts"
    assert max(step.deaths for step in steps) == 3, "one is free, two use up the attempts"
    moves = found.rules.judge.moves
    for kind in ("lease_returned", "bus_restarted"):
        assert ("step", "IN_PROGRESS", kind, "DISPATCHING") in moves
        assert ("step", "IN_PROGRESS", kind, "FAILED_RETRY") in moves
        assert ("job", "IN_PROGRESS", kind, "FAILED_FINAL") in moves


def test_whoever_wakes_up_gives_up_nobody() -> None:
    judge = walk(NETWORK).rules.judge
    woken = [(judge.catalogue.jobs[number], judge.catalogue.jobs[verdict.job])
             for (number, received, _), verdict in judge._verdicts.items()
             if received == WAKING]  # fmt: skip
    assert woken
    for before, after in woken:
        for earlier, step in zip(before.steps, after.steps, strict=True):
            assert step.used == earlier.used


def test_an_honest_service_reaches_no_job_that_a_wild_one_does_not() -> None:
    """The two models of a service agree, so the cheaper one may stand for the other."""
    wild = walking.walk(replace(NETWORK, honest=False))
    assert set(wild.rules.jobs) == set(walk(NETWORK).rules.jobs)
