"""The numbers of the scale page are those that a job costs on backend `ledger`, processes apart."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.adapters.test_azure_requests import N, apart
from tests.conformance.azure_ledgers import LANES, TENANTS, single
from tests.conformance.jobs import at
from tests.faults.stopping_store import Clock
from tests.memory_tables import MemoryTables

NUMBERS = Path(__file__).parents[2] / "docs/reference/requests-per-job.json"


async def counted(store: MemoryTables) -> None:
    """A tenant's first job makes it known and reads its counters: it is not counted."""
    clock = Clock(at(0))
    api, owner = (single(store, "t", clock) for _ in range(2))
    await apart(api, owner, -1, clock)
    store.requests = 0
    store.written.clear()
    for number in range(N):
        await apart(api, owner, number, clock)


def test_the_numbers_of_the_scale_page_are_those_of_processes_apart() -> None:
    numbers = json.loads(NUMBERS.read_text("utf-8"))["numbers"]
    store = MemoryTables()
    asyncio.run(counted(store))
    assert store.requests / N == numbers["storage_requests"]["number"]
    tenant, lane = (store.written[f"t{table}"] / N for table in (TENANTS, LANES))
    assert tenant == numbers["tenant_partition_entities"]["number"]
    assert lane == pytest.approx(numbers["lane_partition_entities"]["number"], abs=0.2)
