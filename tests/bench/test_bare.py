"""Bare SQLite writes what the ledger wrote, or its time means nothing."""

import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from bench.bare import record, replay, replay_by_row
from bench.transitions import load
from lucius.adapters.ledgers.sqlite.ledger import SqliteLedger
from lucius.adapters.ledgers.sqlite.schema import TABLES


def contents(path: Path) -> dict[str, list[Any]]:
    conn = sqlite3.connect(path)
    found = {table: sorted(conn.execute(f"SELECT * FROM {table}"), key=repr) for table in TABLES}
    conn.close()
    return found


async def test_both_replays_leave_the_rows_that_the_ledger_left(tmp_path: Path) -> None:
    path, start = tmp_path / "ledger.db", tmp_path / "start.db"
    await (await SqliteLedger.open(path)).close()
    shutil.copy(path, start)
    ledger = await SqliteLedger.open(path)
    recorder = record(ledger)
    numbers = await load(ledger, jobs=40, in_flight=7)
    await ledger.close()
    written = contents(path)
    assert len(written["jobs"]) == 40
    replay(start, recorder.statements, tmp_path / "bare.db")
    replay_by_row(start, recorder.statements, tmp_path / "bare_rows.db")
    assert contents(tmp_path / "bare.db") == written
    assert contents(tmp_path / "bare_rows.db") == written
    assert numbers["decisions_per_s"] == pytest.approx(10 * numbers["jobs_per_s"])
    assert numbers["transitions_per_s"] == pytest.approx(7 * numbers["jobs_per_s"])
