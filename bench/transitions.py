"""Durable transitions through the engine: 200 jobs in flight, each moved by its inputs one after another."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from bench.measure import percentile, spending
from lucius.configs.files import FileConfig
from lucius.core.effects import Effect, PublishDirective
from lucius.core.inputs import AckReceived, ResultReceived, ResultStatus
from lucius.core.job import Job
from lucius.engines.ingress import Ingress, IngressPolicy
from lucius.engines.outbox import OutboxEngine
from lucius.ports.ledger import Ledger

STEPS = ("ocr", "embedding", "sis")
INPUTS = 1 + 2 * len(STEPS)
"""A three-step job awaits this many commits: create, three ACKs, three RESULTs."""


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

    engine: OutboxEngine
    asked: dict[tuple[str, str], "asyncio.Future[PublishDirective]"] = field(default_factory=dict)
    latencies: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.engine.perform = self.perform

    def perform(self, job: Job, effect: Effect) -> None:
        if isinstance(effect, PublishDirective):
            self._future(job.job_id, effect.step_id).set_result(effect)

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
            await self._timed(job_id, ResultReceived(*bound, ResultStatus.SUCCEEDED, output))

    async def _timed(self, job_id: str, received: AckReceived | ResultReceived) -> None:
        started = time.perf_counter()
        await self.engine.apply(job_id, received)
        self.latencies.append(time.perf_counter() - started)


def make_engine(ledger: Ledger) -> OutboxEngine:
    ingress = Ingress(FileConfig(), IngressPolicy())
    return OutboxEngine(ledger, ingress, now=lambda: datetime.now(UTC))


async def load(ledger: Ledger, jobs: int, in_flight: int, first: int = 0) -> dict[str, float]:
    """Jobs in a closed loop; transitions a second, CPU a job, latency of a transition."""
    driver = Driver(make_engine(ledger))
    numbers = iter(range(first, first + jobs))

    async def worker() -> None:
        for number in numbers:
            await driver.run_job(number)

    with spending() as spent:
        await asyncio.gather(*(worker() for _ in range(in_flight)))
    return {
        "jobs_per_s": jobs / spent.seconds,
        "transitions_per_s": jobs * INPUTS / spent.seconds,
        "cpu_ms_per_job": spent.cpu / jobs * 1000,
        "p50_ms": percentile(driver.latencies, 0.5) * 1000,
        "p99_ms": percentile(driver.latencies, 0.99) * 1000,
    }


async def idle(open_ledger: Callable[[], Ledger], jobs: int = 50) -> float:
    """Median milliseconds of one transition on an idle ledger."""
    ledger = open_ledger()
    driver = Driver(make_engine(ledger))
    for number in range(jobs):
        await driver.run_job(number)
    await ledger.close()
    return percentile(driver.latencies, 0.5) * 1000
