"""The Azure ledger on Azurite: taking over a full lane, and our CPU beside that of the same calls bare."""

import resource
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bench.azure_bare import BareLoop, Recorder, prepared
from bench.azure_memory import IndexedTables
from bench.measure import spending
from lucius.adapters.buses.memory import MemoryBus
from lucius.adapters.configs.files import FileConfig
from lucius.adapters.ledgers.azure.opening import open_tables
from lucius.adapters.ledgers.azure.store import Act, Change, Store, row_of
from lucius.adapters.ledgers.azure.tables import AzureTables
from lucius.adapters.ledgers.azure.wakeups import new_wakeup, partition_of, ready_row
from lucius.adapters.ledgers.memory import MemoryLeases
from lucius.adapters.ledgers.stored.json_form import micros
from lucius.core.routing import lane_of
from lucius.engine.admission.ingress import Ingress, IngressPolicy
from lucius.engine.ownership import LeasedLanes
from tests.azurite_server import Azurite
from tests.conformance.azure_ledgers import ALL, LANES, fresh_prefix, single, split
from tests.conformance.jobs import at, life_of, make
from tests.faults.stopping_store import Clock
from tests.wiring import outbox

OUT = 100
"""Of the live jobs, those that a service has: the window keeps them few. They alone are read."""
PORTION = 100
TENANT = "tenant_a"
LAYOUTS = {"ledger": single, "table": split}


class Broker(MemoryBus):
    volatile = False


async def measure(jobs: int, lives: int) -> dict[str, Any]:
    server = Azurite()
    try:
        return {
            "take_over": await take_over(jobs),
            "beside_bare": await beside_bare(server, lives),
            "beside_bare_in_separate_tables": await beside_bare(server, lives, "table"),
        }
    finally:
        server.stop()


# -- taking over a lane ------------------------------------------------------------------------


async def take_over(jobs: int) -> dict[str, float]:
    """From the lease to the moment at which the lane is owned: all that is known about it is read.

    On tables in memory: what Azurite takes for a page says nothing about Azure. So seconds are left out.
    """
    tables = IndexedTables()
    await _fill(tables, "", jobs)
    lanes = LeasedLanes(MemoryLeases(), "bench", clock=time.monotonic, term=timedelta(hours=1))
    parts = outbox(
        single(tables, ""),
        Broker(),
        Ingress(FileConfig(), IngressPolicy()),
        now=lambda: datetime.now(UTC),
        lanes=lanes,
    )
    tables.requests, tables.cpu, memory = 0, 0.0, _resident()
    with spending() as spent:
        await parts.reconciler.prepare()
    memory = _resident() - memory
    assert lane_of(TENANT) in lanes.owned
    await parts.tasks.close()
    return {
        "live_jobs": float(jobs),
        "requests": float(tables.requests),
        "cpu_seconds": spent.cpu - tables.cpu,
        "resident_mib": memory,
    }


def _resident() -> float:
    """MiB of this process."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * resource.getpagesize() / 2**20


async def _fill(tables: Store, prefix: str, jobs: int) -> None:
    """A few jobs that are out, and the rows by which the lane knows all the others."""
    ledger = single(tables, prefix)
    soon = datetime.now(UTC)
    for number in range(OUT):
        made = make(f"out-{number}", TENANT, released=True, now=soon)
        await ledger.create(made.claim, made.job, made.events)
    for start in range(OUT, jobs, PORTION // 2):
        changes: list[Change] = []
        for number in range(start, min(start + PORTION // 2, jobs)):
            job = make(f"held-{number}", TENANT, now=soon).job
            due = micros(soon + timedelta(hours=1)) + number
            wakeup = new_wakeup(job, due, "claim", micros(soon))
            changes += _rows(wakeup.row, ready_row(job, 0, due), job.job_id)
        await tables.commit(prefix + LANES, changes)
    await ledger._lanes.close()


def _rows(wake: str, ready: str, job_id: str) -> list[Change]:
    partition = partition_of(lane_of(TENANT))
    common = {"version": 1, "schema": 1, "job_id": job_id}
    more = {"tenant_id": TENANT, "claim_hash": "claim", "written": 0, "held": True}
    return [
        Change(Act.INSERT, row_of(partition, wake, {**common, **more})),
        Change(Act.INSERT, row_of(partition, ready, common)),
    ]


# -- our code beside the same calls --------------------------------------------------------------


async def beside_bare(server: Azurite, lives: int, layout: str = "ledger") -> dict[str, float]:
    """Three-step jobs through the ledger, and then the very calls of that, made of the SDK by a plain loop.

    The loop runs on tables of its own, in the same order, with the same rows and guards, and meets the
    same refusals. It decides, encodes and remembers nothing.
    """
    tables, prefix = await _opened(server)
    again = fresh_prefix()
    for table in ALL:
        await tables.ensure(again + table, "LUCIUS_LEDGER_TABLE")
    recorder, clock = Recorder(tables), Clock(at(0))
    ledger = LAYOUTS[layout](recorder, prefix, clock)
    await _live(ledger, 0, clock)
    first = len(recorder.calls)
    with spending() as ours:
        for number in range(1, lives + 1):
            await _live(ledger, number, clock)
    calls = prepared(recorder.calls, lambda table: again + table.removeprefix(prefix))
    loop = BareLoop(server.table_connection)
    await loop.run(calls[:first])
    with spending() as bare:
        await loop.run(calls[first:])
    await loop.close()
    for table in ALL:
        await tables.remove(again + table)
    await _closed(tables, prefix)
    return {
        "jobs": float(lives),
        "requests_per_job": (len(calls) - first) / lives,
        "cpu_ms_per_job": 1000 * ours.cpu / lives,
        "bare_cpu_ms_per_job": 1000 * bare.cpu / lives,
        "times_bare": ours.cpu / bare.cpu,
    }


async def _live(ledger: Any, number: int, clock: Clock) -> None:
    made = make(number, released=True, now=clock())
    assert await ledger.claimed(made.claim) is None
    await ledger.create(made.claim, made.job, made.events)
    for decision in life_of(made.job, (made.job.updated_at - at(0)).total_seconds()):
        clock.moment = decision.job.updated_at
        assert await ledger.save(decision.job, decision.job.version - 1, decision.events)
    await ledger.due(clock(), [], 1)


# -- tables --------------------------------------------------------------------------------------


async def _opened(server: Azurite) -> tuple[AzureTables, str]:
    tables, prefix = open_tables(server.table_connection), fresh_prefix()
    for table in ALL:
        await tables.ensure(prefix + table, "LUCIUS_LEDGER_TABLE")
    return tables, prefix


async def _closed(tables: AzureTables, prefix: str) -> None:
    for table in ALL:
        await tables.remove(prefix + table)
    await tables.close()
