"""How large things may be, so that a job accepted on one backend fits every other.

Azure Table Storage and Service Bus Standard are the narrowest; the numbers come from them.
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from lucius.contract.words import MAX_ATTEMPT_NO, MAX_ESCAPED, MAX_SLOTS
from lucius.core.record import record

# Numbers that callers give: one rule says what is allowed, and reads by it.
#
# A value is compared with its bounds before anything is computed from it. NaN, infinities, booleans and texts
# are no numbers here, and 1.0 is the whole number 1, because JSON has one kind of number.


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


PROPERTY_CHARACTERS: Final = 32_768
"""A string property: 64 KiB of UTF-16. Each reference, each step's payload and the unknown
envelope fields are stored as one property each, as JSON."""

ENTITY_BYTES: Final = 1_048_576
ENTITY_HEADROOM: Final = 131_072
"""Left for the columns that LUCIUS writes itself."""
ENVELOPE_CHARACTERS: Final = (ENTITY_BYTES - ENTITY_HEADROOM) // 2
"""What never changes about a job is one entity."""

MESSAGE_BYTES: Final = 262_144
MESSAGE_HEADROOM: Final = 65_536
"""Broker headers and properties, and LUCIUS's own fields: ids, routing, callback URLs, token."""
MESSAGE_ID_CHARACTERS: Final = 128
RESULT_BYTES: Final = 8_448
"""The longest reference of an earlier step that a directive carries (2,048 characters) and its name."""

TRANSACTION_ENTITIES: Final = 100
JOB_ENTITIES: Final = 4
STEP_ENTITIES: Final = 6
"""At most, in one save: its row, outbox entry and execution, and the events of its moves."""

MAX_STEPS: Final = (TRANSACTION_ENTITIES - JOB_ENTITIES) // STEP_ENTITIES
MAX_STAGE_STEPS: Final = 12
"""Steps that run together: a stage starts in one save, with the result that opened it."""
MAX_ATTEMPTS: Final = 20
"""Attempts of a step: the job's row keeps every one."""

MAX_DEPTH: Final = 32
MAX_PAYLOAD_BYTES: Final = 131_072
"""The default for the whole payload; settings may only lower it."""
MAX_SECONDS: Final = 30 * 86_400
"""The longest timeout, lease or wait."""


KEY_CHARACTERS: Final = 512
"""Of a key of Azure Table Storage."""
TENANT_KEY_CHARACTERS: Final = MAX_ESCAPED
"""Of these, for the tenant: the longest key names a line, a moment, a job and a step beside it."""
_UNSAFE_IN_KEYS: Final = re.compile(
    r"[/\\#?|~\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff\U0001fffe-\U0001ffff]"
)


def escaped_in_key(part: str) -> str:
    """With `~` and the number of each character that a key of Azure Table Storage may not hold."""
    return _UNSAFE_IN_KEYS.sub(lambda found: f"~{ord(found[0]):x};", part)


def tenant_fits(tenant_id: str) -> bool:
    """Whether every backend can name the tenant in its keys."""
    if len(tenant_id) * 8 <= TENANT_KEY_CHARACTERS:  # even if each character is escaped
        return True
    return utf16_length(escaped_in_key(tenant_id).encode()) <= TENANT_KEY_CHARACTERS


def utf16_length(text: bytes) -> int:
    """Characters as Azure counts them, of text in UTF-8."""
    return len(text.decode().encode("utf-16-le")) // 2


def fits_property(text: bytes) -> bool:
    """UTF-8 is never shorter than the count of UTF-16 units, so most texts need no second look."""
    return len(text) <= PROPERTY_CHARACTERS or utf16_length(text) <= PROPERTY_CHARACTERS


def directive_capacity(earlier_steps: int) -> int:
    """Bytes left in a message for references, payload and unknown fields, if all results are long."""
    return MESSAGE_BYTES - MESSAGE_HEADROOM - earlier_steps * RESULT_BYTES


# What JSON cannot carry everywhere: not-finite numbers, lone surrogates, huge integers, deep nesting.

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
