"""How fast the SQLite ledger is: durable saves beside bare SQLite, idle latency, and flatness."""

import asyncio
import gc
import shutil
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from bench.bare import record, replay, replay_by_row
from bench.ledger_bulk import LANES, bulk_load, live_id, queue
from lucius.adapters.ledgers.sqlite.ledger import SqliteLedger
from lucius.core.effects import Decision
from lucius.core.job import JobState
from lucius.ports.ledger import JobQuery
from tests.conformance.jobs import Made, at, life_of, make

TASKS = 200
JOBS_PER_TASK = 5
ROUNDS = 3
Numbers = dict[str, float]
Lives = list[list[tuple[Made, list[Decision]]]]


def lives(tasks: int = TASKS, jobs: int = JOBS_PER_TASK) -> Lives:
    """Real decisions of three-step jobs, made before the clock starts."""
    made = [
        [make((t, j), f"tenant-{t % 8}", released=True) for j in range(jobs)] for t in range(tasks)
    ]
    return [[(one, life_of(one.job)) for one in row] for row in made]


# -- writing ---------------------------------------------------------------------------------


async def writes(folder: Path) -> Numbers:
    """The round with the median throughput."""
    rounds = []
    for number in range(ROUNDS):
        (folder / f"round-{number}").mkdir()
        rounds.append(await _round(folder / f"round-{number}"))
    return sorted(rounds, key=lambda numbers: numbers["saves_per_s"])[ROUNDS // 2]


async def _round(folder: Path) -> Numbers:
    """Saves of 200 tasks at once, then the same rows from a plain loop."""
    path, start, work = folder / "ledger.db", folder / "start.db", lives()
    ledger = await SqliteLedger.open(path)
    for together in zip(*work, strict=True):
        await asyncio.gather(*(ledger.create(m.claim, m.job, m.events) for m, _ in together))
    await ledger.close()
    shutil.copy(path, start)
    ledger = await SqliteLedger.open(path)
    recorder = record(ledger)
    gc.collect()
    gc.freeze()  # What was prepared would not be there in life: do not traverse it again and again.
    saves, seconds = await _drive(ledger, work)
    gc.unfreeze()
    await ledger.close()
    bare = replay(start, recorder.statements, folder / "bare.db")
    bare_rows = replay_by_row(start, recorder.statements, folder / "bare_rows.db")
    return {
        "saves_per_s": saves / seconds,
        "bare_saves_per_s": saves / bare,
        "share_of_bare": bare / seconds,
        "bare_rows_saves_per_s": saves / bare_rows,
        "share_of_bare_rows": bare_rows / seconds,
        "saves_per_commit": saves / recorder.commits,
        "bytes_per_job": path.stat().st_size / (TASKS * JOBS_PER_TASK),
    }


async def _drive(ledger: SqliteLedger, work: Lives) -> tuple[int, float]:
    async def task(row: list[tuple[Made, list[Decision]]]) -> int:
        saves = 0
        for _, decisions in row:
            for decision in decisions:
                job = decision.job
                assert await ledger.save(job, job.version - 1, decision.events)
                saves += 1
        return saves

    started = time.perf_counter()
    saves = sum(await asyncio.gather(*(task(row) for row in work)))
    return saves, time.perf_counter() - started


async def idle(folder: Path) -> Numbers:
    """Milliseconds of a save when nothing else is written."""
    ledger = await SqliteLedger.open(folder / "idle.db")
    samples: list[float] = []
    for [(made, decisions)] in lives(100, 1):
        await ledger.create(made.claim, made.job, made.events)
        for decision in decisions:
            started = time.perf_counter()
            await ledger.save(decision.job, decision.job.version - 1, decision.events)
            samples.append(time.perf_counter() - started)
    await ledger.close()
    return {
        "idle_save_ms": statistics.median(samples) * 1e3,
        "idle_save_p99_ms": statistics.quantiles(samples, n=100)[98] * 1e3,
    }


# -- flatness --------------------------------------------------------------------------------

Ask = Callable[[SqliteLedger, int], Awaitable[object]]

ASKS: dict[str, Ask] = {
    "lookup": lambda ledger, n: ledger.load(live_id(n)),
    "due": lambda ledger, n: ledger.due(at(10**9), LANES, 50),
    "next_due": lambda ledger, n: ledger.next_due(LANES),
    "ready_queues": lambda ledger, n: ledger.ready_queues(LANES),
    "ready": lambda ledger, n: ledger.ready(*queue(n), 10),
    "list_newest": lambda ledger, n: ledger.list(JobQuery()),
    "list_tenant": lambda ledger, n: ledger.list(JobQuery(tenant_ids=[f"tenant-{n % 8}"])),
    "list_state": lambda ledger, n: ledger.list(JobQuery(states=[JobState.SUCCEEDED])),
    "list_tenant_state_type": lambda ledger, n: ledger.list(
        JobQuery(
            tenant_ids=[f"tenant-{n % 8}"],
            states=[JobState.SUCCEEDED],
            request_type="OCR->EMBEDDING->SIS",
        )
    ),
    "list_state_rare_type": lambda ledger, n: ledger.list(
        JobQuery(states=[JobState.SUCCEEDED], request_type="SIS")
    ),
    "list_dlq": lambda ledger, n: ledger.list(JobQuery(dlq=True)),
    "list_time": lambda ledger, n: ledger.list(JobQuery(created_to=at(500))),
}


async def reads(folder: Path, *sizes: int) -> dict[int, Numbers]:
    """Microseconds for each kind of read in ledgers of so many jobs, asked in turns."""
    for jobs in sizes:
        await asyncio.to_thread(bulk_load, folder / f"{jobs}.db", jobs)
    ledgers = {jobs: await SqliteLedger.open(folder / f"{jobs}.db") for jobs in sizes}
    numbers: dict[int, Numbers] = {jobs: {} for jobs in sizes}
    for name, ask in ASKS.items():
        for jobs, median in (await _medians(ledgers, ask)).items():
            numbers[jobs][name] = median
    for ledger in ledgers.values():
        await ledger.close()
    return numbers


async def _medians(
    ledgers: dict[int, SqliteLedger], ask: Ask, times: int = 200
) -> dict[int, float]:
    samples: dict[int, list[float]] = {jobs: [] for jobs in ledgers}
    for n in range(times):
        for jobs, ledger in ledgers.items():
            started = time.perf_counter()
            await ask(ledger, n)
            samples[jobs].append(time.perf_counter() - started)
    return {jobs: statistics.median(taken) * 1e6 for jobs, taken in samples.items()}


# -- the table -------------------------------------------------------------------------------


async def main(small: int = 1_000, large: int = 1_000_000) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="lucius-bench-") as name:
        folder = Path(name)
        numbers: dict[str, Any] = {**await writes(folder), **await idle(folder)}
        for name_, value in numbers.items():
            print(f"{name_:<24} {value:>12,.2f}")
        few, many = (await reads(folder, small, large)).values()
    print(f"{'microseconds':<24} {small:>12,} {large:>12,} {'times':>7}")
    for kind in ASKS:
        print(f"{kind:<24} {few[kind]:>12.1f} {many[kind]:>12.1f} {many[kind] / few[kind]:>7.2f}")
    return {**numbers, "reads": {str(small): few, str(large): many}}


if __name__ == "__main__":
    asyncio.run(main())
