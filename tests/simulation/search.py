"""The first seed that finds each planted fault: `python -m tests.simulation --planted [NAME ...]`.

A seed counts if its run holds without the fault. Seeds are tried in order by several processes, and no more
once one has found the fault.
"""

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import Final

from tests.simulation import planted
from tests.simulation.plan import plan_of
from tests.simulation.planted import FAULTS, Planted
from tests.simulation.run import run

MOST: Final = 2000
A_BATCH: Final = 8
"""Seeds that one process tries in turn."""


def finds(fault: Planted, seed: int) -> bool:
    """Whether the run of that seed breaks with the fault, and only with it."""
    plan = plan_of(seed)
    with fault():
        broken = run(plan).broken
    return broken is not None and run(plan).broken is None


def _first_of(name: str, start: int) -> int | None:
    fault: Planted = getattr(planted, name)
    return next((seed for seed in range(start, start + A_BATCH) if finds(fault, seed)), None)


def first_seed(pool: ProcessPoolExecutor, name: str, processes: int) -> int | None:
    """Batches are begun as others end, and judged in their order: so the seed is the first one."""
    starts, begun = iter(range(0, MOST, A_BATCH)), list[Future[int | None]]()

    def begin() -> Iterator[None]:
        for start in starts:
            begun.append(pool.submit(_first_of, name, start))
            yield

    more = begin()
    for _ in range(processes):
        next(more, None)
    while begun:
        seed = begun.pop(0).result()
        if seed is not None:
            return seed
        next(more, None)
    return None


def search(names: Sequence[str], processes: int) -> int:
    """Print what was found, and write it into the table. 1: a fault was not found."""
    known = {fault.__name__: seed for fault, seed in FAULTS.items()}
    found: dict[str, int | None] = {}
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"no such planted fault: {', '.join(unknown)}; there are {', '.join(known)}")
        return 2
    with ProcessPoolExecutor(processes) as pool:
        for name in names or known:
            seed = found[name] = first_seed(pool, name, processes)
            said = f"not found by any of {MOST} seeds" if seed is None else f"found by seed {seed}"
            print(f"{name}: {said} (in the table: {known[name]})", flush=True)
            if seed is not None:
                write(name, seed)
    return 1 if None in found.values() else 0


def write(name: str, seed: int) -> None:
    """Into `planted.py`, where the seeds stand."""
    path = Path(planted.__file__)
    path.write_text(replaced(path.read_text(), name, seed))


def replaced(table: str, name: str, seed: int) -> str:
    return re.sub(rf"^    {name}: \d+,$", f"    {name}: {seed},", table, flags=re.MULTILINE)
