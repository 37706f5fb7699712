"""What `decide` makes of a job and an input, checked once for each distinct pair and then remembered."""

from typing import NamedTuple

from lucius.core import decide as core
from lucius.core.effects import Decision, Effect, Outcome
from lucius.core.inputs import Input, Ticked
from lucius.core.job import Job
from lucius.core.plan import Plan
from lucius.engine.cache import left_to_owner
from tests.core.explore.agreement import check_strangers
from tests.core.explore.invariants import check_decision, check_job, check_tick, require
from tests.core.explore.world import NOW, Catalogue, come

Move = tuple[str, str, str, str]


class Verdict(NamedTuple):
    job: int
    effects: frozenset[Effect]
    outcome: Outcome
    changed: bool


class Judge:
    """`moves` and `facts` are what was seen to happen: moves of machines, outcomes by job state."""

    def __init__(self) -> None:
        self.catalogue = Catalogue()
        self.moves: set[Move] = set()
        self.facts: set[tuple[str, ...]] = set()
        self._verdicts: dict[tuple[int, Input, str | None], Verdict] = {}
        self._left: dict[tuple[int, Input], Verdict] = {}
        self._checked: set[int] = set()

    def submitted(self, plan: Plan, *, left: bool = False) -> Verdict:
        decision = core.submit(plan, NOW)
        if left:
            decision = left_to_owner(None, decision)
        self._remember(decision, "submitted")
        return self._verdict(decision)

    def decided(self, number: int, received: Input, deadline: str | None = None) -> Verdict:
        key = (number, received, deadline)
        verdict = self._verdicts.get(key)
        if verdict is None:
            verdict = self._verdicts[key] = self._decide(number, received, deadline)
        return verdict

    def left(self, number: int, received: Input) -> Verdict:
        """What a process makes of it that does not own the lane: it saves, and leaves the rest."""
        verdict = self._left.get((number, received))
        if verdict is None:
            job = self.catalogue.jobs[number]
            decision = left_to_owner(job, core.decide(job, received, NOW))
            require(not decision.effects, "4a: who does not own the lane performs nothing")
            verdict = self._left[number, received] = self._verdict(decision, number)
        return verdict

    def _decide(self, number: int, received: Input, deadline: str | None) -> Verdict:
        job = self.catalogue.jobs[number]
        if deadline is not None:
            job = come(job, deadline)
        was = hash(job)
        decision = core.decide(job, received, NOW)
        require(hash(job) == was, "pure: the given job is not written on")
        check_decision(job, received, decision)
        if deadline is not None and isinstance(received, Ticked) and not received.asked:
            check_tick(job, decision)
        self._remember(decision, received.kind.value, job)
        return self._verdict(decision, number)

    def _verdict(self, decision: Decision, number: int = -1) -> Verdict:
        after = self._number(decision.job) if decision.changed else number
        return Verdict(after, frozenset(decision.effects), decision.outcome, decision.changed)

    def _number(self, job: Job) -> int:
        number = self.catalogue.number(job)
        if number not in self._checked:
            check_job(job)
            check_strangers(job)
            self._checked.add(number)
        return number

    def _remember(self, decision: Decision, kind: str, before: Job | None = None) -> None:
        state = before.state.value if before is not None else ""
        self.facts.add((kind, state, decision.outcome.value))
        for event in decision.events:
            for move in event.moves:
                machine, *_, arrow = move.split()
                source, target = arrow.split("->")
                self.moves.add((machine, source, kind, target))
