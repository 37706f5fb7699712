"""A write that was done although the ledger did not say so: what it left to do is done all the same."""

from collections.abc import Sequence

import pytest

from lucius.core.effects import Event
from lucius.core.errors import LedgerUnavailableError
from lucius.core.job import Job
from lucius.core.states import JobState
from lucius.ledgers.memory import MemoryLedger
from lucius.ports.ledger import NO_LIMITS, Claim, CreateOutcome, Limits
from tests.engine.world import Timed, World
from tests.virtual import VirtualLoop, run_virtually


class Speechless(MemoryLedger):
    """Every third write is done, and its answer is lost. `creates`: only those that create a job."""

    def __init__(self, *, creates: bool) -> None:
        super().__init__()
        self._creates = creates
        self._written = 0

    def _answer(self, *, create: bool) -> None:
        self._written += create is self._creates
        if create is self._creates and self._written % 3 == 0:
            raise LedgerUnavailableError("the answer is lost")

    async def create(
        self, claim: Claim, job: Job, events: Sequence[Event], limits: Limits = NO_LIMITS
    ) -> CreateOutcome:
        outcome = await super().create(claim, job, events, limits)
        self._answer(create=True)
        return outcome

    async def save(self, job: Job, expected: int, events: Sequence[Event]) -> bool:
        saved = await super().save(job, expected, events)
        self._answer(create=False)
        return saved


async def submitted(world: World, number: int) -> str:
    """As a client that asks again: its key makes both requests one."""
    try:
        return await world.submit(number=number, idempotency_key=f"key-{number}")
    except LedgerUnavailableError:
        return await world.submit(number=number, idempotency_key=f"key-{number}")


@pytest.mark.parametrize("creates", [True, False])
def test_every_job_ends_and_no_window_stays_taken(creates: bool) -> None:
    async def main(loop: VirtualLoop) -> None:
        services = [Timed("ocr", 1.0), Timed("embedding", 0), Timed("sis", 0)]
        ledger = Speechless(creates=creates)
        async with World(loop, ledger=ledger, services=[*services], slots=1).running() as world:
            for job_id in [await submitted(world, number) for number in range(20)]:
                ended = await world.engine.ended(job_id, 3600)
                assert ended is not None
                assert ended.state is JobState.SUCCEEDED
            rows = await world.engine.backlog()
            assert [row for row in rows if row["held"] or row["released"]] == []

    run_virtually(main)
