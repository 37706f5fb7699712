"""How long `lucius why` takes with many live jobs: for one in the middle of the line, and for all."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from statistics import quantiles
from time import perf_counter
from typing import Any

from lucius.adapters.buses.memory import MemoryBus
from lucius.adapters.configs.files import FileConfig
from lucius.adapters.ledgers.sqlite.ledger import SqliteLedger
from lucius.app.operations import insight, listening
from lucius.engine.admission.ingress import Ingress, IngressPolicy
from lucius.operations.why import ProcessState
from lucius.ports.lanes import ALL_LANES
from tests.wiring import outbox

AT_ONCE = 500
TENANTS = 50
ASKED = 20


def now() -> datetime:
    return datetime.now(UTC)


def envelope(number: int) -> dict[str, Any]:
    return {
        "tenant_id": f"tenant_{number % TENANTS}",
        "request_type": "OCR->EMBEDDING->SIS",
        "input_ref": f"s3://bucket/{number}.pdf",
        "output_ref": f"s3://bucket/{number}.json",
        "payload": {"prompt_set": ["who?"]},
        "schema_version": "v1",
        "idempotency_key": f"{number}",
    }


async def measure(folder: Path, live: int) -> dict[str, float]:
    """Milliseconds; nobody serves the jobs, so that all of them are live."""
    config = FileConfig()
    ledger = await SqliteLedger.open(folder / "why.db")
    heard = listening(ledger, ALL_LANES, now)
    parts = outbox(
        ledger,
        MemoryBus(),
        Ingress(config, IngressPolicy()),
        now=now,
        listeners=heard.listeners,
        observers=heard.observers,
        held_back=heard.paused,
    )
    known = insight(
        heard,
        ledger,
        parts,
        lanes=ALL_LANES,
        catalog=config.catalog,
        troubles=dict,
        process=ProcessState(),
        now=now,
    )
    ids: list[str] = []
    for start in range(0, live, AT_ONCE):
        made = (parts.engine.submit(envelope(n)) for n in range(start, start + AT_ONCE))
        ids += [submitted.job_id for submitted in await asyncio.gather(*made)]
    one, every = list[float](), list[float]()
    for job_id in ids[:: len(ids) // ASKED]:
        job = await parts.engine.job(job_id)
        assert job is not None
        began = perf_counter()
        await known.diagnoser.job(job, {}, tenants=None)
        one.append(perf_counter() - began)
        began = perf_counter()
        await known.diagnoser.system({}, {}, tenants=None)
        every.append(perf_counter() - began)
    await ledger.close()
    return {
        "live_jobs": live,
        "job_p50_ms": round(quantiles(one, n=2)[0] * 1000, 2),
        "job_max_ms": round(max(one) * 1000, 2),
        "system_p50_ms": round(quantiles(every, n=2)[0] * 1000, 2),
        "system_max_ms": round(max(every) * 1000, 2),
    }
