"""What each guard costs a job: the calls that one three-step job makes of it, replayed in a tight loop.

`python -m bench.guards` prints microseconds of CPU a job, the best of many rounds.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from time import process_time
from typing import Any, Final
from unittest.mock import patch

from bench.measure import calibration, show
from bench.transitions import Driver
from lucius.adapters.ledgers.memory import MemoryLedger
from lucius.core.job import Job, Step
from lucius.core.record import copied, record
from lucius.engine.admission.faults import Faults
from lucius.engine.admission.secrets import PayloadSecrets
from lucius.engine.cache import JobCache

ROUNDS: Final = 60
JOBS: Final = 300
"""Replayed in each round."""
ROOM: Final = 2**28
"""Bytes: as much as the cache has by default."""
Call = tuple[str, tuple[Any, ...]]


@contextmanager
def recorded(kind: type, *names: str) -> Iterator[list[Call]]:
    """Every call of these methods, by whoever."""
    calls: list[Call] = []

    def noting(name: str) -> Callable[..., Any]:
        original = getattr(kind, name)

        def noted(self: Any, *given: Any) -> Any:
            calls.append((name, given))
            return original(self, *given)

        return noted

    with ExitStack() as stack:
        for name in names:
            stack.enter_context(patch.object(kind, name, noting(name)))
        yield calls


def best(act: Callable[[], object]) -> float:
    """Microseconds of CPU a job."""
    found = []
    for _ in range(ROUNDS):
        started = process_time()
        for _ in range(JOBS):
            act()
        found.append((process_time() - started) / JOBS * 1e6)
    return min(found)


async def one_job() -> tuple[list[Call], list[Call]]:
    with (
        recorded(PayloadSecrets, "check") as secrets,
        recorded(JobCache, "put") as cache,
    ):
        driver = Driver(MemoryLedger())
        await driver.run_job(1)
        await driver.outbox.tasks.close()
    return secrets, cache


# -- the guards, each beside what would do without it ------------------------------------------------


def searched(calls: list[Call]) -> Callable[[], object]:
    checks = PayloadSecrets()

    def act() -> None:
        for _, (value, at, _) in calls:
            checks.check(value, at, Faults())

    return act


def weighed(calls: list[Call]) -> Callable[[], object]:
    jobs = [job for _, (job,) in calls]

    def act() -> None:
        cache = JobCache(ROOM)
        for job in jobs:
            cache.put(job)

    return act


def unweighed(calls: list[Call]) -> Callable[[], object]:
    jobs: list[Job] = [job for _, (job,) in calls]

    def act() -> None:
        JobCache(ROOM)
        kept: dict[str, Job] = {}
        for job in jobs:
            kept.pop(job.job_id, None)
            kept[job.job_id] = job

    return act


def _without_counts() -> type:
    """A step without its counts of deaths and returned leases."""
    kept = {
        name: kind
        for name, kind in Step.__annotations__.items()
        if name not in ("deaths", "returns")
    }
    return record(type("UncountedStep", (), {"__annotations__": kept}))


def copying(calls: list[Call], *, counts: bool) -> Callable[[], object]:
    """Every step that changed from one commit to the next is copied once."""
    jobs: list[Job] = [job for _, (job,) in calls]
    changed = [
        step
        for before, after in pairwise(jobs)
        for was, step in zip(before.steps, after.steps, strict=True)
        if was is not step
    ]
    if not counts:
        plain = _without_counts()
        changed = [
            plain(**{name: getattr(step, name) for name in plain.__slots__})  # type: ignore[attr-defined]
            for step in changed
        ]

    def act() -> None:
        for step in changed:
            copied(step)

    return act


def main() -> None:
    secrets, cache = asyncio.run(one_job())
    rows = [
        ("search of the payload for credentials", best(searched(secrets)), best(lambda: None)),
        (
            "counts of deaths and returned leases",
            best(copying(cache, counts=True)),
            best(copying(cache, counts=False)),
        ),
        ("the cache weighed in bytes", best(weighed(cache)), best(unweighed(cache))),
    ]
    show(
        f"Guards, microseconds of CPU a job (calibration {calibration():.3f} s)",
        [
            {
                "guard": name,
                "calls": len(calls),
                "with": spent,
                "without": bare,
                "guard alone": spent - bare,
            }
            for (name, spent, bare), calls in zip(rows, (secrets, cache, cache), strict=True)
        ],
    )


if __name__ == "__main__":
    main()
