"""Three-step jobs on Restate, in turns with jobs on LUCIUS whose services have outputs.

Each side is asked by what its users have: LUCIUS by `lucius.client`, Restate by a session of aiohttp, which
that client is built on. A step of Restate returns a value into its journal; a step of LUCIUS commits a file.
`BENCH_RESTATE` names a folder with a server and a virtual environment of its own:

    mkdir peer && python3 -m venv peer/venv && peer/venv/bin/pip install restate-sdk hypercorn uvloop
    npm install --prefix peer @restatedev/restate-server
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

import aiohttp

from bench.end_to_end import Server, outputs_of, serving
from bench.measure import spending
from bench.transitions import envelope
from lucius.app.lifecycle import free_port
from lucius.client import Client

ROUNDS: Final = 4
WARM: Final = range(1_000_000, 1_000_200)
START_SECONDS: Final = 60.0
END_SECONDS: Final = 10.0
Numbers = dict[str, Any]
OneJob = Callable[[int], Awaitable[None]]


async def measure(folder: Path, jobs: int, in_flight: int = 200) -> Numbers:
    """Both in turns, some rounds: what disturbs the machine for longer meets both."""
    peer = Path(os.environ.get("BENCH_RESTATE") or sys.exit(_ADVICE))
    ours, theirs = [], []
    for turn in range(ROUNDS):
        ours.append(await _lucius(folder / f"lucius-{turn}", jobs, in_flight))
        theirs.append(await _restate(peer, folder / f"restate-{turn}", jobs, in_flight))
    pairs = [a[0] / b[0] for a, b in zip(ours, theirs, strict=True)]
    return {
        "jobs_per_s": median(rate for rate, _ in ours),
        "restate_jobs_per_s": median(rate for rate, _ in theirs),
        "times_restate": median(pairs),
        "lowest_times_restate": min(pairs),
        "cpu_ms_per_job": median(cpu for _, cpu in ours),
        "restate_cpu_ms_per_job": median(cpu for _, cpu in theirs),
        "pairs": " ".join(f"{a:.0f}:{b:.0f}" for (a, _), (b, _) in zip(ours, theirs, strict=True)),
    }


_ADVICE: Final = (
    f"set BENCH_RESTATE to a folder that was made like this:\n{__doc__.partition('own:')[2]}"
)


async def _lucius(data: Path, jobs: int, in_flight: int) -> tuple[float, float]:
    outputs = outputs_of(data)
    outputs.mkdir(parents=True)
    async with (
        serving(data, kind="_committed") as server,
        Client(f"http://127.0.0.1:{server.port}") as client,
    ):

        async def one_job(number: int) -> None:
            wanted = (outputs / f"{number}.json").as_uri()
            command = envelope(number, f"t{number % 16}") | {"output_ref": wanted}
            job = await client.run(command)
            assert job.state == "SUCCEEDED", job

        return await _rate([server], one_job, jobs, in_flight)


async def _restate(peer: Path, data: Path, jobs: int, in_flight: int) -> tuple[float, float]:
    os.makedirs(data)
    async with _peer(peer, data) as (servers, ingress), _session() as session:

        async def one_job(number: int) -> None:
            url = f"http://127.0.0.1:{ingress}/pipeline/{number}/run"
            async with session.post(url, json={"job": f"job-{number}"}) as answer:
                assert answer.status == 200, await answer.text()
                assert (await answer.json())["step"] == "SIS"

        return await _rate(servers, one_job, jobs, in_flight)


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))


async def _rate(
    servers: list[Server], one_job: OneJob, jobs: int, in_flight: int
) -> tuple[float, float]:
    """Jobs a second, and CPU milliseconds a job of all processes."""
    await _closed_loop(one_job, WARM, 20)
    before = sum(server.cpu() for server in servers)
    with spending() as spent:
        await _closed_loop(one_job, range(jobs), in_flight)
    cpu = sum(server.cpu() for server in servers) - before + spent.cpu
    return jobs / spent.seconds, cpu / jobs * 1000


async def _closed_loop(one_job: OneJob, numbers: Iterable[int], in_flight: int) -> None:
    left = iter(numbers)

    async def worker() -> None:
        for number in left:
            await one_job(number)

    await asyncio.gather(*(worker() for _ in range(in_flight)))


@asynccontextmanager
async def _peer(peer: Path, data: Path) -> AsyncIterator[tuple[list[Server], int]]:
    """A server and its service, ready to take jobs on the port that comes with them."""
    ingress, admin, node, service = (free_port() for _ in range(4))
    loopback = "127.0.0.1"
    environ = {
        **os.environ,
        "RESTATE_BASE_DIR": str(data),
        "RESTATE_LISTEN_MODE": "tcp",
        "RESTATE_BIND_IP": loopback,
        "RESTATE_BIND_PORT": str(node),
        "RESTATE_ADVERTISED_ADDRESS": f"http://{loopback}:{node}",
        "RESTATE_INGRESS__BIND_PORT": str(ingress),
        "RESTATE_ADMIN__BIND_PORT": str(admin),
        "RESTATE_LOG_FILTER": "error",
        "RESTATE_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "1",
    }
    server = [str(peer / "node_modules/.bin/restate-server"), "--no-logo", "--node-name", "bench"]
    hypercorn = [str(peer / "venv/bin/python"), "-m", "hypercorn", "--worker-class", "uvloop"]
    hypercorn += [
        "--bind",
        f"{loopback}:{service}",
        "--log-level",
        "error",
        "bench.restate_app:app",
    ]
    processes = [
        subprocess.Popen(server, env=environ, cwd=data),  # noqa: ASYNC220 - before the clock
        subprocess.Popen(hypercorn, cwd=Path(__file__).parents[1]),  # noqa: ASYNC220
    ]
    try:
        async with asyncio.timeout(START_SECONDS), _session() as session:
            body = {"uri": f"http://{loopback}:{service}"}
            await _taken(session, f"http://{loopback}:{admin}/deployments", body)
            await _taken(
                session, f"http://{loopback}:{ingress}/pipeline/probe/run", {"job": "probe"}
            )
        yield [Server(0, process.pid) for process in processes], ingress
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait(END_SECONDS)


async def _taken(session: aiohttp.ClientSession, url: str, body: dict[str, str]) -> None:
    """Ask until it is there and says yes."""
    while True:
        try:
            async with session.post(url, json=body) as answer:
                if answer.ok:
                    return
        except aiohttp.ClientError:
            pass
        await asyncio.sleep(0.2)
