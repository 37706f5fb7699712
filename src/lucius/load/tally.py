"""What came of a load: counts, errors, and how long things took."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

EDGES: Final = tuple(round(step * 10.0**power, 4) for power in range(-3, 3) for step in (1, 2, 5))
"""Upper edges of the histogram in seconds: 1 ms to 500 s."""
PERCENTILES: Final = (50, 90, 99)
SUCCEEDED: Final = "SUCCEEDED"


@dataclass(frozen=True, slots=True)
class JobEnd:
    """SUCCEEDED, or the code of what went wrong; `as_meant`: because the plan wanted that."""

    outcome: str
    as_meant: bool = False


class LoadTally:
    """`as_meant`: failed, and was meant to. `errors`: everything else that did not succeed, by code."""

    def __init__(self) -> None:
        self.started = 0
        self.succeeded = 0
        self.as_meant = 0
        self.interrupted = False
        """Whether it was ended before its plan was done."""
        self.errors: Counter[str] = Counter()
        self._buckets = [0] * (len(EDGES) + 1)
        self._seconds: list[float] = []

    @property
    def ended(self) -> int:
        return self.succeeded + self.as_meant + self.errors.total()

    def start(self) -> None:
        self.started += 1

    def end(self, end: JobEnd, seconds: float) -> None:
        if end.outcome == SUCCEEDED:
            self.succeeded += 1
        elif end.as_meant:
            self.as_meant += 1
        else:
            self.errors[end.outcome] += 1
        self._seconds.append(seconds)
        self._buckets[bisect_left(EDGES, seconds)] += 1

    def percentiles(self) -> dict[str, float]:
        if not self._seconds:
            return {}
        ordered = sorted(self._seconds)
        named = {
            f"p{p}": ordered[min(len(ordered) - 1, len(ordered) * p // 100)] for p in PERCENTILES
        }
        return {**named, "max": ordered[-1]}

    def histogram(self) -> Iterator[tuple[str, int]]:
        """Buckets from the first that has something to the last."""
        filled = [at for at, count in enumerate(self._buckets) if count]
        for at in range(filled[0], filled[-1] + 1) if filled else ():
            edge = f"<= {span(EDGES[at])}" if at < len(EDGES) else f"> {span(EDGES[-1])}"
            yield edge, self._buckets[at]

    def document(self, seconds: float) -> dict[str, Any]:
        return {
            "seconds": round(seconds, 2),
            "started": self.started,
            "ended": self.ended,
            "succeeded": self.succeeded,
            "failed_as_meant": self.as_meant,
            "interrupted": self.interrupted,
            "errors": dict(self.errors),
            "per_second": round(self.ended / seconds, 2) if seconds else 0.0,
            "latency_seconds": {name: round(at, 4) for name, at in self.percentiles().items()},
            "histogram": dict(self.histogram()),
        }


def span(seconds: float) -> str:
    return f"{seconds * 1000:g} ms" if seconds < 1 else f"{seconds:g} s"
