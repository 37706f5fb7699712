"""What the ledger cannot write is answered with a code, and `/readyz` says so until it can again."""

import logging
import sqlite3
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from lucius.adapters.ledgers.sqlite import queries, writer
from lucius.adapters.ledgers.sqlite.batch import Batch, Call, WriterCall
from lucius.adapters.ledgers.sqlite.ledger import SqliteLedger
from lucius.app.runtime import Runtime
from tests.faults.test_disk_full import fill_disk, free_disk
from tests.observability.served import ENVELOPE, serving, submitted

SQLITE = {"LUCIUS_STORAGE_BACKEND": "sqlite"}
AT_ONCE = timedelta(0)


def sqlite_error(code: int, text: str) -> sqlite3.DatabaseError:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = code
    return error


IO_ERROR = sqlite_error(sqlite3.SQLITE_IOERR, "disk I/O error")
FULL = sqlite_error(sqlite3.SQLITE_FULL, "database or disk is full")
CORRUPT = sqlite_error(sqlite3.SQLITE_CORRUPT, "database disk image is malformed")


class Failing:
    """Stands for `Batch.run`: fails while there is an error to fail with, and counts."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.error: Exception | None = None
        self.probes = 0
        run = Batch.run

        def failing(batch: Batch, operations: Sequence[WriterCall]) -> None:
            self.probes += sum(isinstance(operation, Call) for operation in operations)
            if self.error is not None:
                raise self.error
            run(batch, operations)

        patch.setattr(Batch, "run", failing)


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> Failing:
    return Failing(monkeypatch)


def ledger_of(runtime: Runtime) -> SqliteLedger:
    assert isinstance(runtime.ledger, SqliteLedger)
    return runtime.ledger


async def post(client: httpx.AsyncClient, number: int) -> httpx.Response:
    return await client.post("/v1/orchestrate", json={**ENVELOPE, "payload": {"n": number}})


async def ready(client: httpx.AsyncClient) -> tuple[int, str]:
    answer = await client.get("/readyz")
    return answer.status_code, answer.json()["checks"]["ledger"]


async def test_fm_017_prevent_a_full_disk_is_not_ready_and_space_is_noticed_without_traffic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "PROBE_PAUSE", AT_ONCE)
    async with serving(tmp_path, (), **SQLITE) as (runtime, client):
        assert await ready(client) == (200, "ok")
        fill_disk(ledger_of(runtime), 0)
        answers = [await post(client, n) for n in range(40)]
        assert answers[-1].status_code == 503
        assert answers[-1].json()["code"] == "LEDGER_UNAVAILABLE"
        status, text = await ready(client)
        assert status == 503
        assert "full" in text
        free_disk(ledger_of(runtime))
        assert await ready(client) == (200, "ok")
        await submitted(client, payload={"n": 99})
        assert await runtime.ledger.verify() == []


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (FULL, "LEDGER_UNAVAILABLE"),
        (IO_ERROR, "LEDGER_UNAVAILABLE"),
        (CORRUPT, "LEDGER_CORRUPT"),
        (MemoryError("a defect"), "LEDGER_UNAVAILABLE"),
    ],
    ids=["full", "i/o error", "corrupt page", "defect"],
)
async def test_a_write_that_fails_has_a_code_and_makes_it_unready(
    tmp_path: Path, storage: Failing, error: Exception, code: str
) -> None:
    async with serving(tmp_path, (), **SQLITE) as (_, client):
        storage.error = error
        answer = await post(client, 1)
        assert (answer.status_code, answer.json()["code"]) == (503, code)
        status, text = await ready(client)
        storage.error = None
    assert status == 503
    assert str(error) in text


async def test_any_write_that_is_taken_makes_it_ready(tmp_path: Path, storage: Failing) -> None:
    async with serving(tmp_path, (), **SQLITE) as (_, client):
        storage.error = IO_ERROR
        await post(client, 1)
        assert (await ready(client))[0] == 503
        storage.error = None
        await submitted(client, payload={"n": 2})
        assert await ready(client) == (200, "ok")


async def test_a_damaged_page_stays_said_until_a_restart(tmp_path: Path, storage: Failing) -> None:
    async with serving(tmp_path, (), **SQLITE) as (_, client):
        storage.error = CORRUPT
        await post(client, 1)
        storage.error = None
        await submitted(client, payload={"n": 2})
        assert (await ready(client))[0] == 503
    async with serving(tmp_path, (), **SQLITE) as (_, client):
        assert (await ready(client))[0] == 200


async def test_a_read_of_a_damaged_page_has_a_code_and_makes_it_unready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(*asked: Any) -> Any:
        raise CORRUPT

    async with serving(tmp_path, (), **SQLITE) as (_, client):
        with monkeypatch.context() as patch:
            patch.setattr(queries, "load", damaged)
            answer = await client.get("/v1/jobs/job_0")
        assert (answer.status_code, answer.json()["code"]) == (503, "LEDGER_CORRUPT")
        assert (await ready(client))[0] == 503


async def test_while_writes_fail_many_questions_make_one_probe(
    tmp_path: Path, storage: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "PROBE_PAUSE", timedelta(hours=1))
    async with serving(tmp_path, (), **SQLITE) as (_, client):
        for _ in range(5):
            assert await ready(client) == (200, "ok")
        assert storage.probes == 0, "what is well is not probed"
        storage.error = IO_ERROR
        await post(client, 1)
        for _ in range(5):
            assert (await ready(client))[0] == 503
        assert storage.probes == 1
        storage.error = None


async def test_the_log_says_once_that_writes_fail_and_once_that_they_are_taken(
    tmp_path: Path, storage: Failing, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "lucius.ledger"):
        async with serving(tmp_path, (), **SQLITE) as (_, client):
            storage.error = FULL
            for n in range(3):
                await post(client, n)
            storage.error = None
            await submitted(client)
    said = [record.message for record in caplog.records if record.name == "lucius.ledger"]
    assert [text.partition(":")[0] for text in said] == [
        "the ledger does not take writes",
        "the ledger takes writes again",
    ]
