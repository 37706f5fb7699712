"""Durable transitions through the engine: 200 jobs in flight, each moved by its inputs one after another."""

import asyncio
import gc
import shutil
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.bare import record, replay, replay_by_row
from bench.measure import percentile, spending
from lucius.adapters.buses.memory import MemoryBus
from lucius.adapters.configs.files import FileConfig
from lucius.adapters.ledgers.sqlite.ledger import SqliteLedger
from lucius.app.engine import Outbox
from lucius.core.effects import Effect, PublishDirective
from lucius.core.inputs import AckReceived, ResultReceived, ResultStatus
from lucius.core.job import Job, JobState
from lucius.engine.admission.ingress import Ingress, IngressPolicy
from lucius.engine.loop import OwedEffects
from lucius.ports.ledger import Ledger
from tests.wiring import outbox

Numbers = dict[str, float]

STEPS = ("ocr", "embedding", "sis")


def envelope(number: int, tenant_id: str) -> dict[str, Any]:
    return {
        "tenant_id": tenant_id,
        "request_type": "OCR->EMBEDDING->SIS",
        "input_ref": f"s3://bucket/in/{number}.pdf",
        "output_ref": f"s3://bucket/out/{number}.json",
        "payload": {"steps": {"sis": {"prompt_set": ["What is the total?"]}}},
        "schema_version": "v1",
        "idempotency_key": f"bench-{number}",
    }


@dataclass
class Driver:
    """Plays the services: it answers each directive the moment the engine asks to publish it."""

    ledger: Ledger
    asked: dict[tuple[str, str], "asyncio.Future[PublishDirective]"] = field(default_factory=dict)
    latencies: list[float] = field(default_factory=list)
    """One of each awaited input: the submission, and each ACK and RESULT."""
    decisions: int = 0
    """Of the finished jobs; a release that goes out in the save of another input is one too."""

    def __post_init__(self) -> None:
        self.outbox = make_outbox(self.ledger, Asked(self._future))
        self.engine = self.outbox.engine

    def _future(self, job_id: str, step_id: str) -> "asyncio.Future[PublishDirective]":
        key = (job_id, step_id)
        if key not in self.asked:
            self.asked[key] = asyncio.get_running_loop().create_future()
        return self.asked[key]

    async def run_job(self, number: int) -> None:
        started = time.perf_counter()
        body = envelope(number, f"tenant-{number % 16}")
        job_id = (await self.engine.submit(body)).job_id
        self.latencies.append(time.perf_counter() - started)
        for step_id in STEPS:
            asked = await self._future(job_id, step_id)
            del self.asked[(job_id, step_id)]
            bound = (step_id, asked.attempt_no, asked.lease_id)
            await self._timed(job_id, AckReceived(*bound, worker_id="bench"))
            output = {"uri": f"s3://bucket/work/{job_id}/{step_id}"}
            result = ResultReceived(*bound, ResultStatus.SUCCEEDED, output)
            job = await self._timed(job_id, result)
        assert job.state is JobState.SUCCEEDED, job
        self.decisions += job.version

    async def _timed(self, job_id: str, received: AckReceived | ResultReceived) -> Job:
        started = time.perf_counter()
        applied = await self.engine.apply(job_id, received)
        self.latencies.append(time.perf_counter() - started)
        assert applied is not None
        return applied.job


class Asked(OwedEffects):
    """Tells whoever waits for a directive, instead of a dispatcher."""

    def __init__(self, future: Callable[[str, str], "asyncio.Future[PublishDirective]"]) -> None:
        super().__init__()
        self._future = future

    def put(self, job: Job, effect: Effect) -> None:
        if isinstance(effect, PublishDirective):
            self._future(job.job_id, effect.step_id).set_result(effect)


def make_outbox(ledger: Ledger, owed: OwedEffects | None = None) -> Outbox:
    ingress = Ingress(FileConfig(), IngressPolicy())
    return outbox(
        ledger, MemoryBus(), ingress, now=lambda: datetime.now(UTC), owed=owed or OwedEffects()
    )


async def load(ledger: Ledger, jobs: int, in_flight: int, first: int = 0) -> Numbers:
    """Jobs in a closed loop; transitions a second, CPU a job, latency of a transition."""
    driver = Driver(ledger)
    numbers = iter(range(first, first + jobs))

    async def worker() -> None:
        for number in numbers:
            await driver.run_job(number)

    with spending() as spent:
        await asyncio.gather(*(worker() for _ in range(in_flight)))
    await driver.outbox.tasks.close()
    return {
        "seconds": spent.seconds,
        "jobs_per_s": jobs / spent.seconds,
        "transitions_per_s": len(driver.latencies) / spent.seconds,
        "decisions_per_s": driver.decisions / spent.seconds,
        "cpu_ms_per_job": spent.cpu / jobs * 1000,
        "p50_ms": percentile(driver.latencies, 0.5) * 1000,
        "p99_ms": percentile(driver.latencies, 0.99) * 1000,
    }


async def beside_bare(folder: Path, jobs: int, in_flight: int) -> Numbers:
    """The load, then the rows that it wrote, in the same batches, from a plain loop."""
    path, start = folder / "transitions.db", folder / "start.db"
    ledger = await SqliteLedger.open(path)
    await load(ledger, in_flight, in_flight, first=10_000_000)
    await ledger.close()
    shutil.copy(path, start)
    ledger = await SqliteLedger.open(path)
    recorder = record(ledger)
    numbers = await load(ledger, jobs, in_flight)
    await ledger.close()
    transitions = numbers["transitions_per_s"] * numbers["seconds"]
    bare = replay(start, recorder.statements, folder / "bare.db")
    bare_rows = replay_by_row(start, recorder.statements, folder / "bare_rows.db")
    return {
        **numbers,
        "bare_transitions_per_s": transitions / bare,
        "share_of_bare": bare / numbers["seconds"],
        "bare_rows_transitions_per_s": transitions / bare_rows,
        "share_of_bare_rows": bare_rows / numbers["seconds"],
        "transitions_per_commit": transitions / recorder.commits,
    }


async def idle(folder: Path, jobs: int = 50) -> float:
    """Median milliseconds of one transition on an idle ledger."""
    ledger = await SqliteLedger.open(folder / "idle-engine.db")
    driver = Driver(ledger)
    for number in range(jobs):
        await driver.run_job(number)
    await ledger.close()
    return percentile(driver.latencies, 0.5) * 1000


async def memory_per_live_job(folder: Path, jobs: int = 5_000) -> float:
    """Bytes of Python objects that one more live job costs the engine."""
    ledger = await SqliteLedger.open(folder / "memory.db")
    engine = make_outbox(ledger).engine
    await asyncio.gather(*(engine.submit(envelope(n, f"w-{n % 16}")) for n in range(200)))
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for start in range(1_000, 1_000 + jobs, 500):
        numbers = range(start, start + 500)
        await asyncio.gather(*(engine.submit(envelope(n, f"t-{n % 16}")) for n in numbers))
    gc.collect()
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    await ledger.close()
    return used / jobs
