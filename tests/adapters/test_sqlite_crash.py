"""SQLite under a killed process and a full disk: what was acknowledged is there, nothing is half there."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from lucius.adapters.ledgers.sqlite.ledger import SqliteLedger
from lucius.core.decide import decide
from lucius.core.errors import LedgerUnavailableError
from lucius.core.inputs import CancelRequested
from lucius.ports.ledger import Created
from tests.conformance.jobs import at, life_of, make

ROOT = Path(__file__).parents[2]


def child(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.adapters.sqlite_child", *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


def acknowledged_before_kill(path: Path, run: int, lines: int) -> dict[str, int]:
    """Read so many acknowledgements, kill the writer, and read what it had still said."""
    process = child("write", path, run)
    assert process.stdout is not None
    said = [process.stdout.readline() for _ in range(lines)]
    process.kill()
    rest, _ = process.communicate()
    whole = [line for line in (*said, *rest.splitlines(keepends=True)) if line.endswith("\n")]
    return {job_id: int(version) for job_id, version in map(str.split, whole)}


async def test_everything_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    said: dict[str, int] = {}
    for run in range(3):
        said |= await asyncio.to_thread(acknowledged_before_kill, path, run, 400 + 150 * run)
    ledger = await SqliteLedger.open(path)
    for job_id, version in said.items():
        job = await ledger.load(job_id)
        assert job is not None
        assert job.version >= version
    assert await ledger.verify() == []
    await ledger.close()


async def test_a_disk_that_fills_up_during_a_commit_loses_nothing(tmp_path: Path) -> None:
    process = child("fill", tmp_path / "ledger.db")
    said, _ = await asyncio.to_thread(process.communicate)
    assert process.returncode == 0
    assert "refused: " in said
    assert "created: " in said


async def test_a_full_file_refuses_and_works_again_when_there_is_room(tmp_path: Path) -> None:
    ledger = await SqliteLedger.open(tmp_path / "ledger.db")
    made = make("first", released=True)
    await ledger.create(made.claim, made.job, made.events)
    conn = ledger._writing()._conn
    (pages,) = conn.execute("PRAGMA page_count").fetchone()
    conn.execute(f"PRAGMA max_page_count = {pages}")
    more = [make(n, payload={"text": "x" * 9000}) for n in range(5)]
    outcomes = await asyncio.gather(
        *(ledger.create(m.claim, m.job, m.events) for m in more), return_exceptions=True
    )
    assert all(isinstance(outcome, LedgerUnavailableError) for outcome in outcomes)
    assert [await ledger.load(m.job.job_id) for m in more] == [None] * 5
    assert (await ledger.inflight()).total == 1
    conn.execute(f"PRAGMA max_page_count = {pages + 1000}")
    for one in more:
        assert await ledger.create(one.claim, one.job, one.events) == Created()
    for decision in life_of(made.job):
        assert await ledger.save(decision.job, decision.job.version - 1, decision.events)
    assert (await ledger.inflight()).total == 5
    assert await ledger.verify() == []
    await ledger.close()


async def test_a_caller_that_gives_up_harms_no_other(tmp_path: Path) -> None:
    ledger = await SqliteLedger.open(tmp_path / "ledger.db")
    made = [make(n) for n in range(3)]
    tasks = [asyncio.create_task(ledger.create(m.claim, m.job, m.events)) for m in made]
    await asyncio.sleep(0)
    tasks[1].cancel()
    assert await tasks[0] == await tasks[2] == Created()
    with pytest.raises(asyncio.CancelledError):
        await tasks[1]
    assert await ledger.verify() == []
    await ledger.close()


async def test_closing_answers_what_is_under_way_first(tmp_path: Path) -> None:
    ledger = await SqliteLedger.open(tmp_path / "ledger.db")
    made = [make(n) for n in range(20)]
    tasks = [asyncio.create_task(ledger.create(m.claim, m.job, m.events)) for m in made]
    await asyncio.sleep(0)
    await ledger.close()
    assert [await task for task in tasks] == [Created()] * 20
    with pytest.raises(LedgerUnavailableError, match="closed"):
        await ledger.create(made[0].claim, made[0].job, ())
    await ledger.close()


async def test_a_version_changed_behind_the_writer_is_noticed(tmp_path: Path) -> None:
    ledger = await SqliteLedger.open(tmp_path / "ledger.db")
    made = [make(n) for n in range(3)]
    for one in made:
        await ledger.create(one.claim, one.job, one.events)
    ledger._writing()._conn.execute(
        "UPDATE jobs SET version = 7 WHERE id = ?", (made[1].job.job_id,)
    )
    decisions = [decide(m.job, CancelRequested(), at(1)) for m in made]
    saved = await asyncio.gather(*(ledger.save(d.job, 1, d.events) for d in decisions))
    assert saved == [True, False, True]
    await ledger.close()
