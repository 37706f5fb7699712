"""The W3C trace context, `traceparent` and `tracestate`: checked and bounded, never understood."""

import re
from typing import Final

from lucius.contract.envelope import TRACEPARENT

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
