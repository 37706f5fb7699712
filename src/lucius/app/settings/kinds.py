"""What the value of a setting may be: types that read text, each with the words for it.

The words stand on the reference page and in every refusal, so a parser only says no.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar, get_args, get_origin
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr
from pydantic.fields import FieldInfo

from lucius.adapters.ledgers import LEDGERS
from lucius.contract.words import without_credentials
from lucius.core.limits import MAX_SECONDS
from lucius.core.routing import TOPOLOGIES

# Names that have a meaning in another version of LUCIUS and none in this one.
#
# Whoever sets one is told so. When something reads a name, it leaves this list and is a setting.

RESERVED: Final = {
    "LUCIUS_SERVICEBUS_LANES": "there are always 16 lanes",
    "LUCIUS_SERVICEBUS_REPLY_PREFIX": "reply topics are always global-bus-replies-p0 to p15",
    "LUCIUS_SERVICEBUS_REPLY_SUBSCRIPTION": "replies come to lucius-reconciler or lucius-invoker",
}
"""Why each does nothing, by variable."""


T = TypeVar("T")

MASK: Final = "********"
NONE: Final = "none"
AGE_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
LONGEST_AGE: Final = 100 * 365 * 86400
MAX_RATE: Final = 1_000_000
MAX_WAITS: Final = 20
LEAST_SECRET: Final = 16


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
    return without_credentials(str(value))


@dataclass(frozen=True, slots=True)
class Takes:
    """What a setting takes, in words that follow "must be"."""

    words: str
    secret: bool = False
    show: Callable[[Any], str] = show
    """A value as a user would set it."""


def takes(field: FieldInfo) -> Takes:
    """What was written beside the type; plain types speak for themselves."""
    for about in field.metadata:
        if isinstance(about, Takes):
            return about
    if get_origin(field.annotation) is Literal:
        return Takes(_either(get_args(field.annotation)))
    if field.annotation is bool:
        return Takes("true or false")
    low = next(each.ge for each in field.metadata if hasattr(each, "ge"))
    high = next(each.le for each in field.metadata if hasattr(each, "le"))
    return Takes(f"a whole number from {low} to {high}")


def _either(options: Iterable[str]) -> str:
    *first, last = options
    return f"{', '.join(first)} or {last}" if first else last


# -- parsers ---------------------------------------------------------------------------------


def _allow(allowed: bool) -> None:
    if not allowed:
        raise ValueError


def _printable(text: str) -> str:
    _allow(text.isprintable())
    return text


def _secret(secret: SecretStr) -> SecretStr:
    _printable(secret.get_secret_value())
    return secret


def _number(text: str, low: float, high: float = MAX_SECONDS) -> float:
    value = float(text)
    _allow(low <= value <= high)
    return value


def _seconds(text: str) -> timedelta:
    return timedelta(seconds=_number(text, 0.001))


def _waits(text: str) -> tuple[timedelta, ...]:
    waits = tuple(timedelta(seconds=_number(part, 0)) for part in text.split(","))
    _allow(len(waits) <= MAX_WAITS)
    return waits


def parse_age(text: str) -> timedelta:
    """A number with a unit: what is measured in days should not be written in seconds."""
    found = re.fullmatch(r"(\d{1,12})([smhdw])", text.strip())
    seconds = int(found[1]) * AGE_UNITS[found[2]] if found else LONGEST_AGE + 1
    if seconds > LONGEST_AGE:
        raise ValueError(f"must be {AGE_WORDS}")
    return timedelta(seconds=seconds)


def _show_age(age: timedelta | None) -> str:
    if age is None:
        return NONE
    seconds = int(age.total_seconds())
    unit = next(u for u in reversed(AGE_UNITS) if seconds % AGE_UNITS[u] == 0)
    return f"{seconds // AGE_UNITS[unit]}{unit}"


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in _printable(text).split(",") if part.strip())


def _ledger(text: str) -> str:
    _allow(text in LEDGERS)
    return text


def _topologies(text: str) -> tuple[str, ...]:
    found = _names(text)
    _allow(bool(found) and set(found) <= set(TOPOLOGIES))
    return found


def _fields(text: str) -> tuple[str, ...]:
    """A word that looks like a switch is refused: it would name a field that nobody has."""
    fields = _names(text)
    _allow(not {field.lower() for field in fields} & {"true", "false", "all", "none"})
    return fields


def _keys(text: str) -> dict[str, SecretStr]:
    """An id has no dot, because tokens separate with dots."""
    pairs = [part.partition(":") for part in _names(text)]
    keys = {key_id: SecretStr(secret) for key_id, _, secret in pairs}
    _allow(len(keys) == len(pairs))
    _allow(all(key_id and "." not in key_id for key_id in keys))
    _allow(all(len(key) >= LEAST_SECRET for key in keys.values()))
    return keys


def _path(text: str) -> Path:
    _allow("://" not in text)
    return Path(_printable(text)).expanduser()


def _url(text: str) -> str:
    parts = urlsplit(_printable(text))
    _allow(not text or (bool(parts.scheme) and "://" in text))
    return text.removesuffix("/")


def _or_none(parse: Callable[[str], T]) -> Callable[[str], T | None]:
    return lambda text: None if text.strip().lower() in ("", NONE) else parse(text)


# -- types -----------------------------------------------------------------------------------

AGE_WORDS: Final = "a number with s, m, h, d or w, such as 30d"
_SECONDS_WORDS: Final = f"a number of seconds from 0.001 to {MAX_SECONDS}"
_NAME_WORDS: Final = "lower-case letters, digits and -, at most 63"

Text = Annotated[str, AfterValidator(_printable), Takes("printable text")]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$"), Takes(_NAME_WORDS)]
Secret = Annotated[SecretStr, AfterValidator(_secret), Takes("printable text", secret=True)]
Seconds = Annotated[timedelta, BeforeValidator(_seconds), Takes(_SECONDS_WORDS)]
SecondsOrNone = Annotated[
    timedelta | None, BeforeValidator(_or_none(_seconds)), Takes(f"{_SECONDS_WORDS}, or none")
]
Rate = Annotated[
    float | None,
    Field(ge=0.01, le=MAX_RATE),
    BeforeValidator(_or_none(float)),
    Takes(f"a number from 0.01 to {MAX_RATE}, or none"),
]
WholeNumber = Annotated[
    int | None,
    Field(ge=0, le=10**9),
    BeforeValidator(_or_none(int)),
    Takes("a whole number from 0 to 1000000000, or none"),
]
AgeOrNone = Annotated[
    timedelta | None,
    BeforeValidator(_or_none(parse_age)),
    Takes(f"{AGE_WORDS}, or none", show=_show_age),
]
WaitList = Annotated[
    tuple[timedelta, ...],
    BeforeValidator(_waits),
    Takes(f"numbers of seconds, comma-separated, at most {MAX_WAITS}"),
]
NameList = Annotated[
    tuple[str, ...], BeforeValidator(_names), Takes("printable names, comma-separated")
]
LedgerName = Annotated[str, AfterValidator(_ledger), Takes(_either(LEDGERS))]
TopologyList = Annotated[
    tuple[str, ...],
    BeforeValidator(_topologies),
    Takes(f"{_either(TOPOLOGIES)}, or several with commas"),
]
Fields = Annotated[
    tuple[str, ...],
    BeforeValidator(_fields),
    Takes("names of fields, comma-separated, such as db_password, or * for every field"),
]
Keys = Annotated[
    dict[str, SecretStr],
    BeforeValidator(_keys),
    Takes(
        "id:secret, comma-separated, each id once and without a dot, each secret with at least"
        f" {LEAST_SECRET} characters",
        secret=True,
    ),
]
Folder = Annotated[Path, BeforeValidator(_path), Takes("a path")]
Url = Annotated[str, AfterValidator(_url), Takes("a URL, such as https://host/path")]


# How one setting is declared: a field of a section that knows its environment variable.

PREFIX: Final = "LUCIUS_"


class Section(BaseModel):
    """Settings that belong together. Its docstring is its heading on the reference page."""

    model_config = ConfigDict(
        frozen=True, validate_default=True, hide_input_in_errors=True, defer_build=True
    )


class SettingRow(NamedTuple):
    """One setting, as the reference page and `lucius settings` show it."""

    env: str
    takes: Takes
    default: str
    about: str

    @property
    def secret(self) -> bool:
        return self.takes.secret


def setting(
    env: str, default: str | Callable[[dict[str, Any]], str], about: str, *, shown: str = ""
) -> Any:
    """A field that is read from LUCIUS_`env`.

    `default` is text, as a user would set it, or makes that text of the settings declared earlier;
    then `shown` says what follows from what.
    """
    how: dict[str, Any] = (
        {"default_factory": default} if callable(default) else {"default": default}
    )
    return Field(**how, alias=PREFIX + env, description=about, examples=[shown])


def rows(section: type[Section]) -> dict[str, SettingRow]:
    """The settings of one section, by field name."""
    return {
        name: _row(field) for name, field in section.model_fields.items() if field.alias is not None
    }


def _row(field: FieldInfo) -> SettingRow:
    (shown,) = field.examples or [""]
    default = shown or (field.default if isinstance(field.default, str) else "")
    return SettingRow(str(field.alias), takes(field), default, field.description or "")
