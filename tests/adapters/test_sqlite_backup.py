"""Backup while the ledger is written to, and restore: whole or not at all."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from lucius.adapters.ledgers.sqlite.backup import restore
from lucius.adapters.ledgers.sqlite.ledger import SqliteLedger
from lucius.core.errors import (
    LedgerCorruptError,
    LedgerError,
    LedgerLockedError,
    LedgerTooNewError,
)
from lucius.ports.ledger import JobQuery
from tests.conformance.jobs import life_of, make


async def write(ledger: SqliteLedger, key: object) -> None:
    made = make(key, released=True)
    await ledger.create(made.claim, made.job, made.events)
    for decision in life_of(made.job):
        await ledger.save(decision.job, decision.job.version - 1, decision.events)


async def ids(path: Path) -> set[str]:
    ledger = await SqliteLedger.open_readonly(path)
    assert await ledger.verify() == []
    page = await ledger.list(JobQuery(limit=10_000))
    await ledger.close()
    return {job.job_id for job in page.jobs}


def files(folder: Path, part: str) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.iterdir() if part in path.name}


async def backed_up(folder: Path, jobs: int = 3) -> tuple[Path, Path]:
    path, copy = folder / "ledger.db", folder / "copies" / "backup.db"
    ledger = await SqliteLedger.open(path)
    for n in range(jobs):
        await write(ledger, n)
    await ledger.backup(copy)
    await ledger.close()
    return path, copy


async def test_a_backup_under_load_is_one_consistent_moment(tmp_path: Path) -> None:
    ledger = await SqliteLedger.open(tmp_path / "ledger.db")
    await asyncio.gather(*(write(ledger, ("before", n)) for n in range(20)))
    load = [asyncio.create_task(write(ledger, ("during", n))) for n in range(60)]
    copies = [tmp_path / f"copy-{n}.db" for n in range(3)]
    for copy in copies:
        await ledger.backup(copy)
    await asyncio.gather(*load)
    await ledger.close()
    before = {make(("before", n)).job.job_id for n in range(20)}
    for copy in copies:
        assert before <= await ids(copy)
        assert not copy.with_name(copy.name + "-wal").exists()
    assert files(tmp_path, ".part") == {}


async def test_a_backup_replaces_an_older_one(tmp_path: Path) -> None:
    path, copy = await backed_up(tmp_path)
    ledger = await SqliteLedger.open(path)
    await write(ledger, "later")
    await ledger.backup(copy)
    with pytest.raises(LedgerError, match="itself"):
        await ledger.backup(path)
    await ledger.close()
    assert len(await ids(copy)) == 4


async def test_a_restored_ledger_is_what_was_backed_up_and_can_be_written(tmp_path: Path) -> None:
    path, copy = await backed_up(tmp_path)
    target = tmp_path / "other" / "ledger.db"
    restore(copy, target)
    assert await ids(target) == await ids(path)
    ledger = await SqliteLedger.open(target)
    await write(ledger, "more")
    await ledger.close()
    assert len(await ids(target)) == 4


async def test_an_existing_ledger_is_replaced_only_when_forced(tmp_path: Path) -> None:
    path, copy = await backed_up(tmp_path)
    ledger = await SqliteLedger.open(path)
    await write(ledger, "lost")
    await ledger.close()
    with pytest.raises(LedgerError, match="exists"):
        restore(copy, path)
    assert len(await ids(path)) == 4
    restore(copy, path, force=True)
    assert len(await ids(path)) == 3


async def test_a_log_that_a_crash_left_is_not_replayed_onto_the_restored_file(
    tmp_path: Path,
) -> None:
    path, copy = await backed_up(tmp_path)
    ledger = await SqliteLedger.open(path)
    await write(ledger, "crashed")
    left = files(tmp_path, "ledger.db")
    await ledger.close()
    for file, content in left.items():
        file.write_bytes(content)
    assert (tmp_path / "ledger.db-wal").stat().st_size
    restore(copy, path, force=True)
    assert len(await ids(path)) == 3


async def test_a_ledger_that_is_being_written_is_not_replaced(tmp_path: Path) -> None:
    path, copy = await backed_up(tmp_path)
    ledger = await SqliteLedger.open(path)
    with pytest.raises(LedgerLockedError):
        restore(copy, path, force=True)
    await write(ledger, "fine")
    await ledger.close()
    assert len(await ids(path)) == 4


async def test_a_bad_backup_is_refused_and_the_ledger_stays(tmp_path: Path) -> None:
    path, copy = await backed_up(tmp_path, 30)
    good, before = copy.read_bytes(), path.read_bytes()
    with pytest.raises(LedgerError, match="no backup"):
        restore(tmp_path / "missing.db", path, force=True)
    middle = len(good) // 2
    copy.write_bytes(good[:middle] + b"\xff" * 9000 + good[middle + 9000 :])
    with pytest.raises(LedgerCorruptError):
        restore(copy, path, force=True)
    copy.write_bytes(good)
    conn = sqlite3.connect(copy)
    conn.execute("PRAGMA user_version = 99")
    conn.close()
    with pytest.raises(LedgerTooNewError):
        restore(copy, path, force=True)
    assert path.read_bytes() == before
