"""Ids. Job ids sort by time, so that the rows of live jobs lie together; lease ids cannot be guessed."""

import re
from datetime import UTC, datetime
from os import register_at_fork, urandom
from typing import Final

from lucius.contract.words import TRACEPARENT

# The W3C trace context, `traceparent` and `tracestate`: checked and bounded, never understood.

MAX_LENGTH: Final = 512
"""Characters that everyone on the way has to pass on; more are not promised."""
MAX_MEMBERS: Final = 32
_LARGE: Final = 128
_LONGEST: Final = 8192
"""What is longer is not even looked at."""
_MEMBER: Final = re.compile(
    r"(?P<key>[a-z][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13})"
    r"=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
)


_TRACEPARENT: Final = re.compile(TRACEPARENT)


def is_traceparent(given: object) -> bool:
    return isinstance(given, str) and _TRACEPARENT.fullmatch(given) is not None


def tracestate(given: object) -> str | None:
    """The state as it is passed on, or None if it is not valid: then it is dropped as a whole."""
    if not isinstance(given, str) or len(given) > _LONGEST:
        return None
    members = [member for part in given.split(",") if (member := part.strip(" \t"))]
    found = [_MEMBER.fullmatch(member) for member in members]
    keys = {match["key"] for match in found if match is not None}
    if not members or len(members) > MAX_MEMBERS or len(keys) < len(members):
        return None
    return ",".join(_bounded(members))


def _bounded(members: list[str]) -> list[str]:
    """What does not fit is left out whole: large members first, then from the end."""
    for large in (True, False):
        for at in reversed(range(len(members))):
            if sum(map(len, members)) + len(members) - 1 <= MAX_LENGTH:
                return members
            if len(members[at]) > _LARGE or not large:
                members = members[:at] + members[at + 1 :]
    return members


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
