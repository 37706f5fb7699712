"""A claim whose job was never written: whoever repeats the request completes it under the same id."""

import asyncio
from collections.abc import Sequence

import pytest

from lucius.adapters.ledgers.memory import MemoryLedger
from lucius.core.effects import Event
from lucius.core.errors import LedgerUnavailableError, RequestError
from lucius.core.job import Job, JobState
from lucius.ports.ledger import (
    NO_LIMITS,
    Claim,
    CreateOutcome,
    KeyReused,
    Limits,
    Taken,
    Unfinished,
)
from tests.engine.world import Timed, World, envelope
from tests.virtual import VirtualLoop, run_virtually


class InTwoSteps(MemoryLedger):
    """It claims first and writes the job afterwards, and the first process dies in between."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: dict[str, tuple[Claim, Unfinished]] = {}

    async def claimed(self, claim: Claim) -> Taken | None:
        begun = self.begun.get(claim.claim_hash)
        if begun is not None and begun[0].body_hash != claim.body_hash:
            return KeyReused(begun[1].job_id)
        return begun[1] if begun is not None else await super().claimed(claim)

    async def create(
        self, claim: Claim, job: Job, events: Sequence[Event], limits: Limits = NO_LIMITS
    ) -> CreateOutcome:
        begun = self.begun.get(claim.claim_hash)
        if begun is None and not self.jobs:
            self.begun[claim.claim_hash] = (claim, Unfinished(job.job_id, job.plan.accepted_at))
            raise LedgerUnavailableError("the process died")
        if begun is not None and begun[1] == Unfinished(job.job_id, job.plan.accepted_at):
            del self.begun[claim.claim_hash]
        return await self.claimed(claim) or await super().create(claim, job, events, limits)


def test_a_duplicate_completes_the_job_under_the_claimed_id() -> None:
    async def main(loop: VirtualLoop) -> None:
        ledger, services = InTwoSteps(), [Timed(n, 0.1) for n in ("ocr", "embedding", "sis")]
        async with World(loop, ledger=ledger, services=[*services]).running() as world:
            with pytest.raises(LedgerUnavailableError):
                await world.engine.submit(envelope(), idempotency_key="once")
            (claimed,) = [begun.job_id for _, begun in ledger.begun.values()]
            await asyncio.sleep(7)
            with pytest.raises(RequestError, match="different request"):
                await world.engine.submit(envelope(number=2), idempotency_key="once")
            again = await world.engine.submit(envelope(), idempotency_key="once")
            assert (again.job_id, again.duplicate) == (claimed, False)
            assert (await world.finished(claimed))["state"] is JobState.SUCCEEDED
            third = await world.engine.submit(envelope(), idempotency_key="once")
            assert (third.job_id, third.duplicate) == (claimed, True)

    run_virtually(main)
