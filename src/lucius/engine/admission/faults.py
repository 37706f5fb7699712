"""The faults of one request, collected so that the client learns of all of them at once."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from typing import Any, Final, NamedTuple, NoReturn

import jsonschema_rs

from lucius.contract.codes import CODES
from lucius.contract.models.commands import Command
from lucius.core.errors import RequestError
from lucius.core.limits import pointer
from lucius.core.references import HAS_CREDENTIALS, INVALID, NOT_ALLOWED, PROTECTED

# Fields that nobody knows, with names so close to a known one that a slip of the keys is likely.
#
# Such a field is kept and passed on like every other; whoever sent it is only told.

LEAST: Final = 4
"""Letters of a name that one edit may change. In shorter ones almost everything is close."""
MOST_EXAMINED: Final = 200
MOST_WARNINGS: Final = 10
MOST_ITEMS: Final = 100
"""Of a list, so many from the first on are looked at."""
DEEPEST: Final = 4
_BRANCHES: Final = ("allOf", "anyOf", "oneOf")
_ENVELOPE: Final = frozenset(Command.model_fields)


class Warned(NamedTuple):
    """Where the field stands, and which one may be meant."""

    pointer: str
    detail: str


@dataclass(frozen=True, slots=True)
class Known:
    """The fields that a schema names at one place, what it names below each, and in the items of a list."""

    fields: "Mapping[str, Known]"
    items: "Known | None" = None
    takes_any: bool = False
    """Names are free here, by a pattern or for a map: no name is a slip."""


NOTHING: Final = Known({}, takes_any=True)


def known_fields(schema: Mapping[str, Any] | None) -> Known:
    return NOTHING if schema is None else _read(schema, schema, DEEPEST)


def _read(schema: Any, root: Mapping[str, Any], depth: int) -> Known:
    parts = list(_parts(schema, root, DEEPEST))
    if depth == 0 or not parts:
        return NOTHING
    fields = {
        name: _read(each, root, depth - 1)
        for part in parts
        for name, each in part.get("properties", {}).items()
    }
    items = next((part["items"] for part in parts if "items" in part), None)
    takes_any = not fields or any(
        "patternProperties" in part or isinstance(part.get("additionalProperties"), dict)
        for part in parts
    )
    return Known(fields, None if items is None else _read(items, root, depth - 1), takes_any)


def _parts(schema: Any, root: Mapping[str, Any], depth: int) -> Iterator[Mapping[str, Any]]:
    """The schema itself, what it refers to in its own document, and its branches."""
    if not isinstance(schema, Mapping) or depth == 0:
        return
    yield schema
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/$defs/"):
        yield from _parts(root.get("$defs", {}).get(reference[8:]), root, depth - 1)
    for word in _BRANCHES:
        for branch in schema.get(word, ()):
            yield from _parts(branch, root, depth - 1)


def merged(several: Sequence[Known], *names: str) -> Known:
    """What any of several steps knows, for a payload that goes to all of them; `names` are known besides."""
    if len(several) == 1 and not names:
        return several[0]
    fields = dict.fromkeys(names, NOTHING)
    for each in several:
        fields |= each.fields
    return Known(fields, takes_any=any(each.takes_any for each in several))


class Unknown(NamedTuple):
    at: str
    name: str
    known: Collection[str]


def near_misses(
    extra: Mapping[str, Any], payloads: Iterable[tuple[str, Any, Known]]
) -> tuple[Warned, ...]:
    """`extra`: fields beside those of an envelope. `payloads`: each with its place and what is known."""
    unknown = chain(
        (Unknown("", name, _ENVELOPE) for name in extra if name not in _ENVELOPE),
        chain.from_iterable(_unknown(value, known, at) for at, value, known in payloads),
    )
    found = (
        Warned(each.at + pointer(each.name), f"is not known here: did you mean `{meant}`?")
        for each in islice(unknown, MOST_EXAMINED)
        if (meant := nearest(each.name, each.known)) is not None
    )
    return tuple(islice(found, MOST_WARNINGS))


def _unknown(value: Any, known: Known, at: str) -> Iterator[Unknown]:
    if isinstance(value, list) and known.items is not None:
        for number, each in enumerate(islice(value, MOST_ITEMS)):
            yield from _unknown(each, known.items, f"{at}/{number}")
    if not isinstance(value, Mapping):
        return
    for name, each in value.items():
        below = known.fields.get(name)
        if below is not None:
            if below is not NOTHING:
                yield from _unknown(each, below, at + pointer(name))
        elif not known.takes_any:
            yield Unknown(at, name, known.fields.keys())


def nearest(name: str, known: Collection[str]) -> str | None:
    """The known name that this one may be a slip of, if any. An exact name is none."""
    if name in known:
        return None
    plain = _plain(name)
    same = (each for each in known if _plain(each) == plain)
    edited = (each for each in known if len(each) >= LEAST and _one_edit(plain, _plain(each)))
    return next(chain(same, edited), None)


@lru_cache(maxsize=1024)
def _plain(name: str) -> str:
    """Without what people mix up: case, and what stands between words."""
    return name[:256].casefold().replace("_", "").replace("-", "").replace(" ", "")


def _one_edit(one: str, other: str) -> bool:
    """One letter more, less or other, or two neighbours the other way round."""
    if abs(len(one) - len(other)) > 1:
        return False
    pairs = enumerate(zip(one, other, strict=False))
    start = next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
    left, right = one[start:], other[start:]
    swapped = left[:2] == right[1::-1] and left[2:] == right[2:]
    return swapped or left[1:] == right[1:] or left[1:] == right or left == right[1:]


INVALID_ENVELOPE: Final = "INVALID_ENVELOPE"
UNSUPPORTED_SCHEMA_VERSION: Final = "UNSUPPORTED_SCHEMA_VERSION"
UNKNOWN_REQUEST_TYPE: Final = "UNKNOWN_REQUEST_TYPE"
INVALID_PAYLOAD: Final = "INVALID_PAYLOAD"
PAYLOAD_HAS_CREDENTIALS: Final = "PAYLOAD_HAS_CREDENTIALS"
DOC_ID_REQUIRED: Final = "DOC_ID_REQUIRED"
BURST_NOT_ALLOWED: Final = "BURST_NOT_ALLOWED"
PAYLOAD_TOO_LARGE: Final = "PAYLOAD_TOO_LARGE"
NOT_REDRIVABLE: Final = "NOT_REDRIVABLE"

MAX_LISTED: Final = 50
"""Faults beyond these are counted, not listed."""

DETAILS: Final = {
    INVALID_ENVELOPE: "the envelope is not valid",
    UNSUPPORTED_SCHEMA_VERSION: "this schema version is not supported",
    UNKNOWN_REQUEST_TYPE: "no protocol serves this request type",
    INVALID: "a reference is not valid",
    HAS_CREDENTIALS: "a reference must not carry credentials",
    NOT_ALLOWED: "a reference is outside the policy",
    PROTECTED: "a reference leads to what LUCIUS keeps for itself",
    PAYLOAD_HAS_CREDENTIALS: "a payload must not carry credentials;"
    " LUCIUS_ALLOW_PAYLOAD_SECRETS names the exceptions",
    INVALID_PAYLOAD: "the payload does not fit the schema of its step",
    DOC_ID_REQUIRED: "mode BURST spreads a tenant's work by document: doc_id is required",
    BURST_NOT_ALLOWED: "this tenant may not use mode BURST",
    PAYLOAD_TOO_LARGE: "the request is larger than every backend can hold",
}
"""By code. A request with several kinds of faults answers with the first of these."""


class Faults:
    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, str], None] = {}

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, code: str, at: str, reason: str) -> None:
        self._found[code, at, reason] = None

    def raise_all(self) -> NoReturn:
        present = {code for code, _, _ in self._found}
        code = next(each for each in DETAILS if each in present)
        ordered = sorted(self._found, key=lambda fault: fault[0] != code)
        listed = [
            (at, reason if kind == code else f"{kind}: {reason}")
            for kind, at, reason in ordered[:MAX_LISTED]
        ]
        if len(ordered) > MAX_LISTED:
            listed.append(("", f"and {len(ordered) - MAX_LISTED} more"))
        status = CODES[code].status
        raise RequestError(code, DETAILS[code], faults=tuple(listed), status=status)

    def add_payload(self, validator: jsonschema_rs.Validator, value: Any, at: str) -> None:
        """Name each field of a step's payload that its schema refuses."""
        for error in validator.iter_errors(value):
            place = at + pointer(*error.instance_path)
            missing = getattr(error.kind, "property", None)
            if error.kind.name == "required" and missing is not None:
                self.add(INVALID_PAYLOAD, place + pointer(missing), "is required")
            else:
                self.add(INVALID_PAYLOAD, place, error.message)
