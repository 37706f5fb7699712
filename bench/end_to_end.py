"""Three-step jobs over HTTP against a real `lucius up`: throughput, latency, CPU of all processes."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count, takewhile
from pathlib import Path
from typing import Any, cast

from bench.measure import Spent, percentile, spending
from bench.sampling import NotSampledError, sample
from bench.transitions import envelope
from bench.wire import Connection
from lucius.app.lifecycle import free_port
from lucius.client import ENDED, Client

LUCIUS = str(Path(sys.executable).parent / "lucius")
SERVICES = ("ocr", "embedding", "sis")
Numbers = dict[str, Any]
TICKS = os.sysconf("SC_CLK_TCK")


class Server:
    def __init__(self, port: int, pid: int) -> None:
        self.port = port
        self.pid = pid

    def cpu(self) -> float:
        """CPU seconds of the server and of the processes that it has started, so far."""
        return sum(map(_ticks, (self.pid, *_started_by(self.pid)))) / TICKS

    def resident(self) -> int:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


def _started_by(pid: int) -> list[int]:
    """The processes that a process has started, and those that they have."""
    found = [int(each.name) for each in Path("/proc").iterdir() if _parent(each) == pid]
    return [each for child in found for each in (child, *_started_by(child))]


def _parent(process: Path) -> int | None:
    if not process.name.isdigit():
        return None
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except FileNotFoundError:  # it has ended
        return None


def _ticks(pid: int) -> int:
    """Of the process, and of those that it has started and seen end."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15]))


