"""FM_010: the same request arrives many times at once."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from unittest.mock import patch

import pytest

from lucius.adapters.buses.memory import MemoryBus
from lucius.adapters.ledgers import memory
from lucius.adapters.ledgers.memory import MemoryLedger
from lucius.adapters.ledgers.sqlite import batch as sqlite_batch
from lucius.adapters.ledgers.sqlite.ledger import SqliteLedger
from lucius.core.job import JobState
from lucius.engine.admission.ingress import Ingress
from lucius.ports.engine import Submitted
from lucius.ports.ledger import JobQuery, Ledger
from tests.engine.world import envelope
from tests.faults.services import Scribe
from tests.faults.stage import PACKAGED, Stage, staged
from tests.virtual import EPOCH
from tests.wiring import outbox

AT_ONCE = 100


@pytest.fixture(params=["memory", "sqlite"])
async def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ledger]:
    opened: Ledger = (
        MemoryLedger()
        if request.param == "memory"
        else await SqliteLedger.open(tmp_path / "ledger.db")
    )
    yield opened
    await opened.close()


async def race(ledger: Ledger, **options: str) -> list[Submitted]:
    """Two processes, fifty requests each, all at the same moment."""
    engines = [
        outbox(ledger, MemoryBus(), Ingress(PACKAGED), now=lambda: EPOCH).engine for _ in range(2)
    ]
    requests = [
        engines[number % 2].submit(envelope(request_type="OCR"), **options)
        for number in range(AT_ONCE)
    ]
    return await asyncio.gather(*requests)


async def stored(ledger: Ledger) -> set[str]:
    page = await ledger.list(JobQuery(limit=2 * AT_ONCE))
    return {job.job_id for job in page.jobs}


async def test_fm_010_reproduce_without_the_claim_every_request_makes_a_job(
    ledger: Ledger,
) -> None:
    module = memory if isinstance(ledger, MemoryLedger) else sqlite_batch
    with patch.object(module, "existing_claim", lambda claim, held: None):
        answers = await race(ledger)
    assert len({answer.job_id for answer in answers}) == AT_ONCE


@pytest.mark.parametrize("options", [{}, {"idempotency_key": "k"}], ids=["by body", "by key"])
async def test_fm_010_prevent_one_request_makes_the_job_and_the_others_are_told_of_it(
    ledger: Ledger, options: dict[str, str]
) -> None:
    answers = await race(ledger, **options)
    assert {answer.job_id for answer in answers} == await stored(ledger)
    assert [answer.duplicate for answer in answers].count(False) == 1
    assert (await ledger.inflight()).total == 1
    assert not await ledger.verify()


@staged
async def test_fm_010_recover_after_a_crash_before_the_answer_the_repetition_finds_the_job(
    stage: Stage,
) -> None:
    first = await stage.orchestrator()
    gate = first.points.crash("after ledger.create")
    unanswered = asyncio.create_task(first.submit())
    await first.dies(gate)
    unanswered.cancel()
    second = await stage.orchestrator()
    await stage.worker(Scribe())
    answer = await second.engine.submit(envelope(request_type="OCR"))
    assert answer.duplicate
    job = await stage.finished(answer.job_id)
    assert job.state is JobState.SUCCEEDED
    assert len(stage.ledger.jobs) == 1
