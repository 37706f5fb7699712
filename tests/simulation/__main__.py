"""`make simulate ARGS="--seeds 1000"`: run many seeds, or one; a failing one is made short and shown."""

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from os import cpu_count

from tests.simulation.plan import plan_of
from tests.simulation.run import Report, run
from tests.simulation.search import search
from tests.simulation.shrink import shrunk

AT_ONCE = 25


def main() -> int:
    parser = argparse.ArgumentParser(prog='make simulate ARGS="..."', description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds (default: 200)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (default: 0)")
    parser.add_argument("--seed", type=int, help="run this one alone")
    parser.add_argument("--trace", action="store_true", help="with --seed: show the whole run")
    parser.add_argument("--plain", action="store_true", help="do not make a failing plan shorter")
    parser.add_argument("--planted", nargs="*", metavar="NAME", help="find planted faults anew")
    parser.add_argument("--processes", type=int, default=cpu_count(), help="how many at once")
    given = parser.parse_args()
    if given.planted is not None:
        return search(given.planted, given.processes)
    if given.seed is not None:
        return _one(given.seed, trace=given.trace, shorten=not given.plain)
    return _many(given.first, given.seeds, given.processes, shorten=not given.plain)


def _one(seed: int, *, trace: bool, shorten: bool) -> int:
    report = run(plan_of(seed))
    if trace:
        print("\n".join([str(report.plan), *report.lines]))
    if report.broken is None:
        print(f"seed {seed} holds: {len(report.lines)} events, {report.digest[:16]}")
        return 0
    print(told(shrunk(report.plan) if shorten else report))
    return 1


def _many(first: int, number: int, processes: int, *, shorten: bool) -> int:
    began, failed = time.monotonic(), list[int]()
    seen: Counter[str] = Counter()
    starts = range(first, first + number, AT_ONCE)
    with ProcessPoolExecutor(processes) as pool:
        for some, found in pool.map(_batch, starts, [first + number] * len(starts)):
            seen += found
            failed += some
            if some:
                print(f"failed: {some}", flush=True)
    for seed in failed[:3]:
        print(told(shrunk(plan_of(seed)) if shorten else run(plan_of(seed))))
    print(
        f"{number} seeds in {time.monotonic() - began:.0f} s; {len(failed)} failed: {failed[:50]}"
    )
    print(" ".join(f"{name}={times}" for name, times in sorted(seen.items())))
    return 1 if failed else 0


def _batch(start: int, end: int) -> tuple[list[int], Counter[str]]:
    reports = [run(plan_of(seed)) for seed in range(start, min(start + AT_ONCE, end))]
    seen: Counter[str] = Counter()
    for report in reports:
        seen += report.seen
    return [report.plan.seed for report in reports if report.broken is not None], seen


def told(report: Report) -> str:
    """For people: what is wrong, the plan, how the run went, and how to repeat it."""
    seed = report.plan.seed
    return "\n".join(
        [
            f"seed {seed}: {report.broken}",
            "",
            str(report.plan),
            "",
            *report.lines[-120:],
            "",
            f"seed {seed}: {report.broken}",
            f'repeat it with: make simulate ARGS="--seed {seed}"   (--trace shows the whole run)',
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
