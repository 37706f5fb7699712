"""Guards taken out, one at a time. Each is a context in which exactly that guard is gone."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from typing import Any
from unittest.mock import patch

from lucius.core import decide, retry
from lucius.core.effects import Event, Outcome
from lucius.core.inputs import Callback, ResultReceived
from lucius.core.job import Job, Step
from lucius.core.states import StepState
from lucius.core.turn import Turn
from lucius.ledgers.memory import MemoryLedger


@contextmanager
def no_clock_while(state: StepState) -> Iterator[None]:
    """Nobody looks again at a step that is silent in this state."""
    out_due, lease_over = retry._out_due, decide._lease_over

    def due(step: Step) -> datetime | None:
        return None if step.state is state else out_due(step)

    def over(step: Step, now: datetime) -> bool:
        return step.state is not state and lease_over(step, now)

    with patch.object(retry, "_out_due", due), patch.object(decide, "_lease_over", over):
        yield


def no_repeated_publish() -> AbstractContextManager[Any]:
    """A released directive is published once, by the process that released it, or never."""
    return patch.object(Turn, "ask_publish_again", lambda self, index: None)


@contextmanager
def standing_of(change: Callable[[Turn, Step, Callback, Outcome], Outcome]) -> Iterator[None]:
    """Whether a callback counts is judged otherwise."""
    judged = decide._standing

    def standing(turn: Turn, step: Step, received: Callback) -> Outcome:
        return change(turn, step, received, judged(turn, step, received))

    with patch.object(decide, "_standing", standing):
        yield


def no_implied_ack() -> AbstractContextManager[Any]:
    """A RESULT counts only once its ACK has been seen."""

    def change(turn: Turn, step: Step, received: Callback, judged: Outcome) -> Outcome:
        early = step.unacked and isinstance(received, ResultReceived)
        return Outcome.STALE if early else judged

    return standing_of(change)


def no_lease_check() -> AbstractContextManager[Any]:
    """A callback counts while its step is out, whatever lease it speaks for."""

    def change(turn: Turn, step: Step, received: Callback, judged: Outcome) -> Outcome:
        return Outcome.APPLIED if step.out else judged

    return standing_of(change)


def no_second_thought() -> AbstractContextManager[Any]:
    """An attempt that was given up for silence stays given up."""
    return patch.object(decide, "PRESUMED_DEAD", ())


def no_compare_and_swap() -> AbstractContextManager[Any]:
    """Whoever saves last wins, whatever it had read."""
    save = MemoryLedger.save

    async def overwrite(
        self: MemoryLedger, job: Job, expected: int, events: Sequence[Event]
    ) -> bool:
        record = self.jobs[job.job_id]
        return await save(self, job, record.job.version, events)

    return patch.object(MemoryLedger, "save", overwrite)
