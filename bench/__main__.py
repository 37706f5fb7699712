"""`make bench`: tables for people, `bench/results.json` for machines. Compare numbers of one run only."""

import json
import os
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

import uvloop

from bench import azure, documents, end_to_end, kit, ledger, temporal, transitions, why
from bench.measure import calibration, show
from lucius.bootstrap.serve import settle_collector

RESULTS = Path(__file__).parent / "results.json"
QUICK = "--quick" in sys.argv
"""A tenth of everything, to see that it runs."""


def scaled(count: int) -> int:
    return max(count // 10, 200) if QUICK else count


async def run(folder: Path) -> dict[str, Any]:
    settle_collector()
    results: dict[str, Any] = {"machine": machine(), "calibration_s": [calibration()]}
    results["transitions"] = await transitions.beside_bare(folder, scaled(10_000), 200)
    results["transitions"]["idle_ms"] = await transitions.idle(folder)
    results["transitions"]["bytes_per_live_job"] = await transitions.memory_per_live_job(folder)
    results["http"], results["http_components"] = await end_to_end.measure(
        folder / "http", scaled(6_000), sampled_seconds=3 if QUICK else 8
    )
    results["committed"] = await end_to_end.measure_committed(folder / "commit", scaled(4_000))
    results["kit"] = await kit.measure(scaled(10_000))
    results["client"] = await end_to_end.measure_client(folder / "client", scaled(3_000))
    results["pull"] = await end_to_end.measure_pull(folder / "pull", scaled(3_000))
    results["documents"] = await documents.measure(folder / "documents", 1 if QUICK else 10)
    results["temporal"] = await temporal.measure(folder / "temporal", scaled(temporal.JOBS))
    results["ledger"] = await ledger.main(large=100_000 if QUICK else 1_000_000)
    results["why"] = await why.measure(folder, scaled(100_000))
    results["azure"] = await azure.measure(scaled(10_000), 20 if QUICK else 200)
    results["calibration_s"].append(calibration())
    return results


def machine() -> dict[str, Any]:
    return {
        "python": platform.python_version(),
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
    "share_of_bare_loop": "CPU of the kit / CPU of a loop that receives, ACKs and answers",
    "quiet_read_p50_ms": "the same before anything else happens",
    "cores_in_use": "CPU of the server and its processes / time",
    "read_p50_ms": "GET /v1/jobs/{id} during the load",
    "read_p99_ms": "GET /v1/jobs/{id} during the load",
}


def report(results: dict[str, Any]) -> None:
    for title, key in (
        ("Durable transitions through the engine, 200 jobs in flight", "transitions"),
        ("Three-step jobs over HTTP, services in the same process, 200 in flight", "http"),
        ("The same with outputs: each step commits and promotes a small file", "committed"),
        ("The kit, beside a bare loop on the same bus", "kit"),
        ("The same through `lucius.client`, beside bare connections", "client"),
        ("Three-step jobs over HTTP, services over the pull gateway, 200 in flight", "pull"),
        ("Ten scans at once through the packaged services", "documents"),
        ("Three-step jobs on Temporal, beside a bare workflow on the same server", "temporal"),
        ("`lucius why` with many live jobs, for one of them and for the system", "why"),
    ):
        show(
            title,
            [
                {"measure": name, "value": value, "what it is": MEANING.get(name, "")}
                for name, value in results[key].items()
            ],
        )
    report_components(results["http_components"])
    for title, key in (
        ("Taking over a lane of the Azure ledger, on tables in memory", "take_over"),
        ("Three-step jobs on ledger `ledger`, beside the same calls bare", "beside_bare"),
        (
            "Three-step jobs on ledger `table`, beside the same calls bare",
            "beside_bare_in_separate_tables",
        ),
    ):
        rows = results["azure"][key].items()
        show(title, [{"measure": name, "value": value} for name, value in rows])


def report_components(found: dict[str, Any]) -> None:
    if "not_available" in found:
        print(f"Time by component is not available: {found['not_available']}")
        return
    title = "Where the server's time goes, services in the same process, 200 in flight"
    show(f"{title} ({found['samples']:,} samples)", found["components"])
    if found["files_of_other"]:
        print(f"other: {found['files_of_other']}")


def main() -> None:
    with tempfile.TemporaryDirectory(
        prefix="lucius-bench-", dir=os.environ.get("BENCH_DIR")
    ) as name:
        results = uvloop.run(run(Path(name)))
    report(results)
    print(f"calibration before and after: {results['calibration_s']}")
    RESULTS.write_text(json.dumps(results, indent=1))
    print(f"written to {RESULTS.relative_to(Path.cwd())}")


if __name__ == "__main__":
    main()
