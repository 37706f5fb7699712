"""Records of begun and done work in an Azure table: chosen by a setting, few requests, old rows go."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from lucius.adapters.ledgers.azure.opening import open_tables
from lucius.adapters.ledgers.azure.records import KEPT, TableRecords
from lucius.app.adapters import open_records, open_workspace
from lucius.app.settings import Settings, load_settings
from lucius.core.errors import LuciusError
from lucius.core.ids import new_job_id
from lucius.platform import WorkspaceRecords
from lucius.platform.messages import Directive, parse_directive
from lucius.platform.records import MINE, Begun
from tests.azurite_server import shared_azurite
from tests.memory_tables import MemoryTables

NOW = datetime(2026, 5, 1, tzinfo=UTC)
RESULT = {"status": "SUCCEEDED", "output_ref": None}


def work(job_id: str = "job_1") -> Directive:
    return parse_directive(
        {
            "jobId": job_id,
            "stepId": "ocr",
            "tenant_id": "tenant_a",
            "step_type": "OCR",
            "attempt_no": 1,
            "lease_id": "lease_1",
            "lane": 4,
        }
    )


def configured(folder: Path, **given: str) -> Settings:
    variables = {f"LUCIUS_{name}": value for name, value in given.items()}
    return load_settings({"LUCIUS_DATA_DIR": str(folder), **variables})


async def test_the_setting_puts_the_records_into_a_table(tmp_path: Path) -> None:
    connection, table = shared_azurite().table_connection, f"r{uuid4().hex[:12]}"
    settings = configured(tmp_path, TABLE_CONNECTION=connection, SERVICE_RECORDS_TABLE=f"-{table}-")
    workspace = open_workspace(settings)
    try:
        async with open_records(settings, workspace) as first:
            assert await first.begin(work(), "a") == MINE
            await first.finish(work(), RESULT)
        async with open_records(settings, workspace) as second:
            assert await second.begin(work(), "b") == Begun(False, RESULT)
    finally:
        store = open_tables(connection)
        await store.remove(table)
        await store.close()


async def test_without_the_setting_they_are_in_the_workspace(tmp_path: Path) -> None:
    settings = configured(tmp_path)
    async with open_records(settings, open_workspace(settings)) as records:
        assert isinstance(records, WorkspaceRecords)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"SERVICE_RECORDS_TABLE": "records"}, "LUCIUS_TABLE_CONNECTION"),
        ({"SERVICE_RECORDS_TABLE": "--"}, "LUCIUS_SERVICE_RECORDS_TABLE"),
    ],
)
async def test_what_cannot_be_opened_names_the_setting(
    tmp_path: Path, given: dict[str, str], said: str
) -> None:
    settings = configured(tmp_path, **given)
    with pytest.raises(LuciusError, match=said):
        async with open_records(settings, open_workspace(settings)):
            raise AssertionError("it cannot be opened")


async def test_an_attempt_takes_two_requests_and_a_heartbeat_one() -> None:
    tables = MemoryTables()
    records = TableRecords(tables, "t", lambda: NOW)
    await records.begin(work(), "a")
    await records.finish(work(), RESULT)
    assert tables.requests == 2
    await records.begin(work("job_2"), "a")
    await records.renew(work("job_2"), "a")
    assert tables.requests == 4


async def test_rows_of_old_jobs_are_removed_and_no_others() -> None:
    tables = MemoryTables()
    records = TableRecords(tables, "t", lambda: NOW)
    old = [work(new_job_id(NOW - KEPT - timedelta(minutes=n + 1))) for n in range(300)]
    new = [work(new_job_id(NOW - KEPT + timedelta(minutes=n + 1))) for n in range(5)]
    for each in (*old, *new):
        await records.begin(each, "a")
        await records.finish(each, RESULT)
    assert await records.sweep() == len(old)
    assert [await records.begin(each, "b") for each in new] == [Begun(False, RESULT)] * len(new)
    assert await records.begin(old[0], "b") == MINE
    assert await records.sweep() == 1
