"""How one setting is declared, read from text and shown. `behaviour.py` and `connections.py` list them."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Generic, TypeVar, cast
from urllib.parse import urlsplit

from lucius.core.limits import MAX_SECONDS

T = TypeVar("T")

PREFIX: Final = "LUCIUS_"
MASK: Final = "********"
NONE: Final = "none"
AGE_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
LONGEST_AGE: Final = 100 * 365 * 86400
MAX_RATE: Final = 1_000_000
_USERINFO: Final = re.compile(r"//[^/@\s]*@")


@dataclass(frozen=True, slots=True)
class SettingKind(Generic[T]):
    """What a value may be. `parse` raises ValueError with a reason that does not repeat the value."""

    name: str
    parse: Callable[[str], T]
    show: Callable[[T], str] | None = None
    """A value as a user would set it, where that is not what `show` makes of it."""


Derive = Callable[[Mapping[str, Any]], str]
"""A default that follows from settings declared earlier."""


@dataclass(frozen=True, slots=True)
class Declared:
    """One row of the settings table."""

    env: str
    kind: SettingKind[Any]
    default: str | Derive
    about: str
    secret: bool
    shown_default: str


def setting(
    env: str,
    kind: SettingKind[T],
    default: str | Derive,
    about: str,
    *,
    secret: bool = False,
    shown: str | None = None,
) -> T:
    """A dataclass field that knows its environment variable; `default` is text, as a user would set it."""
    text = shown if shown is not None else default if isinstance(default, str) else ""
    row = Declared(PREFIX + env, kind, default, about, secret, text)
    first = None if callable(default) else kind.parse(default)
    return cast(T, field(default=first, repr=not secret, metadata={"declared": row}))


def show(value: Any) -> str:
    """A value as a user would set it, without credentials."""
    if value is None:
        return NONE
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g}"
    if isinstance(value, tuple):
        return ",".join(show(item) for item in value)
    return _USERINFO.sub("//***@", str(value))


# -- kinds -----------------------------------------------------------------------------------


def _text(text: str) -> str:
    if not text.isprintable():
        raise ValueError("contains a control character")
    return text


def _flag(text: str) -> bool:
    word = text.strip().lower()
    if word in ("true", "1", "yes", "on"):
        return True
    if word in ("false", "0", "no", "off"):
        return False
    raise ValueError("must be true or false")


def _number(text: str, low: float, high: float) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError("must be a number of seconds") from None
    if not low <= value <= high:
        raise ValueError(f"must be from {low:g} to {high:.0f} seconds")
    return value


def _rate(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError("must be a number") from None
    if not 0.01 <= value <= MAX_RATE:
        raise ValueError(f"must be from 0.01 to {MAX_RATE}")
    return value


def _seconds(text: str) -> timedelta:
    return timedelta(seconds=_number(text, 0.001, MAX_SECONDS))


def _age(text: str) -> timedelta:
    """A number with a unit: what is measured in days should not be written in seconds."""
    found = re.fullmatch(r"(\d{1,12})([smhdw])", text.strip())
    if found is None:
        raise ValueError("must be a number with s, m, h, d or w, such as 30d")
    seconds = int(found[1]) * AGE_UNITS[found[2]]
    if not 0 <= seconds <= LONGEST_AGE:
        raise ValueError("must be at most a hundred years")
    return timedelta(seconds=seconds)


def _shown_age(age: timedelta | None) -> str:
    if age is None:
        return NONE
    seconds = int(age.total_seconds())
    unit = next(u for u in reversed(AGE_UNITS) if seconds % AGE_UNITS[u] == 0)
    return f"{seconds // AGE_UNITS[unit]}{unit}"


def _waits(text: str) -> tuple[timedelta, ...]:
    waits = tuple(timedelta(seconds=_number(part, 0, MAX_SECONDS)) for part in text.split(","))
    if len(waits) > 20:
        raise ValueError("must be at most 20 waits")
    return waits


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _fields(text: str) -> tuple[str, ...]:
    fields = _names(_text(text))
    if {field.lower() for field in fields} & {"true", "false", "all", "none"}:
        raise ValueError("must be names of fields, such as db_password, or * for every field")
    return fields


def _keys(text: str) -> tuple[str, ...]:
    """`id:secret` each; an id has no dot, because tokens separate with dots."""
    keys = _names(_text(text))
    for key in keys:
        key_id, _, secret = key.partition(":")
        if not key_id or "." in key_id or len(secret) < 16:
            raise ValueError(
                "must be id:secret, with no dot in the id and at least 16 characters in the secret"
            )
    return keys


def _path(text: str) -> Path:
    return Path(_text(text)).expanduser()


def _url(text: str) -> str:
    try:
        parts = urlsplit(_text(text))
    except ValueError:
        raise ValueError("must be a URL") from None
    if text and (not parts.scheme or "://" not in text):
        raise ValueError("must be a URL, such as https://host/path")
    return text.removesuffix("/")


def _or_none(text: str, parse: Callable[[str], T]) -> T | None:
    return None if text.strip().lower() in ("", NONE) else parse(text)


def _whole(text: str, low: int, high: int) -> int:
    try:
        value = int(text)
    except ValueError:
        raise ValueError("must be a whole number") from None
    if not low <= value <= high:
        raise ValueError(f"must be from {low} to {high}")
    return value


def _one_of(text: str, options: tuple[str, ...]) -> str:
    if text not in options:
        raise ValueError(f"must be {' or '.join(options)}")
    return text


def _matching(text: str, pattern: re.Pattern[str], reason: str) -> str:
    if not pattern.fullmatch(text):
        raise ValueError(reason)
    return text


TEXT: Final = SettingKind("text", _text)
FLAG: Final = SettingKind("true or false", _flag)
SECONDS: Final = SettingKind("seconds", _seconds)
SECONDS_OR_NONE: Final = SettingKind("seconds or none", lambda text: _or_none(text, _seconds))
RATE_OR_NONE: Final = SettingKind("number or none", lambda text: _or_none(text, _rate))
AGE: Final = SettingKind("age", _age, _shown_age)
AGE_OR_NONE: Final = SettingKind(
    "age, such as 30d, or none", lambda text: _or_none(text, _age), _shown_age
)
WAITS: Final = SettingKind("seconds, comma-separated", _waits)
NAMES: Final = SettingKind("names, comma-separated", _names)
FIELDS: Final = SettingKind("names of fields, comma-separated, or *", _fields)
KEYS: Final = SettingKind("id:secret, comma-separated", _keys)
PATH: Final = SettingKind("path", _path)
URL: Final = SettingKind("URL", _url)
COUNT_OR_NONE: Final = SettingKind(
    "whole number or none", lambda text: _or_none(text, lambda given: _whole(given, 0, 10**9))
)


def whole(low: int, high: int) -> SettingKind[int]:
    return SettingKind(f"whole number, {low} to {high}", lambda text: _whole(text, low, high))


def one_of(*options: str) -> SettingKind[str]:
    return SettingKind(" or ".join(options), lambda text: _one_of(text, options))


def fixed(value: str) -> SettingKind[str]:
    """Known by name, but not to be changed in this version."""
    return SettingKind(f"always {value}", lambda text: _one_of(text, (value,)))


def matching(name: str, pattern: str) -> SettingKind[str]:
    compiled = re.compile(pattern)
    return SettingKind(name, lambda text: _matching(text, compiled, f"must be {name}"))
