"""Counts, distributions and levels as plain numbers, cheap enough for every decision.

They are changed and read on the event loop alone, so they need no locks. Each declares its labels,
from which the reference page is made and the dashboard is checked. By hand, because a three-step job counts
eighteen times and prometheus_client's own types take eight to nine times as long for one count.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from typing import Any, ClassVar, Final, Protocol, runtime_checkable

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
Labels = tuple[str, ...]


class Instrument:
    """One metric. `name` is the whole name, as Prometheus sees it."""

    kind: ClassVar[str]

    def __init__(self, name: str, about: str, labels: Labels = ()) -> None:
        self.name = name
        self.about = about
        self.labels = labels

    def collect(self) -> Metric:
        raise NotImplementedError


class Count(Instrument):
    """A counter: a number for each set of labels, which only grows."""

    kind = "counter"

    def __init__(self, name: str, about: str, labels: Labels = ()) -> None:
        super().__init__(name, about, labels)
        self.cells: dict[Labels, int] = {}

    def add(self, *labels: str) -> None:
        cells = self.cells
        cells[labels] = cells.get(labels, 0) + 1

    def expect(self, *labels: str) -> None:
        """Show 0 until it happens. Without it, `rate` would miss the first count of a new series."""
        self.cells.setdefault(labels, 0)

    def taken(self) -> list[Any]:
        """What was counted since it was taken last, as JSON data: another process adds it to its own."""
        cells, self.cells = self.cells, {}
        return [[labels, number] for labels, number in cells.items()]

    def put(self, taken: Iterable[Any]) -> None:
        for labels, number in taken:
            self.cells[tuple(labels)] = self.cells.get(tuple(labels), 0) + number

    def collect(self) -> Metric:
        family = CounterMetricFamily(self.name, self.about, labels=self.labels)
        for labels, value in self.cells.items():
            family.add_metric(labels, value)
        return family


class _Spread:
    __slots__ = ("counts", "total")

    def __init__(self, size: int) -> None:
        self.counts = [0] * size
        self.total = 0.0


class Distribution(Instrument):
    """A histogram of durations."""

    kind = "histogram"

    def __init__(
        self, name: str, about: str, labels: Labels = (), bounds: tuple[float, ...] = SECONDS
    ) -> None:
        super().__init__(name, about, labels)
        self._bounds = bounds
        self._cells: dict[Labels, _Spread] = {}

    def add(self, seconds: float, *labels: str) -> None:
        cell = self._cells.get(labels)
        if cell is None:
            cell = self._cells[labels] = _Spread(len(self._bounds) + 1)
        cell.counts[bisect_left(self._bounds, seconds)] += 1
        cell.total += seconds

    def taken(self) -> list[Any]:
        """As of a count."""
        cells, self._cells = self._cells, {}
        return [[labels, cell.counts, cell.total] for labels, cell in cells.items()]

    def put(self, taken: Iterable[Any]) -> None:
        for labels, counts, total in taken:
            cell = self._cells.setdefault(tuple(labels), _Spread(len(self._bounds) + 1))
            cell.counts = [own + more for own, more in zip(cell.counts, counts, strict=True)]
            cell.total += total

    def count(self, *labels: str) -> int:
        cell = self._cells.get(labels)
        return sum(cell.counts) if cell is not None else 0

    def collect(self) -> Metric:
        family = HistogramMetricFamily(self.name, self.about, labels=self.labels)
        for labels, cell in self._cells.items():
            family.add_metric(labels, list(self._cumulated(cell)), cell.total)
        return family

    def _cumulated(self, cell: _Spread) -> Iterable[tuple[str, float]]:
        so_far = 0
        for bound, count in zip((*self._bounds, float("inf")), cell.counts, strict=True):
            so_far += count
            yield ("+Inf" if bound == float("inf") else f"{float(bound)}"), so_far


class Level(Instrument):
    """A gauge. All its values are replaced together, each time it is measured."""

    kind = "gauge"

    def __init__(self, name: str, about: str, labels: Labels = ()) -> None:
        super().__init__(name, about, labels)
        self.cells: dict[Labels, float] = {}

    def show(self, cells: Mapping[Labels, float]) -> None:
        self.cells = dict(cells)

    def collect(self) -> Metric:
        family = GaugeMetricFamily(self.name, self.about, labels=self.labels)
        for labels, value in self.cells.items():
            family.add_metric(labels, value)
        return family


class Instruments(Collector):
    """All instruments that one scrape reads. Subclasses declare them as attributes."""

    def all(self) -> Collection[Instrument]:
        return [value for value in vars(self).values() if isinstance(value, Instrument)]

    def register(self, registry: CollectorRegistry) -> None:
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        return self.collect()

    def collect(self) -> Iterable[Metric]:
        return [instrument.collect() for instrument in self.all()]


@runtime_checkable
class Measured(Protocol):
    """A part with instruments of its own."""

    instruments: Instruments