@asynccontextmanager
async def serving(
    data: Path,
    *,
    services: bool = True,
    kind: str = "",
    packaged: bool = False,
    environ: Mapping[str, str] | None = None,
) -> AsyncIterator[Server]:
    """`kind` is how the names of its services in `bench.echo` end; `packaged`: the real ones instead.

    `environ`: settings of its own.
    """
    port = free_port()
    named = [w for n in SERVICES for w in ("--service", f"bench.echo:{n}{kind}")]
    chosen = [] if packaged else ["--no-services", *(named if services else [])]
    process = subprocess.Popen(  # noqa: ASYNC220 - started before the clock
        [LUCIUS, "up", "--port", str(port), "--data", str(data), *chosen],
        cwd=Path(__file__).parents[1],
        env={
            **os.environ,
            "LUCIUS_MAX_INFLIGHT_PER_TENANT": "none",
            "LUCIUS_LOG_LEVEL": "WARNING",
            "LUCIUS_OUTPUT_ROOTS": str(outputs_of(data)),
            **(environ or {}),
        },
    )
    try:
        await _ready(port, process)
        yield Server(port, process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def outputs_of(data: Path) -> Path:
    """Where the jobs of a server want their results."""
    return data.with_name(f"{data.name}-outputs")


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


@dataclass
class Load:
    """What a closed loop of jobs saw: how long each took, and how many decisions moved it."""

    latencies: list[float] = field(default_factory=list)
    decisions: int = 0
    outputs: Path | None = None
    """Where the results are to go, where they are real."""

    async def one_job(self, connection: Connection, number: int) -> None:
        """Submit, and wait for the end."""
        started = time.perf_counter()
        body = envelope(number, f"t{number % 16}")
        if self.outputs is not None:
            body["output_ref"] = (self.outputs / f"{number}.json").as_uri()
        status, job = await connection.post("/v1/orchestrate?wait_seconds=30", body)
        if status == 202:
            job = await _ended(connection, job["jobId"])
        assert job.get("state") == "SUCCEEDED", job
        self.latencies.append(time.perf_counter() - started)
        self.decisions += job["version"]


async def _ended(connection: Connection, job_id: str) -> dict[str, Any]:
    while True:
        status, job = await connection.get(f"/v1/jobs/{job_id}?wait_seconds=30")
        assert status == 200, job
        if job["state"] in ENDED:
            return cast(dict[str, Any], job)


async def closed_loop(
    server: Server, numbers: Iterable[int], in_flight: int, outputs: Path | None = None
) -> Load:
    load, left = Load(outputs=outputs), iter(numbers)

    async def worker() -> None:
        connection = await Connection.open(server.port)
        for number in left:
            await load.one_job(connection, number)
        await connection.close()

    await asyncio.gather(*(worker() for _ in range(in_flight)))
    return load


async def warm(server: Server, outputs: Path | None = None) -> None:
    await closed_loop(server, range(1_000_000, 1_000_200), 20, outputs)


async def under_load(
    server: Server, jobs: int, in_flight: int, outputs: Path | None = None
) -> tuple[Numbers, Spent]:
    """What all ways to run services have in common."""
    before = server.cpu()
    async with reading(server) as reads:
        with spending() as spent:
            load = await closed_loop(server, range(jobs), in_flight, outputs)
    cpu = server.cpu() - before
    return {
        "jobs_per_s": jobs / spent.seconds,
        "decisions_per_s": load.decisions / spent.seconds,
        "decisions_per_job": load.decisions / jobs,
        "p50_ms": percentile(load.latencies, 0.5) * 1000,
        "p99_ms": percentile(load.latencies, 0.99) * 1000,
        "read_p50_ms": percentile(reads, 0.5) * 1000,
        "read_p99_ms": percentile(reads, 0.99) * 1000,
        "server_cpu_ms_per_job": cpu / jobs * 1000,
    }, spent


@asynccontextmanager
async def reading(server: Server) -> AsyncIterator[list[float]]:
    """Seconds of the reads of one that looks at a job fifty times a second, all the while."""
    latencies: list[float] = []
    reader = asyncio.create_task(_read_forever(server, latencies))
    try:
        yield latencies
    finally:
        reader.cancel()
        with suppress(asyncio.CancelledError):
            await reader


async def _read_forever(server: Server, latencies: list[float]) -> None:
    connection = await Connection.open(server.port)
    _, page = await connection.get("/v1/jobs?limit=1")
    path = f"/v1/jobs/{page['jobs'][0]['jobId']}"
    while True:
        started = time.perf_counter()
        status, job = await connection.get(path)
        assert status == 200, job
        latencies.append(time.perf_counter() - started)
        await asyncio.sleep(0.02)


# -- services in the server ------------------------------------------------------------------


async def measure(
    data: Path, jobs: int = 3000, in_flight: int = 200, sampled_seconds: int = 8
) -> tuple[Numbers, Numbers]:
    """The numbers; then, from a second load that they do not depend on, where the time goes."""
    async with serving(data) as server:
        await warm(server)
        idle = await closed_loop(server, range(2_000_000, 2_000_050), 1)
        numbers, spent = await under_load(server, jobs, in_flight)
        numbers |= {
            "idle_p50_ms": percentile(idle.latencies, 0.5) * 1000,
            "client_cpu_ms_per_job": spent.cpu / jobs * 1000,
            "rss_mb": server.resident() / 2**20,
        }
        cpu = numbers["server_cpu_ms_per_job"]
        raw = data.with_suffix(".stacks")
        return numbers, await by_component(server, raw, in_flight, sampled_seconds, cpu)


async def by_component(
    server: Server, raw: Path, in_flight: int, seconds: int, cpu_ms_per_job: float
) -> Numbers:
    """The load goes on for as long as the server is sampled."""
    sampling = asyncio.create_task(sample(server.pid, seconds, raw))
    await closed_loop(server, takewhile(lambda _: not sampling.done(), count(3_000_000)), in_flight)
    try:
        profile = await sampling
    except NotSampledError as error:
        return {"not_available": str(error)}
    return {
        "samples": profile.counts.total(),
        "samples_waiting": profile.waiting,
        "components": profile.rows(cpu_ms_per_job),
        "files_of_other": dict(profile.unknown.most_common(10)),
    }


# -- services with outputs, beside the same without -------------------------------------------


async def measure_committed(folder: Path, jobs: int = 3000, in_flight: int = 200) -> Numbers:
    """Each step stages one small file, which is committed and promoted; the last one to `output_ref` too.

    The same jobs run on services without outputs before and after.
    """
    before = await _with_services(folder / "before", "", jobs // 2, in_flight)
    numbers = await _with_services(folder / "committed", "_committed", jobs, in_flight)
    after = await _with_services(folder / "after", "", jobs // 2, in_flight)
    uncommitted = {name: (before[name] + after[name]) / 2 for name in before}
    return {
        **numbers,
        "uncommitted_jobs_per_s": uncommitted["jobs_per_s"],
        "share_of_uncommitted": numbers["jobs_per_s"] / uncommitted["jobs_per_s"],
        "uncommitted_server_cpu_ms_per_job": uncommitted["server_cpu_ms_per_job"],
    }


async def _with_services(data: Path, kind: str, jobs: int, in_flight: int) -> Numbers:
    outputs = outputs_of(data)
    outputs.mkdir(parents=True)
    async with serving(data, kind=kind) as server:
        await warm(server, outputs)
        numbers, _ = await under_load(server, jobs, in_flight, outputs)
    return numbers


# -- with the client that users import ---------------------------------------------------------


async def measure_client(data: Path, jobs: int = 3000, in_flight: int = 200) -> Numbers:
    """The same jobs through `lucius.client`, beside bare connections to the same server."""
    async with serving(data) as server:
        await warm(server)
        with spending() as bare:
            await closed_loop(server, range(jobs), in_flight)
        with spending() as spent:
            await _through_client(server, range(4_000_000, 4_000_000 + jobs), in_flight)
    return {
        "jobs_per_s": jobs / spent.seconds,
        "bare_jobs_per_s": jobs / bare.seconds,
        "share_of_bare": bare.seconds / spent.seconds,
        "client_cpu_ms_per_job": spent.cpu / jobs * 1000,
        "bare_client_cpu_ms_per_job": bare.cpu / jobs * 1000,
    }


async def _through_client(server: Server, numbers: Iterable[int], in_flight: int) -> None:
    left = iter(numbers)
    async with Client(f"http://127.0.0.1:{server.port}") as client:

        async def worker() -> None:
            for number in left:
                job = await client.run(envelope(number, f"t{number % 16}"))
                assert job.state == "SUCCEEDED", job

        await asyncio.gather(*(worker() for _ in range(in_flight)))


# -- workers that speak only HTTP ------------------------------------------------------------


async def measure_pull(data: Path, jobs: int = 3000, in_flight: int = 200) -> Numbers:
    """The same jobs, with the services outside: they pull directives and post replies in batches."""
    async with serving(data, services=False) as server:
        workers = [asyncio.create_task(_worker(server, name)) for name in SERVICES]
        await warm(server)
        numbers, spent = await under_load(server, jobs, in_flight)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    return numbers | {"client_and_worker_cpu_ms_per_job": spent.cpu / jobs * 1000}


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
