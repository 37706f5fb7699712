"""Guards taken out, one at a time. Each is a context in which exactly that guard is gone."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import datetime
from typing import Any
from unittest.mock import patch

from lucius.adapters.ledgers.memory import MemoryLedger
from lucius.core import callbacks, retry, turn
from lucius.core.effects import Event, Outcome
from lucius.core.inputs import Callback, ResultReceived
from lucius.core.job import Job, Step, StepState
from lucius.core.turn import Turn
from lucius.engine.temporal import invoker


@contextmanager
def together(*patches: AbstractContextManager[Any]) -> Iterator[None]:
    """A guard that each engine has in a place of its own is taken out of both."""
    with ExitStack() as stack:
        for each in patches:
            stack.enter_context(each)
        yield


def nobody_looks_again_while(state: StepState) -> AbstractContextManager[Any]:
    """A job with a step in this state is not due before its SLA, and its workflow sets no other timer."""
    wakes = invoker._wake_at

    def due_at(job: Job) -> datetime | None:
        return job.sla_at if any(s.state is state for s in job.steps) else retry.due_at(job)

    def wake_at(job: Job) -> datetime:
        return job.sla_at if any(s.state is state for s in job.steps) else wakes(job)

    return together(
        patch.object(turn, "due_at", due_at), patch.object(invoker, "_wake_at", wake_at)
    )


@contextmanager
def standing_of(change: Callable[[Turn, Step, Callback, Outcome], Outcome]) -> Iterator[None]:
    """Whether a callback counts is judged otherwise."""
    judged = callbacks._standing

    def standing(draft: Turn, step: Step, received: Callback) -> Outcome:
        return change(draft, step, received, judged(draft, step, received))

    with patch.object(callbacks, "_standing", standing):
        yield


def no_implied_ack() -> AbstractContextManager[Any]:
    """A RESULT counts only once its ACK has been seen."""

    def change(draft: Turn, step: Step, received: Callback, judged: Outcome) -> Outcome:
        early = step.unacked and isinstance(received, ResultReceived)
        return Outcome.STALE if early else judged

    return standing_of(change)


def no_lease_check() -> AbstractContextManager[Any]:
    """A callback counts while its step is out, whatever lease it speaks for."""

    def change(draft: Turn, step: Step, received: Callback, judged: Outcome) -> Outcome:
        return Outcome.APPLIED if step.out else judged

    return standing_of(change)


def no_second_thought() -> AbstractContextManager[Any]:
    """An attempt that was given up for silence stays given up."""
    return patch.object(callbacks, "PRESUMED_DEAD", ())


def no_compare_and_swap() -> AbstractContextManager[Any]:
    """Whoever saves last wins, whatever it had read."""
    save = MemoryLedger.save

    async def overwrite(
        self: MemoryLedger, job: Job, expected: int, events: Sequence[Event]
    ) -> bool:
        record = self.jobs[job.job_id]
        return await save(self, job, record.job.version, events)

    return patch.object(MemoryLedger, "save", overwrite)
