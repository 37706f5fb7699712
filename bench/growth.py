"""The cost of a job beside 1, 10, 100, 1,000 and 10,000 jobs that are live and wait."""

import asyncio
from pathlib import Path
from typing import Any, Final

from bench.end_to_end import Server, closed_loop, outputs_of, serving, warm
from bench.measure import spending
from bench.transitions import envelope
from bench.wire import Connection

LIVE: Final = (1, 10, 100, 1_000, 10_000)
IN_FLIGHT: Final = 200
WAITING: Final = 10_000_000
MEASURED: Final = 20_000_000
PROTOCOL: Final = """
step_types: {IDLE: {service: idle}}
protocols: [{request_type: IDLE, protocol_id: idle_v1, steps: [IDLE]}]
"""
Numbers = dict[str, Any]


async def measure(data: Path, jobs: int, live: tuple[int, ...] = LIVE) -> Numbers:
    """CPU of the server and its services for each job, by the number of jobs that wait meanwhile.

    The waiting jobs need a service that is paused, so they are held in the ledger.
    """
    outputs = outputs_of(data)
    outputs.mkdir(parents=True)
    numbers: Numbers = {}
    protocols = data.with_name("protocols")
    protocols.mkdir()
    (protocols / "idle.yaml").write_text(PROTOCOL)
    environ = {"LUCIUS_PROTOCOLS": f"packaged,{protocols}"}
    async with serving(data, kind="_committed", environ=environ) as server:
        await warm(server, outputs)
        await _pause_idle(server)
        waiting = 0
        for wanted in live:
            await _submit(server, range(WAITING + waiting, WAITING + wanted))
            waiting = wanted
            before = server.cpu()
            with spending() as spent:
                await closed_loop(server, numbers_of(wanted, jobs), IN_FLIGHT, outputs)
            numbers[f"cpu_ms_per_job_beside_{wanted}"] = (server.cpu() - before) / jobs * 1000
            numbers[f"jobs_per_s_beside_{wanted}"] = jobs / spent.seconds
    costs = [numbers[f"cpu_ms_per_job_beside_{each}"] for each in live]
    return numbers | {"most_expensive_by_cheapest": max(costs) / min(costs)}


async def _pause_idle(server: Server) -> None:
    connection = await Connection.open(server.port)
    status, answer = await connection.post("/v1/services/idle:pause", {"reason": "benchmark"})
    assert status == 200, answer
    await connection.close()


async def _submit(server: Server, numbers: range) -> None:
    """Jobs of one step that nobody takes."""
    left = iter(numbers)

    async def submit() -> None:
        connection = await Connection.open(server.port)
        for number in left:
            body = envelope(number, f"t{number % 16}") | {
                "request_type": "IDLE",
                "payload": {},
            }
            status, answer = await connection.post("/v1/orchestrate", body)
            assert status == 202, answer
        await connection.close()

    await asyncio.gather(*(submit() for _ in range(IN_FLIGHT)))


def numbers_of(live: int, jobs: int) -> range:
    """Numbers that no other job of the run has."""
    return range(MEASURED + live * 10_000, MEASURED + live * 10_000 + jobs)
