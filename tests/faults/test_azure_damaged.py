"""Whatever one stored row says on Azure Tables, the jobs of all other rows are found, listed and counted."""

from collections.abc import Awaitable, Iterator
from typing import Any

import pytest

from lucius.adapters.ledgers.azure.ledger import AzureLedger
from lucius.adapters.ledgers.azure.repairing import PAUSE
from lucius.adapters.ledgers.azure.store import ETAG, PARTITION, ROW, Row
from lucius.core.errors import LedgerRowUnreadableError
from lucius.core.inputs import CancelRequested
from lucius.ports.ledger import JobQuery
from tests.conformance.azure_ledgers import single, split
from tests.conformance.jobs import ack_of, at
from tests.faults.azure_operations import PREFIX, Site, applied, moved, request, submitted

BACKENDS = {"ledger": single, "table": split}
JOBS = ("held", "out", "run")
LATER = at(10**8)
Tables = dict[str, dict[tuple[str, str], Row]]


async def lived(backend: str) -> Site:
    """Jobs that wait, are out and are at work, and one that has ended."""
    site = Site(lambda store, clock: BACKENDS[backend](store, PREFIX, clock))
    ledger = site.open()
    for name in (*JOBS, "old"):
        await submitted(ledger, request(name, name, released=name in ("out", "run")))
    await applied(ledger, "run", ack_of)
    await moved(ledger, "old", [CancelRequested()])
    await ledger.close()
    site.wait(hours=1)
    return site


def every_row(tables: Tables) -> Iterator[tuple[str, tuple[str, str], Row]]:
    for table, rows in tables.items():
        for place, row in rows.items():
            yield table, place, row


def damaged(tables: Tables) -> Iterator[tuple[str, tuple[str, str], Row]]:
    """One row of each kind: without a column, with a text in one, and beside a row with a broken key."""
    kinds = {(table, *sorted(row)): (table, place, row) for table, place, row in every_row(tables)}
    for table, (partition, key), row in kinds.values():
        for name in row.keys() - {PARTITION, ROW, ETAG}:
            yield table, (partition, key), {each: row[each] for each in row if each != name}
            yield table, (partition, key), {**row, name: "x"}
        for broken in (f"{key}|x", f"{key.partition('|')[0]}|x"):
            yield table, (partition, broken), {**row, ROW: broken}


async def asked(ledger: AzureLedger) -> set[str]:
    """What a process asks that owns all lanes. The jobs that it learns to be due."""
    due = await ledger.due(LATER, range(32), 100)
    await ledger.next_due(range(32))
    for queue in await ledger.ready_queues(range(32)):
        await ledger.ready(queue.queue_name, queue.lane, queue.tenant_id, 10)
    await ledger.list(JobQuery(limit=50))
    await ledger.count(JobQuery())
    await ledger.inflight()
    await ledger.verify()
    return {each.job_id for each in due}


async def told(loaded: Awaitable[Any]) -> bool:
    """Whether the job is there; one that cannot be read says so."""
    try:
        return await loaded is not None
    except LedgerRowUnreadableError:
        return False


@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_damaged_row_hides_no_job_of_another_row(backend: str) -> None:
    site = await lived(backend)
    kept = {table: dict(rows) for table, rows in site.store.tables.items()}
    ids = {name: request(name).job.job_id for name in JOBS}
    for table, place, row in damaged(kept):
        for name, rows in kept.items():
            site.store.tables[name] = dict(rows)
        site.store.tables[table][place] = row
        others = {
            job_id for job_id in ids.values() if job_id not in f"{kept[table].get(place)} {place}"
        }
        ledger = site.open()
        assert others <= await asked(ledger), (table, place, row)
        for job_id in others:
            assert await told(ledger.load(job_id)), (table, place, row)
        await ledger.sweep(site.clock())


@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_job_whose_row_of_its_lane_is_damaged_gets_another_one(backend: str) -> None:
    site = await lived(backend)
    lanes = site.store.tables[f"{PREFIX}lanes"]
    job_id = request("held").job.job_id
    ((place, row),) = [
        each for each in lanes.items() if each[1].get("job_id") == job_id and "WAKE" in each[0][1]
    ]
    lanes[place] = {**row, "version": "x"}
    ledger = site.open()
    assert ("row_unreadable", "/".join(place)) in {
        (d.kind, d.subject) for d in await ledger.verify()
    }
    assert job_id not in await asked(ledger)
    for _ in range(3):
        site.clock.moment += PAUSE
        await ledger.sweep(site.clock())
    assert job_id in await asked(ledger)
