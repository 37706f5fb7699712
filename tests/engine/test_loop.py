"""The engine's loop: bounded turns, one order for each job, one batch for the ledger, and exact failures."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from traceback import extract_tb
from typing import Any
from unittest.mock import patch

import pytest

from lucius.adapters.ledgers.memory import MemoryLedger
from lucius.core.decide import decide as decides
from lucius.core.effects import Committed, Event, Outcome
from lucius.core.errors import LedgerUnavailableError
from lucius.core.inputs import (
    CancelRequested,
    Input,
    PauseRequested,
    ResumeRequested,
)
from lucius.core.job import Job, JobState
from lucius.engine import inbox, loop
from lucius.engine.inbox import A_TURN, Inbox, Request
from lucius.ports.engine import Applied
from lucius.ports.ledger import AnswerWrites, CreateOutcome, Write
from tests.engine.world import World, envelope
from tests.virtual import VirtualLoop, run_virtually


class SlowLedger(MemoryLedger):
    """A save takes a second. It counts saves that are under way together, and fails those it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.saving: Counter[str] = Counter()
        self.most = 0
        self.saves = self.batches = 0
        self.away: set[str] = set()
        self.overtakes = 0

    async def save(self, job: Job, expected: int, events: Sequence[Event]) -> bool:
        self.saves += 1
        self.saving[job.job_id] += 1
        self.most = max(self.most, self.saving[job.job_id])
        try:
            await asyncio.sleep(1)
            if job.job_id in self.away:
                raise LedgerUnavailableError("away")
            if self.overtakes:
                self.overtakes -= 1
                return False
            return await super().save(job, expected, events)
        finally:
            self.saving[job.job_id] -= 1

    async def save_all(self, writes: Sequence[Write], answered: AnswerWrites) -> None:
        self.batches += 1
        await super().save_all(writes, answered)


Body = Callable[[World, SlowLedger, list[str]], Awaitable[None]]


def with_jobs(count: int, body: Body, listeners: Sequence[Any] = ()) -> None:
    async def main(virtual: VirtualLoop) -> None:
        ledger = SlowLedger()
        world = World(virtual, ledger=ledger, listeners=listeners)
        ids = [await world.submit(number=number) for number in range(count)]
        ledger.batches = 0
        await body(world, ledger, ids)
        await world.outbox.tasks.close()

    run_virtually(main)


def apply(world: World, job_id: str, received: Input) -> "asyncio.Task[Applied | None]":
    return asyncio.create_task(world.engine.apply(job_id, received))


# -- a turn is bounded -----------------------------------------------------------------------


def most_in_a_turn(count: int) -> int:
    """Of so many submissions that come together: how many are answered between two looks of somebody else."""

    async def main(virtual: VirtualLoop) -> int:
        world, submitted, seen = World(virtual), 0, list[int]()

        async def submit(number: int) -> None:
            nonlocal submitted
            await world.engine.submit(envelope(number=number))
            submitted += 1

        async def look() -> None:
            while submitted < count:
                seen.append(submitted)
                await asyncio.sleep(0)

        await asyncio.gather(look(), *(submit(number) for number in range(count)))
        return max(after - before for before, after in pairwise([*seen, submitted]))

    return run_virtually(main)


def test_submissions_that_come_together_leave_turns_to_others() -> None:
    assert most_in_a_turn(100) <= A_TURN


def test_without_the_bound_one_turn_takes_all() -> None:
    with patch.object(inbox, "A_TURN", 1_000):
        assert most_in_a_turn(100) == 100


def test_what_comes_together_is_one_batch() -> None:
    async def body(world: World, ledger: SlowLedger, ids: list[str]) -> None:
        await asyncio.gather(*(apply(world, each, PauseRequested()) for each in ids))
        assert ledger.batches == 1

    with_jobs(A_TURN, body)


