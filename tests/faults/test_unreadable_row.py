"""One stored job that cannot be read: the process starts, says so, and moves all the others."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import pytest

from lucius.adapters.ledgers.memory import MemoryLedger
from lucius.adapters.ledgers.rules import Unreadable
from lucius.app.runtime import Runtime
from lucius.app.settings import load_settings
from lucius.app.upkeep import verify
from lucius.core.errors import LedgerRowUnreadableError
from lucius.core.job import Job
from lucius.engine.ownership import Ownership
from tests.conformance.ledger_tamper import SqliteTamper
from tests.faults.services import Scribe
from tests.faults.stage import Stage, staged
from tests.observability.served import ended, serving, submitted

SQLITE = {"LUCIUS_STORAGE_BACKEND": "sqlite"}


async def left_behind(data: Path, ruin: str = "document") -> tuple[str, str]:
    """An earlier process left two jobs with a step out; the first cannot be read any more."""
    async with serving(data, (), **SQLITE) as (_, client):
        bad, good = [await submitted(client, payload={"n": n}) for n in range(2)]
    await SqliteTamper(data / "ledger.db").ruin(bad, ruin)
    return bad, good


@asynccontextmanager
async def restarted(data: Path) -> AsyncIterator[tuple[Runtime, httpx.AsyncClient]]:
    async with serving(data, [Scribe("ocr")], **SQLITE) as (runtime, client):
        yield runtime, client


@pytest.mark.parametrize("ruin", ["document", "plan", "steps"])
async def test_the_start_leaves_it_out_and_takes_up_the_others(tmp_path: Path, ruin: str) -> None:
    bad, good = await left_behind(tmp_path, ruin)
    async with restarted(tmp_path) as (_, client):
        await ended(client, good)
        answer = await client.get(f"/v1/jobs/{bad}")
        assert (answer.status_code, answer.json()["code"]) == (500, "LEDGER_ROW_UNREADABLE")
        assert bad in answer.json()["detail"]
        listed = await client.get("/v1/jobs")
        assert [job["jobId"] for job in listed.json()["jobs"]] == [good]


async def test_readiness_stays_and_says_how_many(tmp_path: Path) -> None:
    await left_behind(tmp_path)
    async with restarted(tmp_path) as (_, client):
        ready = await client.get("/readyz")
        scraped = (await client.get("/metrics")).text
    assert (ready.status_code, ready.json()["status"]) == (200, "ready")
    assert ready.json()["warnings"]["ledger"].startswith("1 stored job")
    assert "\nlucius_unreadable_jobs 1.0" in scraped


async def test_ticks_meet_it_once_and_go_on_with_what_else_is_due(tmp_path: Path) -> None:
    """It would be loaded, logged and waited for at every look otherwise."""
    bad, _ = await left_behind(tmp_path)
    loads: list[str] = []
    async with restarted(tmp_path) as (runtime, _):
        load = runtime.ledger.load

        async def counted(job_id: str) -> Any:
            loads.append(job_id)
            return await load(job_id)

        with patch.object(runtime.ledger, "load", counted):
            for _ in range(5):
                await runtime.outbox.ticks.tick_due()
        assert runtime.metrics.incidents.cells.get(("stuck", "due"), 0) == 0
    assert loads.count(bad) == 0


async def test_without_skipping_it_stops_the_start(tmp_path: Path) -> None:
    await left_behind(tmp_path)

    async def unguarded(self: Ownership, job_id: str) -> None:
        await self._engine.job(job_id)

    with (
        patch.object(Ownership, "_take_up", unguarded),
        pytest.raises(LedgerRowUnreadableError),
    ):
        async with restarted(tmp_path):
            pass


async def test_without_leaving_it_out_it_stays_due(tmp_path: Path) -> None:
    bad, good = await left_behind(tmp_path)
    with patch.object(Unreadable, "leave_out", lambda self, found, limit: found):
        async with restarted(tmp_path) as (runtime, client):
            await ended(client, good)
            far = datetime.now(UTC).replace(year=2999)
            due = await runtime.ledger.due(far, range(16), 10)
    assert bad in [found.job_id for found in due]


async def test_verify_names_it_and_goes_on(tmp_path: Path) -> None:
    bad, _ = await left_behind(tmp_path)
    settings = load_settings({"LUCIUS_DATA_DIR": str(tmp_path)})
    found = [(drift.kind, drift.subject) for drift in await verify(settings)]
    assert ("unreadable", bad) in found


# -- replies ---------------------------------------------------------------------------------


class Ruined(MemoryLedger):
    """Jobs of `bad` cannot be read."""

    bad: str | None = None

    async def load(self, job_id: str) -> Job | None:
        if job_id == self.bad:
            raise LedgerRowUnreadableError(job_id, "it is ruined")
        return await super().load(job_id)


@staged
async def test_a_reply_to_it_is_set_aside_with_the_reason(stage: Stage) -> None:
    stage.ledger = ledger = Ruined()
    lucius = await stage.orchestrator()
    puppet = await stage.puppet()
    job_id = await lucius.submit()
    directive = await puppet.take()
    ledger.bad = job_id
    lucius.engine._cache.drop(job_id)
    await puppet.say(directive, "ACK")
    assert await stage.dead_letters() == ["JOB_UNREADABLE"]
