"""The notes of a local workspace: where they are committed, and how they lie on the disk."""

import asyncio
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lucius.adapters.workspaces import records as module
from lucius.adapters.workspaces.files import RECORDS_FILE
from lucius.adapters.workspaces.records import NewRecord, Records

EARLIER = """
CREATE TABLE notes (key TEXT PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID;
INSERT INTO notes VALUES ('/a', x'31');
"""


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """Those that commits were made in. However long one takes here, the disk is not slow."""
    seen: list[threading.Thread] = []
    committed = Records._committed

    def noted(records: Records, asked: Any, patience: float) -> bool:
        seen.append(threading.current_thread())
        return committed(records, asked, patience)

    monkeypatch.setattr(Records, "_committed", noted)
    monkeypatch.setattr(module, "QUICK_SECONDS", 3600.0)
    return seen


async def create(records: Records, *names: str) -> None:
    await asyncio.gather(*(records.change(NewRecord(f"/{name}", b"1")) for name in names))


async def test_new_notes_are_committed_on_the_loop_while_that_is_quick(
    tmp_path: Path, threads: list[threading.Thread]
) -> None:
    records = Records(str(tmp_path))
    await create(records, "first")  # opens the database, which may take longer
    await create(records, "a", "b")
    await create(records, "c")
    assert threading.main_thread() not in threads[:1]
    assert threads[1:] == [threading.main_thread()] * 2
    await records.close()


async def test_while_another_process_writes_the_loop_goes_on(
    tmp_path: Path, threads: list[threading.Thread]
) -> None:
    records = Records(str(tmp_path))
    await create(records, "first")
    other = sqlite3.connect(tmp_path / RECORDS_FILE, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    creating = asyncio.create_task(create(records, "a"))
    await asyncio.sleep(0.05)
    assert not creating.done()
    other.execute("COMMIT")
    await creating
    assert threads[-1] is not threading.main_thread()
    assert await records.read("/a") == b"1"
    other.close()
    await records.close()


async def test_a_slow_disk_is_waited_for_beside_the_loop(
    tmp_path: Path, threads: list[threading.Thread], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "QUICK_SECONDS", 0.0)
    records = Records(str(tmp_path))
    await create(records, "first")
    await create(records, "a")
    assert threading.main_thread() not in threads
    await records.close()


async def test_what_may_take_long_is_done_beside_the_loop(
    tmp_path: Path, threads: list[threading.Thread]
) -> None:
    records = Records(str(tmp_path))
    await create(records, "first")
    await create(records, "a")
    await records.change(lambda conn: module.removed(conn, "/", whole=True))
    assert [each is threading.main_thread() for each in threads[1:]] == [True, False]
    assert await records.read("/a") is None
    await records.close()


async def test_a_database_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / RECORDS_FILE)) as earlier:
        earlier.executescript(EARLIER)
    records = Records(str(tmp_path))
    await create(records, "b")
    await records.change(lambda conn: module.written(conn, "/a", b"2"))
    assert [await records.read("/a"), await records.read("/b")] == [b"2", b"1"]
    assert not await records.change(NewRecord("/a", b"3")), "it is there already"
    await records.close()


async def test_a_record_takes_no_page_of_its_own(tmp_path: Path) -> None:
    """In a table that is sorted by its key, each record of a thousand bytes had an overflow page."""
    records, count = Records(str(tmp_path)), 400
    for number in range(count):
        key = f"/tenant_{number % 16}/job_{number:032x}/_commits/{number:032x}.json"
        await records.change(NewRecord(key, b"x" * 1000))
    await records.close()
    with closing(sqlite3.connect(tmp_path / RECORDS_FILE)) as conn:
        (pages,) = conn.execute("PRAGMA page_count").fetchone()
    assert pages < count * 0.6
