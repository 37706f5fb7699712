"""Every reachable world of a job on Temporal keeps every invariant, and without a guard one does not.

Signals are lost, late or doubled, activities are repeated, the invoker dies at any point, and the workflow
goes on in a new run: see `explore/temporal.py`. The counts are exact.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from lucius.core import decide
from lucius.core.decide import NextAttempt
from lucius.core.effects import SignalWorkflow
from lucius.core.inputs import (
    CancelRequested,
    EffectSettled,
    PauseRequested,
    ResultStatus,
    ResumeRequested,
)
from lucius.core.job import Job, Owed
from lucius.core.plan import TEMPORAL
from lucius.core.turn import Turn
from lucius.engine.temporal import invoker
from tests.core.explore import walk as walking
from tests.core.explore.configurations import (
    EVERY_RESULT,
    Configuration,
    small_plan,
)
from tests.core.explore.temporal import TemporalNext, TemporalRules, TemporalWorld
from tests.core.explore.trace import Action
from tests.core.explore.walk import Exploration, Violation
from tests.core.test_exploration import MADE_ELSEWHERE, size

pytestmark = [pytest.mark.xdist_group("exploration"), pytest.mark.slow]
Patch = pytest.MonkeyPatch


def world(name: str, *stages: int, attempts: int = 2, **options: Any) -> Configuration:
    plan = replace(small_plan(*stages, attempts=attempts), engine=TEMPORAL)
    return Configuration(name, plan, honest=False, **options)


RETRIED = world("two attempts that are refused and given back", 0, results=EVERY_RESULT, leases=2)
TWO = world("two steps", 0, 1, results=(ResultStatus.SUCCEEDED,), refusals=False)
STEERED = world(
    "every control",
    0,
    attempts=1,
    results=(ResultStatus.SUCCEEDED,),
    refusals=False,
    controls=(CancelRequested(), PauseRequested(), ResumeRequested()),
)
SHORT = world(
    "one step, paused", 0, attempts=1, results=(), refusals=False, controls=STEERED.controls[1:]
)
COUNTS = {
    RETRIED.name: (19_180, 351, 213_128),
    TWO.name: (10_329, 224, 85_029),
    STEERED.name: (16_361, 57, 164_778),
}


def walk(configuration: Configuration, limit: int | None = None) -> Exploration:
    return walking.walk(configuration, limit, TemporalRules)


@cache
def walked(name: str) -> Exploration:
    """Each configuration is walked once, for all the tests that ask about it."""
    return walk(next(each for each in (RETRIED, TWO, STEERED) if each.name == name))


@pytest.mark.parametrize("name", COUNTS)
def test_every_reachable_world_keeps_the_invariants(name: str) -> None:
    assert size(walked(name)) == COUNTS[name]


def test_what_only_a_workflow_asks_for_happens_here() -> None:
    made = set().union(*(walked(name).rules.judge.moves for name in COUNTS))
    wanted = {move for move in MADE_ELSEWHERE if move[2] == "attempt"}
    wanted |= {("job", "QUEUED", "cancel", "CANCELLED"), ("job", "QUEUED", "pause", "PAUSED")}
    assert len(wanted) == 5
    assert wanted <= made


def test_everything_that_can_be_lost_is_lost_somewhere() -> None:
    done = {action.what for name in COUNTS for _, action in walked(name).came}
    for what in (
        "the invoker dies",
        "the invoker holds it, and dies",
        "the invoker lets it out, and dies",
        "the invoker publishes, and dies",
        "the workflow goes on in a new run",
    ):
        assert what in done


# -- guards, taken out -------------------------------------------------------------------------------


def signals_are_not_saved(patch: Patch) -> None:
    """1: a signal is sent, and is no part of what was saved."""

    def unsaved(draft: Turn, name: str) -> None:
        draft.perform(Owed("signal", "signal_workflow", name, 1, draft.now))

    patch.setattr(Turn, "signal", unsaved)


def starts_are_not_saved(patch: Patch) -> None:
    """1: a start is tried once."""

    def unsaved(draft: Turn, owed: Owed) -> None:
        draft.own_job()
        draft.perform(owed)

    patch.setattr(Turn, "owe", unsaved)


def signals_are_settled_before_they_are_told(patch: Patch) -> None:
    """1: who dies between the two has told nobody."""

    def settled_first(
        rules: TemporalRules, found: TemporalWorld, effect: SignalWorkflow, number: int
    ) -> Iterator[TemporalNext]:
        settled = rules._saved(found, EffectSettled(effect.owed_id, performed=True))
        yield TemporalNext(Action("the invoker settles, and dies", effect), settled)
        told = rules._sent(settled, number)
        yield TemporalNext(Action("the invoker settles and signals", effect), told, helps=True)

    patch.setattr(TemporalRules, "_signalled", settled_first)


def attempt_numbers_are_not_checked(patch: Patch) -> None:
    """3, 6: whatever a workflow asks for begins."""

    def anything(job: Job) -> Iterator[NextAttempt]:
        for planned in job.plan.steps:
            yield from (NextAttempt(planned.step_id, number) for number in range(1, 4))

    patch.setattr(decide, "next_attempts", anything)


def publishes_are_not_checked(patch: Patch) -> None:
    """4: what is not current any more is published all the same."""
    patch.setattr(invoker, "_unsent", lambda step, asked: True)


SABOTAGES: list[tuple[Callable[[Patch], None], Configuration, str]] = [
    (signals_are_not_saved, STEERED, "1: the job can no longer reach an end"),
    (starts_are_not_saved, SHORT, "1: the job can no longer reach an end"),
    (signals_are_settled_before_they_are_told, SHORT, "1: the job can no longer reach an end"),
    (attempt_numbers_are_not_checked, TWO, "step: "),
    (publishes_are_not_checked, RETRIED, "4: only what is out is published"),
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
        walk(configuration)
    assert str(caught.value).startswith(f"broken: {broken}"), str(caught.value)
