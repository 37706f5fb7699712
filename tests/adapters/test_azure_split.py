"""The ledger in separate tables: which rows there are, in which partitions, and how an id finds them."""

import asyncio
from collections.abc import Coroutine, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.data.tables.aio import TableServiceClient

from lucius.adapters.ledgers.azure.heads import Layout
from lucius.adapters.ledgers.azure.ledger import AzureLedger
from lucius.adapters.ledgers.azure.projections import Tables
from lucius.adapters.ledgers.azure.split import SplitTables
from lucius.app.adapters import open_ledger
from lucius.app.settings import load_settings
from lucius.core.errors import LedgerError, LedgerRowUnreadableError
from lucius.core.ids import new_job_id
from lucius.ports.ledger import Created
from tests.azurite_server import shared_azurite
from tests.conformance.azure_ledgers import (
    EVENTS,
    JOBS,
    LANES,
    OUTBOX,
    STEPS,
    TENANTS,
    fresh_prefix,
)
from tests.conformance.jobs import Made, at, make
from tests.faults.stopping_store import Clock
from tests.memory_tables import MemoryTables

JOB_ID = new_job_id(at(0))


def opened(store: MemoryTables, now: float = 0) -> AzureLedger:
    clock = Clock(at(now))
    tables = Tables(JOBS, STEPS, OUTBOX, EVENTS)
    layout = SplitTables(store, tables, now=clock, lag=timedelta())
    return AzureLedger(store, layout, tenants=TENANTS, lanes=LANES, shared="shared", now=clock)


def request(key: object = 1, **plan: Any) -> Made:
    return make(key, released=True, **{"job_id": new_job_id(at(0)), **plan})


async def created(ledger: AzureLedger, made: Made) -> None:
    assert await ledger.create(made.claim, made.job, made.events) == Created()


def run(body: Coroutine[Any, Any, None]) -> None:
    asyncio.run(body)


# -- rows ------------------------------------------------------------------------------------


def test_rows_lie_in_the_partitions_of_the_data_model() -> None:
    store = MemoryTables()

    async def main() -> None:
        made = request(job_id=JOB_ID)
        await created(opened(store), made)
        entry = made.job.steps[0].entry
        assert entry is not None
        message = f"{JOB_ID}:ocr:1:{entry.lease_id}:DIRECTIVE"
        assert set(store.tables[JOBS]) == {
            ("tenant_a|202601", JOB_ID),
            ("tenant_a|202601", f"{JOB_ID}|PLAN"),
        }
        assert set(store.tables[OUTBOX]) == {("tenant_a|202601", message)}
        assert (JOB_ID, "000|ocr") in store.tables[STEPS]
        assert (JOB_ID, "000000000000000001") in store.tables[EVENTS]
        assert ("tenant_a", made.claim.claim_hash) in store.tables[TENANTS]

    run(main())


# -- partitions ------------------------------------------------------------------------------


def test_an_id_alone_finds_the_job_of_any_tenant_and_month() -> None:
    store = MemoryTables()

    async def main() -> None:
        made = [
            request(n, tenant=tenant, job_id=new_job_id(at(86_400 * 40 * n)))
            for n, tenant in enumerate(("tenant_a", "tenant_b", "a/b"))
        ]
        for each in made:
            await created(opened(store), each)
        assert len({partition for partition, _ in store.tables[JOBS]}) == 3
        for each in made:
            assert await opened(store).load(each.job.job_id) == each.job
        assert await opened(store).load(new_job_id(at(0))) is None

    run(main())


def test_an_id_that_another_tenant_has_is_refused() -> None:
    store = MemoryTables()

    async def main() -> None:
        made = request()
        await created(opened(store), made)
        other = request(2, tenant="tenant_b", job_id=made.job.job_id)
        with pytest.raises(LedgerError, match="exists"):
            await opened(store).create(other.claim, other.job, other.events)
        assert await opened(store).load(made.job.job_id) == made.job
        assert await opened(store).verify() == []

    run(main())


def _layout(ledger: AzureLedger) -> Layout:
    return ledger._layout


# -- what cannot be read ---------------------------------------------------------------------


@pytest.mark.parametrize("column", ["pending", "gone"])
def test_a_job_whose_copies_nobody_can_finish_is_named_and_concerns_no_other(column: str) -> None:
    store = MemoryTables()

    async def main() -> None:
        bad, good = request(1), request(2)
        for made in (bad, good):
            await created(opened(store), made)
        ruined(store, bad.job.job_id, column)
        with pytest.raises(LedgerRowUnreadableError, match=bad.job.job_id):
            await opened(store).load(bad.job.job_id)
        due = await opened(store, now=10**8).due(at(10**8), range(16), 9)
        assert {each.job_id for each in due} == {bad.job.job_id, good.job.job_id}
        assert await opened(store).load(good.job.job_id) == good.job

    run(main())


def ruined(store: MemoryTables, job_id: str, column: str) -> None:
    """The copies are behind, and what they need is damaged."""
    store.tables[JOBS]["tenant_a|202601", job_id][column] = "{"
    store.tables[STEPS][job_id, "JOB"]["save_id"] = "another"


# -- settings --------------------------------------------------------------------------------


def environment(folder: Path, prefix: str) -> dict[str, str]:
    tables = ("JOBS", "STEPS", "OUTBOX", "EVENTS", "IDEMPOTENCY", "JOB_INDEX", "INFLIGHT")
    return {
        "LUCIUS_DATA_DIR": str(folder),
        "LUCIUS_STORAGE_BACKEND": "table",
        "LUCIUS_TABLE_CONNECTION": shared_azurite().table_connection,
        **{f"LUCIUS_{table}_TABLE": f"{prefix}{table}" for table in tables},
    }


async def rows_in(table: str) -> list[Mapping[str, Any]]:
    async with TableServiceClient.from_connection_string(
        shared_azurite().table_connection
    ) as service:
        return [row async for row in service.get_table_client(table).list_entities()]


async def test_the_settings_open_it(tmp_path: Path) -> None:
    prefix = fresh_prefix()
    environ = environment(tmp_path, prefix)
    ledger = await open_ledger(load_settings(environ))
    made = request()
    assert await ledger.create(made.claim, made.job, made.events) == Created()
    assert await ledger.load(made.job.job_id) == made.job
    await ledger.close()
    found = [row["PartitionKey"] for row in await rows_in(f"{prefix}JOBS")]
    assert set(found) == {"tenant_a|202601"}
