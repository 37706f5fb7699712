"""Ids. Job ids sort by time, so that the rows of live jobs lie together; lease ids cannot be guessed."""

import re
from datetime import UTC, datetime
from os import register_at_fork, urandom
from typing import Final

_FETCHED: Final = 4096
_BEGINNING: Final = re.compile(r"(?:job_)?([0-9a-f]{1,31})")
"""Of a job id: milliseconds in twelve hexadecimal digits, then twenty more."""
_TIME_DIGITS: Final = 12
_LAST: Final = 253_402_300_799_999
"""The last millisecond that the calendar has."""


class _Random:
    """Bytes of the operating system, fetched many at a time: each fetch gives up the interpreter."""

    def __init__(self) -> None:
        self._bytes = b""
        self._at = 0

    def forget(self) -> None:
        self._bytes, self._at = b"", 0

    def hex(self, size: int) -> str:
        """Never the same bytes twice."""
        start, self._at = self._at, self._at + size
        if self._at > len(self._bytes):
            self._bytes, start, self._at = urandom(_FETCHED), 0, size
        return self._bytes[start : self._at].hex()


_random: Final = _Random()
register_at_fork(after_in_child=_random.forget)


def new_job_id(now: datetime) -> str:
    milliseconds = int(now.timestamp() * 1000)
    return f"job_{milliseconds:012x}{_random.hex(10)}"


def new_lease_id() -> str:
    return _random.hex(16)


def accepted_at(job_id: str) -> datetime | None:
    """When a job id was made, or None if it is not one of ours."""
    try:
        return datetime.fromtimestamp(int(job_id.removeprefix("job_")[:12], 16) / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def digits_in(text: str) -> str | None:
    """Those of the beginning of a job id, with or without `job_`; None if it cannot be one."""
    found = _BEGINNING.fullmatch(text)
    return found[1] if found is not None else None


def made_between(digits: str) -> tuple[datetime, datetime]:
    """From when until when jobs were accepted whose ids begin so: an id begins with its time."""
    time = digits[:_TIME_DIGITS]
    size = 16 ** (_TIME_DIGITS - len(time))
    first = int(time, 16) * size
    return _instant(first), _instant(first + size)


def _instant(milliseconds: int) -> datetime:
    seconds, rest = divmod(min(milliseconds, _LAST), 1000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest * 1000)
