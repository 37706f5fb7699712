"""A write that was done although the ledger did not say so: what it left to do is done all the same."""

import asyncio
from collections.abc import Sequence

from lucius.adapters.ledgers.memory import MemoryLedger
from lucius.core.effects import Event, Outcome
from lucius.core.errors import LedgerUnavailableError
from lucius.core.inputs import AckReceived, ResultReceived, ResultStatus
from lucius.core.job import Job
from tests.engine.world import World
from tests.simulation.planted import doubt_settled_by_what_is_not_saved
from tests.virtual import VirtualLoop, run_virtually


async def submitted(world: World, number: int) -> str:
    """As a client that asks again: its key makes both requests one."""
    try:
        return await world.submit(number=number, idempotency_key=f"key-{number}")
    except LedgerUnavailableError:
        return await world.submit(number=number, idempotency_key=f"key-{number}")


class Fated(MemoryLedger):
    """A save takes a second. The next ones have these fates: done without an answer, or not done."""

    def __init__(self) -> None:
        super().__init__()
        self.fates: list[str] = []

    async def save(self, job: Job, expected: int, events: Sequence[Event]) -> bool:
        fate = self.fates.pop(0) if self.fates else "done"
        await asyncio.sleep(1)
        if fate == "not done":
            raise LedgerUnavailableError("away")
        saved = await super().save(job, expected, events)
        if fate == "unheard":
            raise LedgerUnavailableError("the answer is lost")
        return saved


def out_after_a_release_that_was_not_saved() -> int:
    """The RESULT comes while the ACK is saved, and both are decided anew from what is stored."""

    async def main(loop: VirtualLoop) -> int:
        ledger = Fated()
        world = World(loop, ledger=ledger)
        job_id = await world.submit()
        job = await world.engine.job(job_id)
        assert job is not None
        assert job.steps[0].execution is not None
        bound = ("ocr", 1, job.steps[0].execution.exec_id)
        result = ResultReceived(*bound, ResultStatus.SUCCEEDED, "s3://bucket/out")
        ledger.fates = ["unheard", "not done"]
        ack = asyncio.create_task(world.engine.apply(job_id, AckReceived(*bound)))
        await asyncio.sleep(0.5)
        results = asyncio.create_task(world.engine.apply(job_id, result))
        failures = await asyncio.gather(ack, results, return_exceptions=True)
        assert {type(each) for each in failures} == {LedgerUnavailableError}
        applied = await world.engine.apply(job_id, result)
        assert applied is not None
        assert applied.outcome is Outcome.APPLIED
        await asyncio.sleep(10)
        await world.outbox.tasks.close()
        return sum(out for out, _ in world.outbox.windows.snapshot().values())

    return run_virtually(main)


def test_a_release_that_is_decided_beside_a_write_in_doubt_and_not_saved_takes_no_room() -> None:
    assert out_after_a_release_that_was_not_saved() == 1


def test_if_what_the_turn_makes_of_it_counted_it_would() -> None:
    with doubt_settled_by_what_is_not_saved():
        assert out_after_a_release_that_was_not_saved() == 2