def test_there_is_no_task_for_each_job() -> None:
    async def body(world: World, ledger: SlowLedger, ids: list[str]) -> None:
        spawned, spawn = 0, world.outbox.tasks.spawn

        def counted(work: Any) -> None:
            nonlocal spawned
            spawned += 1
            spawn(work)

        with patch.object(world.outbox.tasks, "spawn", counted):
            await asyncio.gather(*(apply(world, each, PauseRequested()) for each in ids))
        assert spawned == 1

    with_jobs(A_TURN, body)


# -- decisions about one job follow one another ----------------------------------------------


def saves_of_one_job_together(guard: AbstractContextManager[Any]) -> tuple[int, JobState]:
    found: list[tuple[int, JobState]] = []

    async def body(world: World, ledger: SlowLedger, ids: list[str]) -> None:
        for received in (PauseRequested(), ResumeRequested(), PauseRequested()):
            apply(world, ids[0], received)
            await asyncio.sleep(0.1)
        await asyncio.sleep(30)
        job = await ledger.load(ids[0])
        assert job is not None
        found.append((ledger.most, job.state))

    with guard:
        with_jobs(1, body)
    return found[0]


def test_decisions_about_one_job_follow_one_another() -> None:
    assert saves_of_one_job_together(nullcontext()) == (1, JobState.PAUSING)


def test_without_the_mailbox_two_saves_of_a_job_are_under_way_together() -> None:
    def mail_of(self: Inbox, job_id: str) -> list[Request]:
        return self._mail.pop(job_id)

    def free(self: Inbox, job_id: str) -> None: ...

    with patch.object(Inbox, "free", free):
        most, _ = saves_of_one_job_together(patch.object(Inbox, "mail_of", mail_of))
    assert most > 1


def test_decisions_about_different_jobs_do_not_wait() -> None:
    async def body(world: World, ledger: SlowLedger, ids: list[str]) -> None:
        slow = [apply(world, ids[0], PauseRequested())]
        await asyncio.sleep(0.9)
        slow.append(apply(world, ids[0], ResumeRequested()))
        await apply(world, ids[1], PauseRequested())
        assert [each.done() for each in slow] == [True, False]
        await asyncio.gather(*slow)

    with_jobs(2, body)


def test_who_gives_up_waiting_is_not_served_and_keeps_nobody() -> None:
    async def body(world: World, ledger: SlowLedger, ids: list[str]) -> None:
        under_way = apply(world, ids[0], PauseRequested())
        await asyncio.sleep(0.1)
        given_up, kept = (
            apply(world, ids[0], each) for each in (CancelRequested(), ResumeRequested())
        )
        await asyncio.sleep(0.1)
        given_up.cancel()
        await asyncio.gather(under_way, kept)
        job = await ledger.load(ids[0])
        assert job is not None
        assert job.cancel_requested_at is None

    with_jobs(1, body)


# -- what fails, fails exactly ---------------------------------------------------------------


def test_a_ledger_that_fails_in_the_middle_of_a_batch_fails_exactly_those_jobs() -> None:
    told: list[str] = []

    async def body(world: World, ledger: SlowLedger, ids: list[str]) -> None:
        told.clear()
        ledger.away = {ids[1], ids[4]}
        asked = [apply(world, each, PauseRequested()) for each in ids]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert ledger.batches == 1
        failed = [isinstance(each, LedgerUnavailableError) for each in answers]
        assert failed == [each in ledger.away for each in ids]
        assert sorted(told) == sorted(each for each in ids if each not in ledger.away)
        ledger.away = set()
        again = await asyncio.gather(*(apply(world, each, PauseRequested()) for each in ids))
        outcomes = [each.outcome for each in again if each]
        assert outcomes.count(Outcome.APPLIED) == 2, "they can be moved again"
        for each in ids:
            job = await ledger.load(each)
            assert job is not None
            assert job.state in (JobState.PAUSING, JobState.PAUSED)

    with_jobs(6, body, [lambda commit: told.append(commit.job.job_id)])


