"""Three-step jobs on the Temporal engine, beside a bare workflow of three activities and six signals.

Both run on one Temporal server, in turns: bare, ours, bare. The bare workflow stores nothing, decides nothing
and has no timeouts: whoever ran its activity sends it the two signals that it waits for. Neither runs in the
sandbox of the library.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from uuid import uuid4

from temporalio import activity
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from bench.bare_workflow import BareJob
from bench.end_to_end import Numbers, Server, closed_loop, serving
from bench.measure import percentile, spending
from tests.temporal.server import TemporalServer

LOOKED_AT = 20
"""Histories that are counted, the last ones of a run."""
COUNTED = {
    "EVENT_TYPE_WORKFLOW_TASK_COMPLETED": "workflow_tasks",
    "EVENT_TYPE_ACTIVITY_TASK_COMPLETED": "activities",
    "EVENT_TYPE_MARKER_RECORDED": "markers",
    "EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED": "signals",
    "EVENT_TYPE_TIMER_STARTED": "timers",
    "EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES": "upserts",
}


class BareService:
    """Its work is trivial, as in the services of the other side: it sends ACK and RESULT."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._sending: set[asyncio.Task[None]] = set()

    @activity.defn(name="bare_step")
    async def step(self, step: int) -> None:
        job_id = activity.info().workflow_id
        assert job_id is not None
        sending = asyncio.create_task(self._reply(job_id, step))
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)

    async def _reply(self, job_id: str, step: int) -> None:
        handle = self._client.get_workflow_handle(job_id)
        for kind in ("ACK", "RESULT"):
            await handle.signal("told", {"jobId": job_id, "step": step, "type": kind})


async def measure(folder: Path, jobs: int = 1000, in_flight: int = 100) -> Numbers:
    server = TemporalServer()
    server.start()
    try:
        client = await server.client()
        before = await bare(client, server, jobs // 2, in_flight)
        ours = await _ours(client, server, folder, jobs, in_flight)
        after = await bare(client, server, jobs // 2, in_flight)
    finally:
        server.remove()
    beside = {f"bare_{name}": (before[name] + after[name]) / 2 for name in before}
    return {**ours, **beside, "share_of_bare": ours["jobs_per_s"] / beside["bare_jobs_per_s"]}


async def bare(client: Client, server: TemporalServer, jobs: int, in_flight: int) -> Numbers:
    queue = f"bare-{uuid4().hex[:8]}"

    async def run_some(ids: Sequence[str]) -> list[float]:
        left, latencies = iter(ids), []

        async def runner() -> None:
            for job_id in left:
                started = time.perf_counter()
                await client.execute_workflow(BareJob.run, id=job_id, task_queue=queue)
                latencies.append(time.perf_counter() - started)

        await asyncio.gather(*(runner() for _ in range(in_flight)))
        return latencies

    warm, measured = ([f"bare-{uuid4().hex}" for _ in range(count)] for count in (in_flight, jobs))
    service = BareService(client)
    worker = Worker(
        client,
        task_queue=queue,
        workflows=[BareJob],
        activities=[service.step],
        workflow_runner=UnsandboxedWorkflowRunner(),
        build_id="bare",
    )
    async with worker:
        await run_some(warm)
        numbers = await _timed(server, jobs, lambda: run_some(measured))
    return numbers | await _per_job(client, measured[-LOOKED_AT:])


async def _ours(
    client: Client, server: TemporalServer, data: Path, jobs: int, in_flight: int
) -> Numbers:
    environ = {
        "LUCIUS_TEMPORAL_ENABLED": "true",
        "LUCIUS_TEMPORAL_ADDRESS": server.address,
        "LUCIUS_TEMPORAL_TASK_QUEUE": f"lucius-{uuid4().hex[:8]}",
    }
    async with serving(data, environ=environ) as lucius:
        await closed_loop(lucius, range(1_000_000, 1_000_000 + in_flight), in_flight)
        cpu = lucius.cpu()

        async def run_all() -> list[float]:
            return (await closed_loop(lucius, range(jobs), in_flight)).latencies

        numbers = await _timed(server, jobs, run_all)
        numbers["lucius_cpu_ms_per_job"] = (lucius.cpu() - cpu) / jobs * 1000
        ids = [
            each.id
            async for each in client.list_workflows("WorkflowType = 'LuciusJob'", limit=LOOKED_AT)
        ]
    return numbers | await _per_job(client, ids)


async def _timed(
    server: TemporalServer, jobs: int, run: Callable[[], Awaitable[list[float]]]
) -> Numbers:
    before = Server(0, server.pid).cpu()
    with spending() as spent:
        latencies = await run()
    return {
        "jobs_per_s": jobs / spent.seconds,
        "p50_ms": percentile(latencies, 0.5) * 1000,
        "p99_ms": percentile(latencies, 0.99) * 1000,
        "temporal_cpu_ms_per_job": (Server(0, server.pid).cpu() - before) / jobs * 1000,
        "client_cpu_ms_per_job": spent.cpu / jobs * 1000,
    }


async def _per_job(client: Client, ids: Sequence[str]) -> Numbers:
    """Events of a history, and what of them costs the server a transaction of its own."""
    counts: Counter[str] = Counter()
    for job_id in ids:
        history = await client.get_workflow_handle(job_id).fetch_history()
        counts["events"] += len(history.events)
        for event in history.events:
            counts[COUNTED.get(EventType.Name(event.event_type), "other")] += 1
    return {f"{name}_per_job": count / len(ids) for name, count in counts.items()}
