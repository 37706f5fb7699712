"""The SQLite file: refused when it is not ours to touch, locked by its writer, upgraded step by step."""

import asyncio
import os
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lucius.adapters.ledgers.sqlite import lists as sqlite_list
from lucius.adapters.ledgers.sqlite.ledger import SqliteLedger
from lucius.adapters.ledgers.sqlite.schema import (
    LOG_BYTES,
    MIGRATIONS,
    allocate_log,
    connect,
    migrate,
    version_of,
)
from lucius.core.errors import (
    LedgerCorruptError,
    LedgerError,
    LedgerLockedError,
    LedgerTooNewError,
    LedgerUnavailableError,
)
from lucius.core.job import Job
from lucius.ports.ledger import JobQuery
from tests.conformance.jobs import life_of, make

ADD_NOTE = ("ALTER TABLE jobs ADD COLUMN note TEXT", "CREATE INDEX jobs_note ON jobs (note)")


async def filled(path: Path, jobs: int = 30) -> Job:
    ledger = await SqliteLedger.open(path)
    for n in range(jobs):
        made = make(n, released=True)
        await ledger.create(made.claim, made.job, made.events)
        for decision in life_of(made.job):
            await ledger.save(decision.job, decision.job.version - 1, decision.events)
    await ledger.close()
    return decision.job


def spoil_start(path: Path) -> None:
    path.write_bytes(b"not a database " * 100)