def test_a_decision_that_cannot_be_made_fails_alone() -> None:
    async def body(world: World, ledger: SlowLedger, ids: list[str]) -> None:
        good, bad = PauseRequested(), CancelRequested(reason="defect")

        def decide(job: Job, received: Input, now: Any) -> Any:
            if received is bad:
                raise ValueError("a defect")
            return decides(job, received, now)

        with patch.object(loop, "decide", decide):
            asked = [
                apply(world, ids[0], bad),
                apply(world, ids[0], good),
                apply(world, ids[1], good),
            ]
            answers = await asyncio.gather(*asked, return_exceptions=True)
        assert isinstance(answers[0], ValueError)
        assert [each.outcome for each in answers[1:]] == [Outcome.APPLIED] * 2  # type: ignore[union-attr]

    with_jobs(2, body)


def test_a_listener_that_fails_fails_its_job_alone_and_keeps_it_free() -> None:
    poisoned: list[str] = []

    def listen(commit: Committed) -> None:
        if commit.job.job_id in poisoned:
            raise ValueError("a defect")

    async def body(world: World, ledger: SlowLedger, ids: list[str]) -> None:
        poisoned.append(ids[0])
        asked = [apply(world, each, PauseRequested()) for each in ids]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert [isinstance(each, ValueError) for each in answers] == [True, False]
        poisoned.clear()
        again = await world.engine.apply(ids[0], PauseRequested())
        assert again is not None
        assert again.outcome is Outcome.ALREADY, "it was saved, whatever the listener did"

    with_jobs(2, body, [listen])


def test_one_error_that_fails_many_requests_is_reported_with_its_own_trace() -> None:
    """Each request raises it again. The thousandth report is no longer than the first."""
    defect, depths = ValueError("a defect"), list[int]()

    class Broken(SlowLedger):
        async def save_all(self, writes: Sequence[Write], answered: AnswerWrites) -> None:
            raise defect

    async def main(virtual: VirtualLoop) -> None:
        ledger = Broken()
        world = World(virtual, ledger=ledger)
        virtual.set_exception_handler(
            lambda _, context: depths.append(len(extract_tb(context["exception"].__traceback__)))
        )
        with patch.object(Broken, "save_all", SlowLedger.save_all):
            job_id = await world.submit()
        for _ in range(9):
            world.engine.post(inbox.unawaited(job_id, PauseRequested()))
        await asyncio.sleep(1)
        await world.outbox.tasks.close()

    run_virtually(main)
    assert len(depths) == 9
    assert depths[0] == depths[-1]


def test_races_are_not_lost_for_ever() -> None:
    async def body(world: World, ledger: SlowLedger, ids: list[str]) -> None:
        ledger.overtakes = 10 * loop.RACES
        with pytest.raises(LedgerUnavailableError, match="faster than by us"):
            await world.engine.apply(ids[0], PauseRequested())
        assert ledger.saves == loop.RACES
        ledger.overtakes = 0
        applied = await world.engine.apply(ids[0], PauseRequested())
        assert applied is not None
        assert applied.outcome is Outcome.APPLIED

    with_jobs(1, body)


def test_a_create_that_fails_leaves_room_for_others() -> None:
    class Picky(SlowLedger):
        async def create(self, *write: Any) -> CreateOutcome:
            if write[1].plan.tenant_id == "bad":
                raise LedgerUnavailableError("away")
            return await super().create(*write)

    async def main(virtual: VirtualLoop) -> None:
        world = World(virtual, ledger=Picky())
        tenants = ["good", "bad", "good", "bad"]
        asked = [world.submit(tenant_id=each, number=n) for n, each in enumerate(tenants)]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert [isinstance(each, LedgerUnavailableError) for each in answers] == [False, True] * 2
        windows = world.outbox.windows.snapshot().values()
        assert sum(out for out, *_ in windows) == 2, "no room is left reserved"
        await world.outbox.tasks.close()

    run_virtually(main)
