"""The walk: breadth first through every world, so that the first counterexample is a shortest one."""

from collections import deque
from dataclasses import dataclass, field
from time import process_time
from typing import Any

from lucius.core.errors import IllegalMoveError
from tests.core.explore.configurations import Configuration
from tests.core.explore.invariants import Broken
from tests.core.explore.rules import Rules
from tests.core.explore.temporal import TemporalRules, TemporalWorld
from tests.core.explore.trace import Action, shown, told
from tests.core.explore.world import World


class Violation(AssertionError):
    """An invariant does not hold in a reachable world; the message tells how to get there."""


@dataclass
class Exploration:
    """The graph: worlds in the order they were found, how each was reached, and the helpful edges."""

    rules: Any
    """Of a world of either engine."""
    worlds: list[Any] = field(default_factory=list)
    numbers: dict[Any, int] = field(default_factory=dict)
    came: list[tuple[int, Action]] = field(default_factory=list)
    helped_by: list[list[int]] = field(default_factory=list)
    transitions: int = 0
    seconds: float = 0.0

    def add(self, world: World | TemporalWorld, came: tuple[int, Action]) -> int:
        number = len(self.worlds)
        self.numbers[world] = number
        self.worlds.append(world)
        self.came.append(came)
        self.helped_by.append([])
        return number

    def trace(self, number: int) -> list[Action]:
        actions = []
        while number:
            number, action = self.came[number]
            actions.append(action)
        return actions[::-1]

    def __str__(self) -> str:
        jobs = len(self.rules.jobs)
        return (
            f"{self.rules.configuration.name}: {len(self.worlds):,} worlds, {jobs:,} jobs, "
            f"{self.transitions:,} transitions, {self.seconds:.1f} s of CPU"
        )


def walk(
    configuration: Configuration,
    limit: int | None = None,
    kind: type[Rules] | type[TemporalRules] = Rules,
) -> Exploration:
    """Every reachable world; raises `Violation` at the first that breaks an invariant."""
    began = process_time()
    found = Exploration(kind(configuration))
    try:
        found.add(found.rules.start(), (0, Action("the job is accepted")))
    except Broken as error:
        raise Violation(told(str(error), [])) from error
    frontier = deque([0])
    while frontier:
        number = frontier.popleft()
        for following in _expand(found, number):
            frontier.append(following)
        if limit is not None and len(found.worlds) > limit:
            raise Violation(f"more than {limit} worlds")
    _check_ends(found)
    found.seconds = process_time() - began
    return found


def _expand(found: Exploration, number: int) -> list[int]:
    new: list[int] = []
    following = found.rules.after(found.worlds[number])
    while True:
        try:
            step = next(following, None)
        except (Broken, IllegalMoveError) as error:
            raise _violation(found, number, str(error), found.rules.attempted) from error
        if step is None:
            return new
        found.transitions += 1
        if step.world is found.worlds[number]:
            continue
        target = found.numbers.get(step.world)
        if target is None:
            target = found.add(step.world, (number, step.action))
            new.append(target)
        if step.helps:
            found.helped_by[target].append(number)


def _check_ends(found: Exploration) -> None:
    """From every world an end can be reached though every service stays silent for ever."""
    ends = [n for n, world in enumerate(found.worlds) if found.rules.ended(world)]
    reached = set(ends)
    frontier = deque(ends)
    while frontier:
        for earlier in found.helped_by[frontier.popleft()]:
            if earlier not in reached:
                reached.add(earlier)
                frontier.append(earlier)
    for number in range(len(found.worlds)):
        if number not in reached:
            raise _violation(found, number, "1: the job can no longer reach an end", None)


def _violation(found: Exploration, number: int, broken: str, last: Action | None) -> Violation:
    actions = found.trace(number) + ([last] if last is not None else [])
    job = found.rules.job(found.worlds[number])
    return Violation("\n".join([told(broken, actions), *shown(job)]))