def spoil_end(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def spoil_schema(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[100:4096] = os.urandom(3996)
    path.write_bytes(content)


def make_foreign(path: Path) -> None:
    path.unlink()
    conn = sqlite3.connect(path)
    conn.execute("CREATE TABLE jobs (id)")
    conn.close()


def make_tiny(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\0")


def drop_table(path: Path) -> None:
    conn = sqlite3.connect(path)
    conn.execute("DROP TABLE claims")
    conn.execute("PRAGMA journal_mode = DELETE")
    conn.close()


@pytest.mark.parametrize(
    "spoil", [spoil_start, spoil_end, spoil_schema, make_foreign, make_tiny, drop_table]
)
@pytest.mark.parametrize("opened", [SqliteLedger.open, SqliteLedger.open_readonly])
async def test_a_corrupt_file_is_refused_and_left_untouched(
    tmp_path: Path, spoil: Callable[[Path], None], opened: Callable[[Path], Awaitable[object]]
) -> None:
    path = tmp_path / "ledger.db"
    await filled(path)
    spoil(path)
    before = path.read_bytes()
    with pytest.raises(LedgerCorruptError, match=r"ledger\.db"):
        await opened(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("opened", [SqliteLedger.open, SqliteLedger.open_readonly])
async def test_a_newer_file_is_refused_and_left_untouched(
    tmp_path: Path, opened: Callable[[Path], Awaitable[object]]
) -> None:
    path = tmp_path / "ledger.db"
    await (await SqliteLedger.open(path, migrations=(*MIGRATIONS, ADD_NOTE))).close()
    before = path.read_bytes()
    newest = len(MIGRATIONS)
    with pytest.raises(LedgerTooNewError, match=f"version {newest + 1}.*up to {newest}"):
        await opened(path)
    assert path.read_bytes() == before


async def test_a_newer_version_that_only_the_log_knows_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    await filled(path, 1)
    conn = connect(path)
    migrate(conn, (*MIGRATIONS, ADD_NOTE))
    with pytest.raises(LedgerTooNewError):
        await SqliteLedger.open(path)
    conn.close()


async def test_damage_inside_is_reported_as_corruption(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    job = await filled(path)
    content = bytearray(path.read_bytes())
    for page in range(4096 * 16, len(content), 4096):
        content[page : page + 4096] = b"\xff" * len(content[page : page + 4096])
    path.write_bytes(content)
    with pytest.raises(LedgerCorruptError):
        ledger = await SqliteLedger.open_readonly(path)
        await ledger.load(job.job_id)
        await ledger.verify()


async def test_a_second_writer_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    first = await SqliteLedger.open(path)
    with pytest.raises(LedgerLockedError, match=f"pid {os.getpid()}"):
        await SqliteLedger.open(path)
    await first.close()
    await (await SqliteLedger.open(path)).close()


async def test_a_reader_sees_what_is_committed_and_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with pytest.raises(LedgerError, match="no ledger"):
        await SqliteLedger.open_readonly(path)
    writer = await SqliteLedger.open(path)
    reader = await SqliteLedger.open_readonly(path)
    made = make(1)
    await writer.create(made.claim, made.job, made.events)
    assert await reader.load(made.job.job_id) == made.job
    assert await reader.inflight() == await writer.inflight()
    assert await reader.ready_queues(range(16)) == await writer.ready_queues(range(16))
    assert await reader.verify() == []
    with pytest.raises(LedgerError, match="reading only"):
        await reader.create(made.claim, made.job, made.events)
    await asyncio.gather(reader.close(), writer.close())


async def test_a_reader_opens_a_ledger_that_nobody_writes(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    job = await filled(path, 2)
    reader = await SqliteLedger.open_readonly(path)
    assert await reader.load(job.job_id) == job
    assert await reader.verify() == []
    await reader.close()


# -- upgrading -------------------------------------------------------------------------------


async def test_the_event_loop_turns_while_jobs_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, turned = tmp_path / "ledger.db", threading.Event()
    await filled(path, 3)
    count_in = sqlite_list.count_in

    def slow(path: Path, query: JobQuery) -> int:
        assert turned.wait(60), "on the event loop nobody could end this"
        return count_in(path, query)

    monkeypatch.setattr(sqlite_list, "count_in", slow)
    ledger = await SqliteLedger.open_readonly(path)
    counting = asyncio.create_task(ledger.count(JobQuery()))
    await asyncio.sleep(0)
    turned.set()
    assert await counting == 3
    await ledger.close()


async def test_a_page_of_heavy_jobs_is_short_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_list, "MOST_BYTES", 100_000)
    ledger = await SqliteLedger.open(tmp_path / "ledger.db")
    for n in range(9):
        made = make(n, payload={"x": "y" * 30_000})
        await ledger.create(made.claim, made.job, made.events)
    sizes, query = list[int](), JobQuery(limit=100)
    while True:
        page = await ledger.list(query)
        sizes.append(len(page.jobs))
        if page.next_cursor is None:
            break
        query = replace(query, cursor=page.next_cursor)
    assert sizes == [4, 4, 1]
    await ledger.close()


async def test_a_file_of_an_older_version_is_upgraded_with_its_jobs(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    job = await filled(path, 3)
    ledger = await SqliteLedger.open(path, migrations=(*MIGRATIONS, ADD_NOTE))
    assert await ledger.load(job.job_id) == job
    assert await ledger.verify() == []
    conn = ledger._writing()._conn
    assert version_of(conn) == len(MIGRATIONS) + 1
    assert conn.execute("SELECT count(*) FROM jobs WHERE note IS NULL").fetchone() == (3,)
    await ledger.close()


async def test_an_upgrade_that_fails_leaves_the_version_before_it(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    job = await filled(path, 3)
    broken = (ADD_NOTE[0], "CREATE INDEX nonsense ON nothing (at_all)")
    with pytest.raises(LedgerUnavailableError, match="nothing"):
        await SqliteLedger.open(path, migrations=(*MIGRATIONS, broken))
    ledger = await SqliteLedger.open(path)
    assert await ledger.load(job.job_id) == job
    await ledger.close()


async def test_every_version_is_made_from_the_one_before(tmp_path: Path) -> None:
    conn = connect(tmp_path / "ledger.db")
    for version in range(1, len(MIGRATIONS) + 1):
        migrate(conn, MIGRATIONS[:version])
        assert version_of(conn) == version
    conn.close()


async def test_the_log_has_its_size_before_the_first_job_and_commits_do_not_extend_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ledger.db"
    log = tmp_path / "ledger.db-wal"
    ledger = await SqliteLedger.open(path)
    size, file_size = log.stat().st_size, path.stat().st_size
    for n in range(30):
        made = make(n, released=True)
        await ledger.create(made.claim, made.job, made.events)
    assert size >= LOG_BYTES
    assert log.stat().st_size == size
    assert path.stat().st_size == file_size < LOG_BYTES
    await ledger.close()


async def test_a_file_without_room_for_the_log_is_used_all_the_same(tmp_path: Path) -> None:
    conn = connect(tmp_path / "ledger.db")
    migrate(conn)
    conn.execute("PRAGMA max_page_count = 100")
    allocate_log(conn)
    assert not conn.in_transaction
    assert version_of(conn) == len(MIGRATIONS)
    conn.execute("INSERT INTO probe (doc) VALUES ('x')")
    conn.close()
