"""Numbers that callers give: one rule says what is allowed, and reads by it.

A value is compared with its bounds before anything is computed from it. NaN, infinities, booleans and texts
are no numbers here, and 1.0 is the whole number 1, because JSON has one kind of number.
"""

from typing import Any, Final

from lucius.contract.envelope import MAX_ATTEMPT_NO, MAX_SLOTS
from lucius.core.record import record


@record
class Whole:
    """A whole number from `low` to `high`."""

    low: int
    high: int

    def read(self, value: Any) -> int | None:
        """None: the value is not such a number."""
        if type(value) is int:  # as almost all are
            return value if self.low <= value <= self.high else None
        return int(value) if _within(value, self.low, self.high) and value == int(value) else None

    @property
    def fault(self) -> str:
        return f"must be a whole number from {self.low} to {self.high}"


@record
class Number:
    """A number from `low` to `high`."""

    low: float
    high: float

    def read(self, value: Any) -> float | None:
        """None: the value is not such a number."""
        return float(value) if _within(value, self.low, self.high) else None

    @property
    def fault(self) -> str:
        return f"must be a number from {self.low:g} to {self.high:g}"


def _within(value: Any, low: float, high: float) -> bool:
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return known and low <= value <= high


MOST_ATTEMPTS: Final = MAX_ATTEMPT_NO
ATTEMPT_NO: Final = Whole(1, MOST_ATTEMPTS)
SLOTS: Final = Whole(1, MAX_SLOTS)
