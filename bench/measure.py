"""What every benchmark shares: percentiles, CPU time, a calibration of the machine, and tables."""

import gc
import resource
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table


@dataclass
class Spent:
    seconds: float = 0.0
    cpu: float = 0.0


@contextmanager
def spending() -> Iterator[Spent]:
    """Wall and CPU seconds of this process (all threads) in a block."""
    spent = Spent()
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF)
    started = time.perf_counter()
    yield spent
    spent.seconds = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_SELF)
    spent.cpu = (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def calibration() -> float:
    """Seconds for a fixed piece of work on one core: compare only runs where it agrees."""
    started = time.perf_counter()
    total = 0
    for number in range(2_000_000):
        total += number * number
    return time.perf_counter() - started


def show(title: str, rows: Sequence[dict[str, Any]]) -> None:
    table = Table(title=title, title_justify="left")
    for column in rows[0]:
        table.add_column(column, justify="left" if isinstance(rows[0][column], str) else "right")
    for row in rows:
        table.add_row(*(_text(value) for value in row.values()))
    Console(width=120).print(table)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.3f}" if value < 10 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
