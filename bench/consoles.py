"""What open consoles cost a server under load: `python -m bench.consoles [ROUNDS] [JOBS]`.

A console is what a browser does: it listens to `/live` and fetches its page again when told to.
Rounds with and without them take turns on one server, so that the machine's own load falls on both.
"""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median

import httpx

from bench.end_to_end import Server, closed_loop, serving, warm

CONSOLES = 10
IN_FLIGHT = 50
PAGES = ("/", "/jobs", "/services", "/jobs?state=SUCCEEDED", "/")


async def watch(client: httpx.AsyncClient, page: str, looks: list[int]) -> None:
    async with client.stream("GET", "/live") as stream:
        async for line in stream.aiter_lines():
            if line == "event: look":
                answer = await client.get(page)
                assert answer.status_code == 200, answer.text
                looks.append(1)


@asynccontextmanager
async def open_consoles(server: Server, number: int) -> AsyncIterator[list[int]]:
    looks: list[int] = []
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", timeout=120) as client:
        tasks = [
            asyncio.create_task(watch(client, PAGES[at % len(PAGES)], looks))
            for at in range(number)
        ]
        yield looks
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def warm_pages(server: Server) -> None:
    """Templates are compiled when they are first asked for, whoever asks."""
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", timeout=120) as client:
        for page in PAGES:
            (await client.get(page)).raise_for_status()


async def measure(folder: Path, rounds: int, jobs: int) -> None:
    rates: dict[int, list[float]] = {0: [], CONSOLES: []}
    cpu: dict[int, list[float]] = {0: [], CONSOLES: []}
    looked = 0
    async with serving(folder) as server:
        await warm(server)
        await warm_pages(server)
        for turn in range(rounds):
            for consoles in (0, CONSOLES) if turn % 2 else (CONSOLES, 0):
                first = (2 * turn + bool(consoles)) * jobs
                async with open_consoles(server, consoles) as looks:
                    before, began = server.cpu(), asyncio.get_running_loop().time()
                    await closed_loop(server, range(first, first + jobs), IN_FLIGHT)
                    seconds = asyncio.get_running_loop().time() - began
                rates[consoles].append(jobs / seconds)
                cpu[consoles].append((server.cpu() - before) / jobs * 1000)
                looked += len(looks)
                print(
                    f"{consoles:3} consoles: {rates[consoles][-1]:7.1f} jobs/s,"
                    f" {cpu[consoles][-1]:.2f} ms of CPU a job, {len(looks)} looks"
                )
    without, with_them = (median(rates[number]) for number in (0, CONSOLES))
    print(
        f"median: {without:.1f} jobs/s without, {with_them:.1f} with: {with_them / without - 1:+.1%}"
    )
    plain, more = (median(cpu[number]) for number in (0, CONSOLES))
    print(
        f"CPU of the server a job: {plain:.2f} ms without, {more:.2f} ms with: {more / plain - 1:+.1%}"
    )
    print(f"{looked} pages were fetched")


def main() -> None:
    rounds, jobs = (int(text) for text in (*sys.argv[1:], "6", "2000")[:2])
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(Path(folder), rounds, jobs))


if __name__ == "__main__":
    main()
