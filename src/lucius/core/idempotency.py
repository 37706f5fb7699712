"""Idempotency: the canonical form of a request and the hashes that recognise it again."""

import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from hashlib import sha256
from typing import Any, Final

from lucius.contract.words import SCHEMA_VERSIONS

HASHED_FIELDS: Final = (
    "tenant_id",
    "request_type",
    "input_ref",
    "output_ref",
    "payload",
    "schema_version",
)

_encode: Final = json.JSONEncoder(
    sort_keys=True,
    separators=(",", ":"),
    ensure_ascii=False,
    allow_nan=False,
    check_circular=False,
).encode
_LOOSE_NUMBER: Final = re.compile(r"\.0[,\]}]|\.0$|[0-9]e[+-]")
"""What may be a whole number written as float, or an exponent."""


def canonical_json(value: Any) -> str:
    """Keys sorted, arrays kept, nulls of objects omitted, numbers without trailing zeros."""
    try:
        text = _encode(value)
    except (TypeError, ValueError, RecursionError):
        return _canonical(value)
    return _canonical(value) if _may_differ(text) else text


def _may_differ(text: str) -> bool:
    """Where the plain encoding may not be canonical. Strings may look alike: that costs only time."""
    if "null" in text:
        return True
    return (".0" in text or "e+" in text or "e-" in text) and bool(_LOOSE_NUMBER.search(text))


def _canonical(value: Any) -> str:
    """The definition. `canonical_json` takes a faster way where that gives the same text."""
    if isinstance(value, Mapping):
        fields = sorted((str(key), item) for key, item in value.items() if item is not None)
        return "{" + ",".join(f"{_quoted(k)}:{_canonical(v)}" for k, v in fields) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(_canonical(item) for item in value) + "]"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int | float | Decimal):
        return _number(value)
    return _quoted(str(value))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _number(value: int | float | Decimal) -> str:
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number that is not finite has no JSON form")
    exact = Decimal(repr(value)) if isinstance(value, float) else value
    text = format(exact, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in ("-0", "") else text


def normal_request_type(text: str) -> str:
    """`OCR→EMBEDDING` and `OCR -> EMBEDDING` are one name."""
    if "→" not in text and " " not in text and text.isprintable():
        return text
    return "->".join(part.strip() for part in text.replace("→", "->").split("->"))


def normal_schema_version(text: Any) -> Any:
    """`1` and `1.0` are v1; anything else stays as it is, and is refused elsewhere."""
    return SCHEMA_VERSIONS[0] if text in SCHEMA_VERSIONS else text


def body_hash(envelope: Mapping[str, Any]) -> str:
    """SHA-256 of the canonical request: what counts as the same request without a key."""
    hashed = {name: envelope.get(name) for name in HASHED_FIELDS}
    hashed["request_type"] = normal_request_type(str(hashed["request_type"]))
    hashed["schema_version"] = normal_schema_version(hashed["schema_version"])
    return sha256(canonical_json(hashed).encode()).hexdigest()


def key_hash(key: str) -> str:
    return sha256(b"key:" + key.encode()).hexdigest()
