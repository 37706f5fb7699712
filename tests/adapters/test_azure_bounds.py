"""What a list across all tenants costs at most, and rows that an older version has left to be copied."""

import pytest

from lucius.adapters.ledgers.azure import lists
from lucius.adapters.ledgers.azure.copies import Pending, pending_of
from lucius.core.job import JobState
from lucius.ports.ledger import JobQuery
from tests.conformance.azure_ledgers import single, split
from tests.conformance.jobs import at, make
from tests.faults.stopping_store import Clock
from tests.memory_tables import MemoryTables

TENANTS, JOBS, MOST = 4, 40, 10
READS = {"ledger": (single, 1), "table": (split, 2)}
"""Requests for one job, by a process that does not know it."""


@pytest.mark.parametrize("layout", READS)
async def test_a_page_across_all_tenants_reads_so_many_jobs_at_most(
    layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However few of them match: none does here."""
    opens, each = READS[layout]
    monkeypatch.setattr(lists, "MOST_READ", MOST)
    store, clock = MemoryTables(), Clock(at(0))
    ledger = opens(store, "t", clock)
    for number in range(JOBS):
        made = make(number, f"tenant_{number % TENANTS}")
        await ledger.create(made.claim, made.job, made.events)
    store.requests = 0
    page = await opens(store, "t", clock).list(JobQuery(states=(JobState.PAUSED,), limit=5))
    assert list(page.jobs) == []
    assert page.next_cursor is not None
    assert store.requests <= each * (MOST + lists.AT_ONCE) + 2 * TENANTS + 1


@pytest.mark.parametrize("layout", READS)
async def test_a_page_reads_no_more_rows_of_a_tenants_lists_than_it_needs(layout: str) -> None:
    opens, _ = READS[layout]
    store, clock = MemoryTables(), Clock(at(0))
    ledger = opens(store, "t", clock)
    for number in range(JOBS):
        made = make(number, f"tenant_{number % TENANTS}")
        await ledger.create(made.claim, made.job, made.events)
    store.read = 0
    page = await opens(store, "t", clock).list(JobQuery(limit=2))
    assert len(page.jobs) == 2
    names, listed, jobs = TENANTS, TENANTS * (2 + 1), 2 * 2
    assert store.read <= names + listed + jobs


@pytest.mark.parametrize("layout", READS)
async def test_a_count_of_some_live_states_asks_each_live_job_once(layout: str) -> None:
    opens, _ = READS[layout]
    store, clock = MemoryTables(), Clock(at(0))
    ledger = opens(store, "t", clock)
    for number in range(JOBS):
        made = make(number, f"tenant_{number % TENANTS}")
        await ledger.create(made.claim, made.job, made.events)
    for state, count in ((made.job.state, JOBS), (JobState.PAUSED, 0)):
        store.requests = 0
        assert await ledger.count(JobQuery(states=(state,))) == count
        assert store.requests == 1 + TENANTS + JOBS


def test_what_a_row_carries_is_read_as_it_was_written() -> None:
    made = make(1, released=True)
    entry = made.job.steps[0].entry
    assert entry is not None
    pending = Pending(tuple(made.events), ((0, entry),))
    found = pending_of("job", pending.columns())
    assert found.events == pending.events
    assert [(at_, each.lease_id, each.state, each.sent_at) for at_, each in found.gone] == [
        (0, entry.lease_id, entry.state, entry.sent_at)
    ]
