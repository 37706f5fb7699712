"""Three-step jobs over HTTP against a real `lucius up`: throughput, latency, CPU of all processes."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench.measure import percentile, spending
from bench.transitions import envelope
from bench.wire import Connection

LUCIUS = str(Path(sys.executable).parent / "lucius")
SERVICES = ("ocr", "embedding", "sis")
TICKS = os.sysconf("SC_CLK_TCK")


class Server:
    def __init__(self, port: int, pid: int) -> None:
        self.port = port
        self.pid = pid

    def cpu(self) -> float:
        """CPU seconds of the server so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def resident(self) -> int:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


@asynccontextmanager
async def serving(data: Path, *, services: bool = True) -> AsyncIterator[Server]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    named = [w for n in SERVICES for w in ("--service", f"bench.echo:{n}")] if services else []
    process = subprocess.Popen(  # noqa: ASYNC220 - started before the clock
        [LUCIUS, "up", "--port", str(port), "--data", str(data), "--no-services", *named],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "LUCIUS_MAX_INFLIGHT_PER_TENANT": "none", "LUCIUS_LOG_LEVEL": "WARNING"},
    )
    try:
        await _ready(port, process)
        yield Server(port, process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


async def _ready(port: int, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        try:
            connection = await Connection.open(port)
            status, _ = await connection.get("/readyz")
            await connection.close()
            if status == 200:
                return
        except OSError:
            pass
        await asyncio.sleep(0.05)
    raise RuntimeError("the server ended before it was ready")


async def one_job(connection: Connection, number: int) -> float:
    """Submit, then wait for the end. Seconds from the one to the other."""
    started = time.perf_counter()
    status, answer = await connection.post("/v1/orchestrate", envelope(number, f"t{number % 16}"))
    assert status == 202, answer
    path = f"/v1/jobs/{answer['jobId']}?wait_seconds=30"
    while True:
        status, job = await connection.get(path)
        assert status == 200, job
        if job["state"] in ("SUCCEEDED", "FAILED_FINAL", "CANCELLED"):
            assert job["state"] == "SUCCEEDED", job
            return time.perf_counter() - started


async def closed_loop(server: Server, jobs: int, in_flight: int, first: int) -> list[float]:
    numbers = iter(range(first, first + jobs))
    latencies: list[float] = []

    async def worker() -> None:
        connection = await Connection.open(server.port)
        for number in numbers:
            latencies.append(await one_job(connection, number))
        await connection.close()

    await asyncio.gather(*(worker() for _ in range(in_flight)))
    return latencies


async def measure(data: Path, jobs: int = 3000, in_flight: int = 200) -> dict[str, float]:
    async with serving(data) as server:
        await closed_loop(server, 200, 20, first=1_000_000)
        idle = await closed_loop(server, 50, 1, first=2_000_000)
        reading = asyncio.create_task(_reads(server))
        before = server.cpu()
        with spending() as spent:
            loaded = await closed_loop(server, jobs, in_flight, first=0)
        cpu = server.cpu() - before
        reading.cancel()
        reads = await reading
        return {
            "jobs_per_s": jobs / spent.seconds,
            "p50_ms": percentile(loaded, 0.5) * 1000,
            "p99_ms": percentile(loaded, 0.99) * 1000,
            "idle_p50_ms": percentile(idle, 0.5) * 1000,
            "read_p99_ms": percentile(reads, 0.99) * 1000,
            "server_cpu_ms_per_job": cpu / jobs * 1000,
            "client_cpu_ms_per_job": spent.cpu / jobs * 1000,
            "rss_mb": server.resident() / 2**20,
        }


async def _reads(server: Server) -> list[float]:
    """A reader that looks at one job ten times a second, all the while."""
    connection = await Connection.open(server.port)
    _, page = await connection.get("/v1/jobs?limit=1")
    path = f"/v1/jobs/{page['jobs'][0]['jobId']}"
    latencies: list[float] = []
    try:
        while True:
            started = time.perf_counter()
            await connection.get(path)
            latencies.append(time.perf_counter() - started)
            await asyncio.sleep(0.1)
    except asyncio.CancelledError:
        return latencies


# -- workers that speak only HTTP ------------------------------------------------------------


async def measure_pull(data: Path, jobs: int = 3000, in_flight: int = 200) -> dict[str, float]:
    """The same jobs, with the services outside: they pull directives and post replies in batches."""
    async with serving(data, services=False) as server:
        workers = [asyncio.create_task(_worker(server, name)) for name in SERVICES]
        await closed_loop(server, 200, 20, first=1_000_000)
        before = server.cpu()
        with spending() as spent:
            loaded = await closed_loop(server, jobs, in_flight, first=0)
        cpu = server.cpu() - before
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    return {
        "jobs_per_s": jobs / spent.seconds,
        "p50_ms": percentile(loaded, 0.5) * 1000,
        "p99_ms": percentile(loaded, 0.99) * 1000,
        "server_cpu_ms_per_job": cpu / jobs * 1000,
        "client_and_worker_cpu_ms_per_job": spent.cpu / jobs * 1000,
    }


async def _worker(server: Server, service: str) -> None:
    connection = await Connection.open(server.port)
    pull, answer = f"/v1/services/{service}/directives:pull", f"/v1/services/{service}/replies"
    while True:
        status, page = await connection.post(pull, {"max": 64, "wait_seconds": 20})
        assert status == 200, page
        for kind in ("ACK", "RESULT"):
            replies = [_reply(directive, kind) for directive in page["directives"]]
            if replies:
                status, settled = await connection.post(answer, {"replies": replies})
                assert status == 200, settled


def _reply(directive: dict[str, Any], kind: str) -> dict[str, Any]:
    bound = {name: directive[name] for name in ("jobId", "stepId", "attempt_no", "lease_id")}
    result = {"status": "SUCCEEDED", "output_ref": {"uri": "s3://bucket/out"}}
    extra = result if kind == "RESULT" else {}
    return {"type": kind, **bound, "callback_token": directive["callback_token"], **extra}
