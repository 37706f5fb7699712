"""FM_017: the disk is full. On SQLite itself, and for the engine above it."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from lucius.adapters.buses.memory import MemoryBus
from lucius.adapters.ledgers.memory import MemoryLedger
from lucius.adapters.ledgers.sqlite.ledger import SqliteLedger
from lucius.adapters.ledgers.sqlite.writer import Writer
from lucius.core.effects import Event
from lucius.core.errors import LedgerUnavailableError
from lucius.core.job import Job, JobState
from lucius.engine.admission.ingress import Ingress
from lucius.ports.ledger import NO_LIMITS, Claim, CreateOutcome, Limits
from tests.engine.world import envelope
from tests.faults.services import Scribe
from tests.faults.stage import PACKAGED, Stage, staged
from tests.virtual import EPOCH
from tests.wiring import outbox

# -- SQLite ----------------------------------------------------------------------------------


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[SqliteLedger]:
    opened = await SqliteLedger.open(tmp_path / "ledger.db")
    yield opened
    await opened.close()


def connection(ledger: SqliteLedger) -> sqlite3.Connection:
    return ledger._writing()._conn


def fill_disk(ledger: SqliteLedger, spare_pages: int) -> None:
    """SQLite meets the end of the file system after so many more pages."""
    (pages,) = connection(ledger).execute("PRAGMA page_count").fetchone()
    connection(ledger).execute(f"PRAGMA max_page_count = {pages + spare_pages}")


def free_disk(ledger: SqliteLedger) -> None:
    connection(ledger).execute("PRAGMA max_page_count = 1000000")


async def submitted(ledger: SqliteLedger, numbers: Sequence[int]) -> dict[int, str]:
    """The jobs that were accepted, by number."""
    engine = outbox(ledger, MemoryBus(), Ingress(PACKAGED), now=lambda: EPOCH).engine
    accepted: dict[int, str] = {}
    for number in numbers:
        try:
            answer = await engine.submit(envelope(request_type="OCR", number=number))
            accepted[number] = answer.job_id
        except LedgerUnavailableError:
            pass
    return accepted


async def missing(ledger: SqliteLedger, accepted: dict[int, str]) -> list[str]:
    return [job_id for job_id in accepted.values() if await ledger.load(job_id) is None]


async def test_fm_017_reproduce_answers_before_the_commit_promise_jobs_that_are_not_there(
    ledger: SqliteLedger,
) -> None:
    fill_disk(ledger, 4)
    with patch.object(Writer, "_fail", lambda self, operations, error: None):
        accepted = await submitted(ledger, range(60))
    assert len(accepted) == 60
    assert await missing(ledger, accepted)


async def test_fm_017_prevent_nothing_is_acknowledged_that_is_not_stored(
    ledger: SqliteLedger,
) -> None:
    fill_disk(ledger, 4)
    accepted = await submitted(ledger, range(60))
    assert 0 < len(accepted) < 60
    assert not await missing(ledger, accepted)
    assert (await ledger.inflight()).total == len(accepted)
    assert not await ledger.verify()


async def test_fm_017_recover_when_space_returns_the_same_requests_are_accepted(
    ledger: SqliteLedger,
) -> None:
    fill_disk(ledger, 4)
    before = await submitted(ledger, range(60))
    free_disk(ledger)
    after = await submitted(ledger, range(60))
    assert len(after) == 60
    assert before.items() <= after.items(), "who was accepted stays accepted"
    assert not await missing(ledger, after)
    assert not await ledger.verify()


# -- the engine ------------------------------------------------------------------------------


class FullDisk(MemoryLedger):
    """Reads work; no write does while it is full."""

    def __init__(self) -> None:
        super().__init__()
        self.full = False

    def _check(self) -> None:
        if self.full:
            raise LedgerUnavailableError("database or disk is full")

    async def create(
        self, claim: Claim, job: Job, events: Sequence[Event], limits: Limits = NO_LIMITS
    ) -> CreateOutcome:
        self._check()
        return await super().create(claim, job, events, limits)

    async def save(self, job: Job, expected: int, events: Sequence[Event]) -> bool:
        self._check()
        return await super().save(job, expected, events)


async def full_for(stage: Stage, ledger: FullDisk, seconds: float) -> None:
    ledger.full = True
    await asyncio.sleep(seconds)
    ledger.full = False


async def on_a_full_disk(stage: Stage) -> tuple[Any, FullDisk]:
    stage.ledger = ledger = FullDisk()
    return await stage.orchestrator(), ledger


@staged
async def test_fm_017_prevent_replies_wait_for_space_and_none_is_set_aside(stage: Stage) -> None:
    lucius, ledger = await on_a_full_disk(stage)
    scribe = Scribe("ocr", 5)
    await stage.worker(scribe)
    job_id = await lucius.submit()
    await asyncio.sleep(2)
    await full_for(stage, ledger, 300)
    job = await stage.finished(job_id, within=120)
    assert job.state is JobState.SUCCEEDED
    assert len(job.steps[0].executions) == 1
    assert await stage.dead_letters() == []


@staged
async def test_fm_017_recover_entries_that_could_not_be_released_are_released_later(
    stage: Stage,
) -> None:
    lucius, ledger = await on_a_full_disk(stage)
    await stage.worker(Scribe())
    lucius.outbox.windows.close()
    jobs = [await lucius.submit(number=n) for n in range(40)]
    ledger.full = True
    lucius.outbox.windows.reopen()
    lucius.outbox.releases.pump_all()
    await full_for(stage, ledger, 300)
    for job_id in jobs:
        job = await stage.finished(job_id, within=60)
        assert job.state is JobState.SUCCEEDED


@staged
async def test_fm_017_recover_a_refusal_that_could_not_be_saved_does_not_stop_the_dispatcher(
    stage: Stage,
) -> None:
    lucius, ledger = await on_a_full_disk(stage)
    await stage.worker(Scribe())
    gate = lucius.points.hold("before bus.publish")
    job_id = await lucius.submit()
    await gate.reached()
    stage.bus.refuse = lambda message: True
    ledger.full = True
    gate.open()
    await full_for(stage, ledger, 60)
    stage.bus.refuse = lambda message: False
    assert (await stage.finished(job_id)).state is JobState.SUCCEEDED
