"""What an owner counts of a job that other processes move, or whose lane changes hands."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from lucius.adapters.ledgers.memory import MemoryLedger
from lucius.core.effects import Event
from lucius.core.errors import LedgerUnavailableError
from lucius.core.inputs import AckReceived, ResultReceived, ResultStatus
from lucius.core.job import Job
from lucius.engine.notices import Nudges
from lucius.engine.releases import Releases
from tests.engine.apart import Apart, Process
from tests.simulation.planted import lost_lane_counted
from tests.virtual import VirtualLoop, run_virtually

OUT, IN_PROGRESS = [(1, 0)], [(0, 1)]


class Held(MemoryLedger):
    """Once it is told to, it does the next save at once, and answers when it is told to go on.

    It does not answer the next `unanswered` reads.
    """

    def __init__(self) -> None:
        super().__init__()
        self.holds, self.saved, self.go_on = False, asyncio.Event(), asyncio.Event()
        self.unanswered = 0

    async def load(self, job_id: str) -> Job | None:
        if self.unanswered:
            self.unanswered -= 1
            raise LedgerUnavailableError("no answer came")
        return await super().load(job_id)

    async def save(self, job: Job, expected: int, events: Sequence[Event]) -> bool:
        saved = await super().save(job, expected, events)
        if self.holds:
            self.holds = False
            self.saved.set()
            await self.go_on.wait()
        return saved


class Untaken:
    """A job of one step whose directive is out, and that no service takes."""

    def __init__(self, world: Apart, owner: Process, asking: Process) -> None:
        self.world, self.owner, self.asking = world, owner, asking
        self.job_id = self.lease_id = ""

    async def submitted(self) -> None:
        self.job_id = await self.world.submit(self.asking, request_type="OCR", payload={})
        await asyncio.sleep(5)
        job = await self.asking.parts.engine.job(self.job_id)
        assert job is not None
        self.lease_id = job.steps[0].executions[-1].exec_id

    async def acknowledged(self, at: Process) -> None:
        await at.parts.engine.apply(self.job_id, AckReceived("ocr", 1, self.lease_id))

    async def ended(self, at: Process) -> None:
        bound = ("ocr", 1, self.lease_id)
        result = ResultReceived(*bound, ResultStatus.SUCCEEDED, "s3://bucket/out")
        await at.parts.engine.apply(self.job_id, result)


def counted(process: Process) -> list[tuple[int, int]]:
    """By line and lane, what is out, and what is in progress."""
    return list(process.parts.windows.snapshot().values())


def untaken(story: Callable[[Untaken], Awaitable[None]]) -> None:
    async def main(loop: VirtualLoop) -> None:
        async with Apart(loop, ledger=Held()).running() as world:
            job = Untaken(world, await world.owner("owner-1"), await world.orchestrator("asks"))
            await job.submitted()
            assert counted(job.owner) == OUT
            await story(job)

    run_virtually(main)


@pytest.fixture
def nobody_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Nudges, "put", lambda self, job: None)


def test_an_ack_at_another_process_makes_room_at_once() -> None:
    async def story(job: Untaken) -> None:
        await job.acknowledged(job.asking)
        await asyncio.sleep(0.5)
        assert counted(job.owner) == IN_PROGRESS

    untaken(story)


@pytest.mark.usefixtures("nobody_is_told")
def test_an_ack_at_another_process_that_tells_nobody_makes_room_in_a_while() -> None:
    async def story(job: Untaken) -> None:
        await job.acknowledged(job.asking)
        await asyncio.sleep(70)
        assert counted(job.owner) == IN_PROGRESS

    untaken(story)


async def taken_over(job: Untaken) -> Process:
    """By another owner, which has published nothing of what is out."""
    await job.owner.kill()
    owner = await job.world.owner("owner-2")
    await asyncio.sleep(20)
    assert counted(owner) == OUT
    return owner


@pytest.mark.usefixtures("nobody_is_told")
@pytest.mark.parametrize("looks", [True, False])
def test_an_owner_that_has_taken_the_lane_over_hears_of_what_its_predecessor_saved_last(
    looks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose answer was lost, or who died before it told anybody: the same as an ACK elsewhere."""
    if not looks:
        monkeypatch.setattr(Releases, "look_again", lambda self: None)

    async def story(job: Untaken) -> None:
        owner = await taken_over(job)
        await job.acknowledged(job.asking)
        await asyncio.sleep(70)
        assert counted(owner) == (IN_PROGRESS if looks else OUT)

    untaken(story)


@pytest.mark.usefixtures("nobody_is_told")
@pytest.mark.parametrize("again", [True, False])
def test_a_look_that_the_ledger_did_not_answer_is_made_again(
    again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If there were no other, the attempt would count as out for ever."""

    async def story(job: Untaken) -> None:
        ledger = job.world.ledger
        assert isinstance(ledger, Held)
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        await job.acknowledged(job.asking)
        ledger.unanswered = 1
        await asyncio.sleep(70)
        assert (ledger.unanswered, counted(job.owner)) == (0, OUT)
        if not again:
            monkeypatch.setattr(Releases, "look_again", lambda self: None)
        await asyncio.sleep(70)
        assert counted(job.owner) == (IN_PROGRESS if again else OUT)

    untaken(story)


@pytest.mark.usefixtures("nobody_is_told")
def test_what_has_ended_elsewhere_unheard_is_in_progress_no_longer_than_its_lease() -> None:
    async def story(job: Untaken) -> None:
        await job.acknowledged(job.owner)
        await job.ended(job.asking)
        assert counted(job.owner) == IN_PROGRESS
        await asyncio.sleep(1000)
        assert counted(job.owner) == []

    untaken(story)


@pytest.mark.parametrize("planted", [nullcontext, lost_lane_counted])
def test_a_save_that_is_answered_after_its_lane_has_gone_counts_only_at_the_new_owner(
    planted: Callable[[], AbstractContextManager[Any]],
) -> None:
    async def story(job: Untaken) -> None:
        ledger = job.world.ledger
        assert isinstance(ledger, Held)
        ledger.holds = True
        ack = asyncio.create_task(job.acknowledged(job.owner))
        await ledger.saved.wait()
        other = await job.world.owner("owner-2")
        await asyncio.sleep(10)
        assert counted(job.owner) == []
        ledger.go_on.set()
        await ack
        assert counted(other) == IN_PROGRESS
        assert counted(job.owner) == ([] if planted is nullcontext else IN_PROGRESS)

    with planted():
        untaken(story)
