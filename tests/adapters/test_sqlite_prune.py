"""A page of pruning costs what it deletes, not what is kept; a file from before knows its redrives."""

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lucius.adapters.ledgers.sqlite.ledger import SqliteLedger
from lucius.core.decide import decide
from lucius.core.inputs import CancelRequested
from lucius.core.job import Job
from tests.conformance.jobs import Made, at, make

FOREVER = at(10**8)
PAGE = 40


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[SqliteLedger]:
    opened = await SqliteLedger.open(tmp_path / "ledger.db")
    yield opened
    await opened.close()


async def ended(ledger: SqliteLedger, made: Made, seconds: float) -> Job:
    await ledger.create(made.claim, made.job, made.events)
    decision = decide(made.job, CancelRequested(), at(seconds))
    await ledger.save(decision.job, made.job.version, decision.events)
    return decision.job


async def kept(ledger: SqliteLedger, count: int) -> None:
    """Ended jobs that live ones have taken over from."""
    for n in range(count):
        root = await ended(ledger, make(f"root {n}"), 1)
        heir = make(f"heir {n}", redrive_of=root.job_id, root_job_id=root.job_id)
        await ledger.create(heir.claim, heir.job, heir.events)


async def sweep(ledger: SqliteLedger) -> list[tuple[int, int]]:
    """For each page how many jobs it deleted, and how many hundred instructions SQLite ran for it."""
    steps, pages = [0], list[tuple[int, int]]()
    conn: sqlite3.Connection = ledger._writing()._conn

    def count() -> int:
        steps[0] += 1
        return 0

    conn.set_progress_handler(count, 100)
    cursor: str | None = None
    while True:
        steps[0] = 0
        page = await ledger.prune(FOREVER, PAGE, cursor)
        pages.append((page.deleted, steps[0]))
        cursor = page.cursor
        if cursor is None:
            conn.set_progress_handler(None, 100)
            return pages


async def test_no_page_passes_all_that_is_kept(ledger: SqliteLedger) -> None:
    await kept(ledger, 400)
    for n in range(3 * PAGE):
        await ended(ledger, make(n), 100)
    pages = await sweep(ledger)
    idle = [steps for deleted, steps in pages if not deleted]
    busy = [steps for deleted, steps in pages if deleted]
    assert sum(deleted for deleted, _ in pages) == 3 * PAGE
    assert len(idle) >= 400 // PAGE - 1, "what is kept is passed in pages too"
    assert max(idle) < min(busy)
    assert max(busy) < 2 * min(busy) + max(idle), "and no page passes it again"
