"""`make bench`: tables for people, `bench/results.json` for machines. Compare numbers of one run only.

`make bench ARGS="committed kit"` runs these parts alone.
"""

import json
import os
import platform
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

import uvloop

from bench import (
    azure,
    documents,
    end_to_end,
    growth,
    kit,
    ledger,
    restate,
    temporal,
    transitions,
    why,
)
from bench.disk import keep_apart, new_folder_us
from bench.measure import calibration, show
from lucius import build
from lucius.app.lifecycle import settle_collector

RESULTS = Path(__file__).parent / "results.json"
QUICK = "--quick" in sys.argv
"""A tenth of everything, to see that it runs."""


def scaled(count: int) -> int:
    return max(count // 10, 200) if QUICK else count


Part = Callable[[Path], Awaitable[dict[str, Any]]]


async def _transitions(folder: Path) -> dict[str, Any]:
    numbers = await transitions.beside_bare(folder, scaled(10_000), 200)
    numbers["idle_ms"] = await transitions.idle(folder)
    numbers["bytes_per_live_job"] = await transitions.memory_per_live_job(folder)
    return numbers


async def _http(folder: Path) -> dict[str, Any]:
    """The time by component is a table of its own."""
    seconds = 3 if QUICK else 8
    numbers, components = await end_to_end.measure(
        folder / "http", scaled(6_000), sampled_seconds=seconds
    )
    return {**numbers, COMPONENTS: components}


PARTS: Final[dict[str, Part]] = {
    "transitions": _transitions,
    "http": _http,
    "committed": lambda folder: end_to_end.measure_committed(folder / "commit", scaled(4_000)),
    "kit": lambda _: kit.measure(scaled(10_000)),
    "client": lambda folder: end_to_end.measure_client(folder / "client", scaled(3_000)),
    "pull": lambda folder: end_to_end.measure_pull(folder / "pull", scaled(3_000)),
    "documents": lambda folder: documents.measure(folder / "documents", 1 if QUICK else 10),
    "temporal": lambda folder: temporal.measure(folder / "temporal", scaled(3_000)),
    "ledger": lambda _: ledger.main(large=100_000 if QUICK else 1_000_000),
    "growth": lambda folder: growth.measure(folder / "growth", scaled(2_000)),
    "why": lambda folder: why.measure(folder, scaled(100_000)),
    "azure": lambda _: azure.measure(scaled(10_000), 20 if QUICK else 200),
}
PEERS: Final[dict[str, Part]] = {
    "restate": lambda folder: restate.measure(folder / "restate", scaled(4_000)),
}
"""Parts that need what is not installed here, and run only where they are named."""
COMPONENTS: Final = "components"


async def run(folder: Path, chosen: Sequence[str]) -> dict[str, Any]:
    settle_collector()
    keep_apart(folder)
    results: dict[str, Any] = {"machine": machine()}
    calibrations = [(calibration(), new_folder_us(folder))]
    for name in chosen:
        part = folder / token_hex(4)  # a region of the disk goes by the name, so it is a new one
        part.mkdir()
        results[name] = await (PARTS | PEERS)[name](part)
    calibrations.append((calibration(), new_folder_us(folder)))
    results["calibration_s"] = [seconds for seconds, _ in calibrations]
    results["new_folder_us"] = [each for _, each in calibrations]
    return results


def machine() -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "interpreter": os.path.realpath(sys.executable),
        "build": build(),
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
    }


MEANING = {
    "transitions_per_s": "inputs whose commit was awaited: a submission, three ACKs, three RESULTs",
    "decisions_per_s": "submissions, releases, ACKs and RESULTs, by the versions of the jobs",
    "bare_transitions_per_s": "the ledger's own statements of many rows, from a plain loop",
    "share_of_bare": "our rate / the bare rate of the same table",
    "bare_rows_transitions_per_s": "the same rows and commits, one statement a row",
    "share_of_bare_rows": "transitions_per_s / bare_rows_transitions_per_s",
    "share_of_uncommitted": "jobs_per_s / uncommitted_jobs_per_s: what exactly-once costs",
    "share_of_bare_one_by_one": "CPU of the kit / CPU of a loop that receives, ACKs and answers",
    "share_of_bare_at_once": "the same beside such a loop with a task for each directive",
    "quiet_read_p50_ms": "the same before anything else happens",
    "cores_in_use": "CPU of the server and its processes / time",
    "times_restate": "jobs_per_s / restate_jobs_per_s, the median of the pairs",
    "pairs": "jobs a second of each pair",
    "most_expensive_by_cheapest": "1 would be flat",
    "read_p50_ms": "GET /v1/jobs/{id} during the load",
    "read_p99_ms": "GET /v1/jobs/{id} during the load",
}


TITLES: Final = {
    "transitions": "Durable transitions through the engine, 200 jobs in flight",
    "http": "Three-step jobs over HTTP, services of the server, 200 in flight",
    "committed": "The same with outputs: each step commits and promotes a small file",
    "kit": "The kit, beside bare loops on the same bus",
    "client": "The same through `lucius.client`, beside bare connections",
    "pull": "Three-step jobs over HTTP, services over the pull gateway, 200 in flight",
    "documents": "Ten scans at once through the packaged services",
    "temporal": "Three-step jobs on Temporal, beside a bare workflow on the same server",
    "restate": "Three-step jobs with outputs through `lucius.client`, in turns with Restate",
    "growth": "The cost of a job beside jobs that are live and wait",
    "why": "`lucius why` with many live jobs, for one of them and for the system",
}
AZURE_TITLES: Final = {
    "take_over": "Taking over a lane of the Azure ledger, on tables in memory",
    "beside_bare": "Three-step jobs on ledger `ledger`, beside the same calls bare",
    "beside_bare_in_separate_tables": "Three-step jobs on ledger `table`, beside the same calls bare",
}


def report(results: dict[str, Any]) -> None:
    for key, title in TITLES.items():
        rows = [
            {"measure": name, "value": value, "what it is": MEANING.get(name, "")}
            for name, value in results.get(key, {}).items()
            if name != COMPONENTS
        ]
        if rows:
            show(title, rows)
    if "http" in results:
        report_components(results["http"][COMPONENTS])
    for key, rows in results.get("azure", {}).items():
        show(AZURE_TITLES[key], [{"measure": name, "value": value} for name, value in rows.items()])


def report_components(found: dict[str, Any]) -> None:
    if "not_available" in found:
        print(f"Time by component is not available: {found['not_available']}")
        return
    title = "Where the time of the server's own process goes, 200 in flight"
    show(f"{title} ({found['samples']:,} samples)", found["components"])
    if found["files_of_other"]:
        print(f"other: {found['files_of_other']}")


def chosen_parts(words: Sequence[str]) -> list[str]:
    named = [word for word in words if not word.startswith("-")]
    unknown = set(named) - set(PARTS | PEERS)
    if unknown:
        there = ", ".join(PARTS | PEERS)
        sys.exit(f"no such part: {', '.join(sorted(unknown))}. There are {there}")
    return named or list(PARTS)


def main() -> None:
    chosen = chosen_parts(sys.argv[1:])
    with tempfile.TemporaryDirectory(
        prefix="lucius-bench-", dir=os.environ.get("BENCH_DIR")
    ) as name:
        results = uvloop.run(run(Path(name), chosen))
    report(results)
    print(f"calibration before and after: {results['calibration_s']}")
    print(f"CPU microseconds of a new folder before and after: {results['new_folder_us']}")
    RESULTS.write_text(json.dumps(results, indent=1))
    print(f"written to {RESULTS.relative_to(Path.cwd())}")


if __name__ == "__main__":
    main()
