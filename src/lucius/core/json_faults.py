"""What JSON cannot carry everywhere: not-finite numbers, lone surrogates, huge integers, deep nesting."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from lucius.core.limits import MAX_DEPTH

_MIN_INT: Final = -(2**63)
_MAX_INT: Final = 2**64 - 1

JsonFault = tuple[str, str]
"""A JSON pointer and a reason."""


def pointer(*parts: str | int) -> str:
    """A JSON pointer (RFC 6901); text that cannot be encoded is shown escaped."""
    return "".join("/" + _shown(str(part)).replace("~", "~0").replace("/", "~1") for part in parts)


def _shown(text: str) -> str:
    if text.isascii():
        return text[:128]
    return text.encode("utf-8", "backslashreplace").decode()[:128]


def json_faults(value: Any, at: str = "", depth: int = 1) -> Iterator[JsonFault]:
    """Every place where a value is not portable JSON."""
    if isinstance(value, Mapping | list | tuple):
        if depth > MAX_DEPTH:
            yield at, f"is nested more than {MAX_DEPTH} levels deep"
        else:
            yield from _inside(value, at, depth)
    else:
        reason = _scalar_fault(value)
        if reason is not None:
            yield at, reason


def _inside(
    value: Mapping[Any, Any] | list[Any] | tuple[Any, ...], at: str, depth: int
) -> Iterator[JsonFault]:
    if not isinstance(value, Mapping):
        for index, item in enumerate(value):
            yield from json_faults(item, f"{at}/{index}", depth + 1)
        return
    for key, item in value.items():
        place = at + pointer(str(key))
        if not isinstance(key, str) or _scalar_fault(key) is not None:
            yield place, "has a name that is not valid text"
        yield from json_faults(item, place, depth + 1)


def _scalar_fault(value: Any) -> str | None:
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, str):
        return None if _encodable(value) else "contains invalid Unicode (a lone surrogate)"
    if isinstance(value, int):
        return None if _MIN_INT <= value <= _MAX_INT else "is an integer beyond 64 bits"
    if isinstance(value, float):
        return None if math.isfinite(value) else "is not a finite number"
    return f"is not JSON ({type(value).__name__})"


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
