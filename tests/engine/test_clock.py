"""The clock of a process never goes back, and a stall is noticed once, with its cause."""

from datetime import UTC, datetime, timedelta

import pytest

from lucius.core.errors import LuciusError
from lucius.engine.clock import StallWatch, SteadyClock, StorageClock
from lucius.engine.observer import Incident, Observer

START = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)


class Clocks:
    """A wall clock and a monotonic one; a test moves them together or apart."""

    def __init__(self) -> None:
        self.wall = START
        self.time = 100.0

    def pass_by(self, length: timedelta) -> None:
        self.wall += length
        self.time += length.total_seconds()


class Heard(Observer):
    def __init__(self) -> None:
        self.incidents: list[tuple[Incident, str]] = []

    def incident(self, incident: Incident, cause: str) -> None:
        self.incidents.append((incident, cause))


def steady(clocks: Clocks) -> SteadyClock:
    return SteadyClock(lambda: clocks.wall, lambda: clocks.time)


def watch(clocks: Clocks) -> tuple[StallWatch, Heard]:
    watch, heard = StallWatch(lambda: clocks.wall, lambda: clocks.time), Heard()
    assert watch.deaf_until(heard) is None
    return watch, heard


def test_set_back_it_goes_on_at_half_speed_until_the_wall_clock_has_caught_up() -> None:
    clocks = Clocks()
    clock = steady(clocks)
    clocks.wall -= HOUR
    assert clock.now() == START
    clocks.pass_by(HOUR / 2)
    assert clock.now() == START + HOUR / 4
    clocks.pass_by(1.5 * HOUR)
    assert clock.now() == START + HOUR == clocks.wall
    clocks.pass_by(SECOND)
    assert clock.now() == clocks.wall


def test_a_process_that_stood_still_notices_it_once() -> None:
    clocks = Clocks()
    stalls, heard = watch(clocks)
    clocks.pass_by(8 * SECOND)
    woken_at = clocks.wall
    assert stalls.deaf_until(heard) == woken_at
    clocks.pass_by(SECOND)
    assert stalls.deaf_until(heard) == woken_at
    assert heard.incidents == [(Incident.STALLED, "process")]


# -- the storage's time ----------------------------------------------------------------------


def storage_clock(off: float, *, age: float = 0.0, known: bool = True) -> StorageClock:
    """A wall clock that is `off` seconds ahead, and a date that came `age` seconds ago."""
    date = START - timedelta(seconds=age)
    wall = START + timedelta(seconds=off + 0.5)
    return StorageClock(lambda: wall, lambda: 100.0, lambda: (date, 100.0 - age) if known else None)


@pytest.mark.parametrize(
    ("off", "seen"), [(0.0, 0.0), (0.9, 0.9), (-0.9, -0.9), (90, 0), (-600, 0)]
)
def test_a_wall_clock_that_is_off_is_corrected_by_the_storage_date(off: float, seen: float) -> None:
    for age in (0.0, 40.0):
        now = storage_clock(off, age=age).now()
        assert now == START + timedelta(seconds=seen + 0.5)


def test_beyond_two_seconds_the_process_is_not_ready() -> None:
    storage_clock(1.9).check()
    storage_clock(-600, known=False).check()
    with pytest.raises(LuciusError, match="the clock is 90 s ahead of the storage's"):
        storage_clock(90).check()
    with pytest.raises(LuciusError, match="600 s behind"):
        storage_clock(-600).check()
